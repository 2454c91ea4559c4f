"""How a command ends: the exit codes that scripts rely on, and the failures that carry one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "the request was refused or failed; the reason is on stderr",
    ExitCode.USAGE: "wrong options, or a wrong setting",
    ExitCode.NOT_FOUND: "there is no such job or execution",
    ExitCode.CONFLICT: "it conflicts with the present state: name taken, changed meanwhile, wrong state",
    ExitCode.UNREACHABLE: "no server answered",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C",
}

_BY_STATUS = {404: ExitCode.NOT_FOUND, 409: ExitCode.CONFLICT, 412: ExitCode.CONFLICT}


class Failure(Exception):
    """The command cannot do what was asked; the message tells the user what to do next."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code

    def document(self) -> dict[str, Any]:
        """The failure for programs, as `--json` writes it to stderr."""
        return {"title": str(self), "exit_code": int(self.code)}


class Unreachable(Failure):
    """No server answered at the address."""

    def __init__(self, address: str, reason: str, *, is_sent: bool = False) -> None:
        self.is_sent = is_sent
        """Whether the request may have reached the server, and may have changed something there."""
        if is_sent:
            reason += "; whether the change was made is not known"
        super().__init__(
            f"no Cronwell answers at {address}: {reason}\n"
            "Start one with `cronwell up`, or name another with --url or CRONWELL_URL.",
            ExitCode.UNREACHABLE,
        )


class Refused(Failure):
    """The server answered with a problem document (RFC 9457)."""

    def __init__(self, status: int, problem: Mapping[str, Any], sent: object = None) -> None:
        super().__init__(explain(problem, sent), _BY_STATUS.get(status, ExitCode.FAILED))
        self.status = status
        self.problem = dict(problem)

    def document(self) -> dict[str, Any]:
        return self.problem | {"exit_code": int(self.code)}


def explain(problem: Mapping[str, Any], sent: object = None) -> str:
    """Say what a problem document says: its title, its detail, and each wrong field.

    `sent` is the body that was refused: where a field's error has a column, the field's text is shown with a caret
    under that column.
    """
    title = str(problem.get("title") or "The request failed")
    wrong = [each for each in problem.get("errors") or () if isinstance(each, Mapping)]
    lines = [title]
    for each in wrong:
        message, accepted = str(each.get("message", "is not valid")), each.get("accepted")
        advice = f" (accepted: {accepted})" if accepted and str(accepted) not in message else ""
        lines.append(f"  {each.get('field', 'body')}: {message}{advice}")
        lines.extend(_pointed_at(sent, str(each.get("field", "")), each.get("column")))
    detail = problem.get("detail")
    # The detail of a document with fields is the same sentences in one line.
    if detail and not wrong and str(detail) != title:
        lines[0] = f"{title}: {detail}"
    return "\n".join(lines)


def _pointed_at(sent: object, field: str, column: object) -> list[str]:
    text = _text_at(sent, field)
    if text is None or not isinstance(column, int) or not 1 <= column <= len(text) + 1:
        return []
    # A tab or a line end would push the caret off its place.
    shown = "".join(ch if ch.isprintable() else " " for ch in text)
    return [f"      {shown}", f"      {' ' * (column - 1)}^"]


def _text_at(sent: object, field: str) -> str | None:
    found = sent
    for name in field.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else None
