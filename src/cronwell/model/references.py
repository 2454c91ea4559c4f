"""Secrets by their names: where a definition may name one, how values take their places, and how they are hidden again.

A value is known only while an attempt runs. What the attempt says afterwards is kept for everybody who may read history,
so each value that it was given is looked for there and replaced by its name.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import quote, quote_plus

from pydantic import BaseModel, ConfigDict, Discriminator, StringConstraints, Tag

SECRET_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$"  # noqa: S105  # what a name looks like
MARK = '"secret"'
"""No text of JSON names a secret without this in it."""
SHORTEST_HIDDEN = 4
"""Shorter values are not looked for: they would be found everywhere."""
SHORTEST_LINE, MOST_LINES = 8, 100
"""A value of several lines is also looked for line by line: those that are long enough, and so many of them."""
SHORTEST_EXCERPT, FRAGMENT = 300, 12
"""An error so long may have been cut anywhere, so parts of values that are so long are looked for in it as well."""
MOST_TRIES = 100
MOST_NAMED = 32
"""A job names so many secrets at the most."""

_NAME = re.compile(SECRET_PATTERN)
_REFERENCE = frozenset({"secret"})
# What holds the place of a value while others are looked for. No text that is kept has the null character in it.
_HELD, _FIRST = "\0", 0x10000


class SecretRef(BaseModel):
    """The value of a secret, in place of a text."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    secret: Annotated[str, StringConstraints(pattern=SECRET_PATTERN)]
    """The secret's name."""
    prefix: Annotated[str, StringConstraints(max_length=1000)] = ""
    """What stands before its value, such as `Bearer `."""


def _form(value: object) -> str:
    # Named like the marks that `model.validation` leaves out of the place of a problem.
    return "function-secret" if isinstance(value, (Mapping, SecretRef)) else "constrained-text"


def text_or_secret(longest: int) -> Any:
    """The type of a value that is a text of some length, or a reference to a secret."""
    text = Annotated[str, StringConstraints(max_length=longest)]
    return Annotated[
        Annotated[text, Tag("constrained-text")] | Annotated[SecretRef, Tag("function-secret")],
        Discriminator(_form),
    ]


def is_name(text: str) -> bool:
    return _NAME.match(text) is not None


def named_in(payload: object) -> list[tuple[str, str]]:
    """The secrets that a payload names, each with its place: objects that are exactly `{"secret": "<name>"}`."""
    # Most name none. To see that takes a fifth of the time that telling places does.
    return list(_places(payload, "payload")) if _names_any(payload) else []


def _names_any(payload: object) -> bool:
    below = [payload]
    for item in below:
        if isinstance(item, dict):
            if len(item) == 1 and isinstance(item.get("secret"), str):
                return True
            below += item.values()
        elif isinstance(item, list):
            below += item
    return False


def _places(payload: object, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(payload, dict):
        name = payload.get("secret")
        if payload.keys() == _REFERENCE and isinstance(name, str):
            yield place, name
            return
        for key, below in payload.items():
            yield from _places(below, f"{place}.{key}"[:300])
    elif isinstance(payload, list):
        for index, below in enumerate(payload):
            yield from _places(below, f"{place}.{index}"[:300])


def filled(payload: Any, values: Mapping[str, str]) -> Any:
    """A payload with values in place of the secrets that it names; what is given stays as it is."""
    if isinstance(payload, dict):
        name = payload.get("secret")
        if payload.keys() == _REFERENCE and isinstance(name, str):
            return values[name]
        return {key: filled(below, values) for key, below in payload.items()}
    if isinstance(payload, list):
        return [filled(below, values) for below in payload]
    return payload


class Hidden:
    """Values that must not be seen in what an attempt leaves behind."""

    __slots__ = ("_forms", "_values")

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self._forms: list[tuple[str, str]] | None = None

    def beside(self, other: Hidden | None) -> Hidden:
        """These values and those of another."""
        return self if other is None else Hidden({**other._values, **self._values})

    def mask(self, text: str, *, was_cut: bool = False) -> str:
        """The text with `[secret NAME]` for each value in it; where it was cut, without its end, which may be part of one."""
        masked = self._mask(text.replace(_HELD, ""))
        return self._shown(self._without_end(masked) if was_cut else masked)

    def mask_error(self, text: str) -> str:
        """The same for an error, which may quote what an attempt said, cut in places of its own."""
        masked = self._mask(text.replace(_HELD, ""))
        if len(text) >= SHORTEST_EXCERPT:
            masked = self._without_fragments(masked)
            masked = self._without_end(masked) if text.endswith("…") else masked
        return self._shown(masked)

    def mask_json(self, text: str) -> str:
        """JSON with names in place of values; it is JSON afterwards, also where a value is a number or a word of JSON's."""
        masked = self.mask(text)
        if masked == text:
            return text
        try:
            json.loads(masked)
        except ValueError:
            return json.dumps(self._within(json.loads(text)), separators=(",", ":"), ensure_ascii=False)
        return masked

    def _within(self, item: Any) -> Any:
        if isinstance(item, dict):
            return {self.mask(key): self._within(below) for key, below in item.items()}
        if isinstance(item, list):
            return [self._within(below) for below in item]
        if isinstance(item, str):
            return self.mask(item)
        said = json.dumps(item)
        masked = self.mask(said)
        return item if masked == said else masked

    @property
    def forms(self) -> list[tuple[str, str]]:
        """What to look for, the longest first because a value may contain another; and whose it is."""
        if self._forms is None:
            found = {form: name for name, value in self._values.items() for form in _forms_of(value)}
            self._forms = sorted(found.items(), key=lambda each: len(each[0]), reverse=True)
        return self._forms

    def _mask(self, text: str) -> str:
        # What is put in is not looked through again: a value may be a word of what stands for another.
        for place, (form, _) in enumerate(self.forms):
            if form in text:
                text = text.replace(form, _held(place))
        return text

    def _shown(self, text: str) -> str:
        if _HELD not in text:
            return text
        parts = text.split(_HELD)
        parts[1::2] = [f"[secret {self.forms[ord(each) - _FIRST][1]}]" for each in parts[1::2]]
        return "".join(parts)

    def _without_end(self, text: str) -> str:
        """Leave out what may be the beginning of a value at the end of a text, which was cut there.

        Whatever it is: if only that were hidden which is the beginning of a value, a guess could be held against it.
        """
        if not self.forms:
            return text
        whole = text.removesuffix("…")
        longest = len(self.forms[0][0])
        # What a value was found in before has ended there.
        return whole[: max(len(whole) - longest + 1, whole.rfind(_HELD) + 1)] + "…"

    def _without_fragments(self, text: str) -> str:
        """Mask beginnings and ends of long values, wherever they are."""
        for place, (form, _) in enumerate(self.forms):
            if len(form) <= FRAGMENT:
                continue
            for _ in range(MOST_TRIES):
                if (start := text.find(form[:FRAGMENT])) >= 0:
                    length = FRAGMENT
                    while length < len(form) and form[: length + 1] == text[start : start + length + 1]:
                        length += 1
                elif (end := text.find(form[-FRAGMENT:])) >= 0:
                    length = FRAGMENT
                    while (
                        length < min(end + FRAGMENT, len(form))
                        and form[-length - 1] == text[end + FRAGMENT - length - 1]
                    ):
                        length += 1
                    start = end + FRAGMENT - length
                else:
                    break
                text = text[:start] + _held(place) + text[start + length :]
        return text


def _held(place: int) -> str:
    return f"{_HELD}{chr(_FIRST + place)}{_HELD}"


def _forms_of(value: str) -> set[str]:
    """A value as it may be found: as it is, line by line, and as JSON, Python, URLs, HTML and shells write it."""
    lines = [stripped for line in value.splitlines() if len(stripped := line.strip()) >= SHORTEST_LINE]
    forms = set()
    for part in (value, value.strip(), *lines[:MOST_LINES]):
        if len(part) >= SHORTEST_HIDDEN:
            forms |= {part, quote(part, safe=""), quote_plus(part), repr(part)[1:-1]}
            forms |= {json.dumps(part, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)}
            forms |= {html.escape(part), html.escape(part, quote=False), part.replace("'", "'\\''")}
            # As many servers read headers, which are sent in UTF-8.
            forms.add(part.encode().decode("latin-1"))
    return forms
