"""The cron dialect: a text becomes fields of terms, or an error with its column and what may stand there.

Five fields (minute, hour, day of month, month, day of week), six with the second first, or seven with the year last. What
a field means is settled in `cronfields`; which wall-clock times match is the matter of `wallclock`, and which instants
those are of `kinds`.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from cronwell.model.cronfields import (
    HOUR,
    MINUTE,
    MONTH,
    MONTH_DAY,
    SECOND,
    WEEKDAY,
    YEAR,
    Field,
    FieldReader,
    refuse,
    show,
)

LONGEST_TEXT = 1000
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
Days = Literal["or", "and"]

_TOKEN = re.compile(r"\S+")
_HAS_HASH = re.compile(r"(?<![A-Z])H(?![A-Z])", re.IGNORECASE)
_RULES = (SECOND, MINUTE, HOUR, MONTH_DAY, MONTH, WEEKDAY, YEAR)
_FEWEST, _MOST = 5, 7


@dataclass(frozen=True, slots=True)
class Expression:
    """A cron expression that was understood. `text` is as written, but for its white space, alias and `H`."""

    text: str
    seconds: Field
    minutes: Field
    hours: Field
    days: Field
    months: Field
    weekdays: Field
    years: Field
    has_seconds: bool
    day_rule: Days = "or"
    """Whether two restricted day fields widen each other (`or`, as in Vixie cron) or narrow each other."""

    @property
    def needs_both_days(self) -> bool:
        """Debian's rule: a day field that starts with `*` narrows the other; two plain ones widen each other."""
        return self.day_rule == "and" or self.days.starts_with_star or self.weekdays.starts_with_star

    @property
    def has_fixed_times(self) -> bool:
        """Debian's rule: neither minute nor hour starts with `*`, so that each time of day is meant once a day.

        Such a slot fires right after a gap that swallows it and once in a fold. Like cronsim, an expression with
        seconds never counts as such: it follows the wall clock to the letter.
        """
        return not (self.has_seconds or self.minutes.starts_with_star or self.hours.starts_with_star)


def parse(text: str, *, seed: str = "", days: Days = "or") -> Expression:
    """Read an expression. Raises errors.Invalid with an empty field name and the column to blame.

    `H` stands for a place that is a function of `seed`. The text of what comes back has numbers in its stead, so that
    it means the same wherever it is read again.
    """
    return _parse(text, seed if _HAS_HASH.search(text) else "", days)


def has_hash(text: str) -> bool:
    """Whether an `H` in it will be replaced by a place."""
    return _HAS_HASH.search(text) is not None


@lru_cache(maxsize=4096)
def _parse(text: str, seed: str, day_rule: Days) -> Expression:
    if len(text) > LONGEST_TEXT:
        refuse(f"the expression has {len(text)} characters", None, f"at most {LONGEST_TEXT} characters")
    tokens = [(match.start() + 1, match[0]) for match in _TOKEN.finditer(text)]
    if len(tokens) == 1 and tokens[0][1].startswith("@"):
        tokens = _expand(*tokens[0])
    _check_shape(text, tokens)
    count = len(tokens)
    has_seconds = count > _FEWEST
    if not has_seconds:
        tokens = [(1, "0"), *tokens]
    if count < _MOST:
        tokens = [*tokens, (1, "*")]
    seconds, minutes, hours, month_days, months, weekdays, years = fields = [
        FieldReader(rule, column, seed).read(word)
        for rule, (column, word) in zip(_RULES, tokens, strict=True)
    ]
    written = fields[: None if count == _MOST else -1][0 if has_seconds else 1 :]
    text = " ".join(field.text for field in written)
    return Expression(
        text, seconds, minutes, hours, month_days, months, weekdays, years, has_seconds, day_rule
    )


def _expand(column: int, alias: str) -> list[tuple[int, str]]:
    expression = ALIASES.get(alias.lower())
    if expression is None:
        near = difflib.get_close_matches(alias.lower()[:20], ALIASES, 1, 0.6)
        advice = f"; did you mean {near[0]}?" if near else ""
        refuse(f"there is no alias {show(alias)}{advice}", column, ", ".join([*ALIASES, "@every 15m"]))
    return [(column, word) for word in expression.split()]


def _check_shape(text: str, tokens: list[tuple[int, str]]) -> None:
    accepted = (
        "5 fields: minute hour day-of-month month day-of-week; 6 with the second first; 7 with the year last"
    )
    if not tokens:
        refuse("the expression is empty", 1, accepted)
    if tokens[0][1].upper().startswith(("TZ=", "CRON_TZ=")):
        refuse("a zone does not go into the expression; put its name into `timezone`", tokens[0][0], accepted)
    if len(tokens) > _MOST:
        refuse(f"the expression has {len(tokens)} fields", tokens[_MOST][0], accepted)
    if len(tokens) < _FEWEST:
        count = "one field" if len(tokens) == 1 else f"{len(tokens)} fields"
        refuse(f"the expression has only {count}", len(text.rstrip()) + 1, accepted)
