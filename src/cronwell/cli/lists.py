"""Lists of jobs and executions: the paging options that they share, and how their rows look."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cronwell.cli import times
from cronwell.cli.screen import Column, Screen, one_line
from cronwell.cli.sources import usage

if TYPE_CHECKING:
    from cronwell.cli.client import Client, Found, Query

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Show so many at most.")]
All = Annotated[bool, typer.Option("--all", help="Show all of them.")]
After = Annotated[
    str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on where an earlier list ended.")
]
From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help='Slots from this time on, e.g. "2h" (ago) or "2027-05-05 10:00".'
    ),
]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Slots up to this time.")]
Text = Annotated[
    str | None, typer.Option("--text", metavar="TEXT", help="With this text in output or error.")
]

Row = Callable[[Screen, dict[str, Any]], Sequence[object]]

JOB_COLUMNS = (
    Column("NAME"),
    Column("STATE"),
    Column("SCHEDULE", rank=2),
    Column("NEXT", rank=1),
    Column("TARGET", rank=3),
    Column("POOL", rank=4),
    Column("ID", rank=5),
)
EXECUTION_COLUMNS = (
    Column("ID"),
    Column("STATE"),
    Column("JOB", rank=2),
    Column("SLOT", rank=1),
    Column("TRY", rank=4, is_number=True),
    Column("LATE", rank=5, is_number=True),
    Column("TOOK", rank=5, is_number=True),
    Column("WHY", rank=3, is_prose=True),
)


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a list is wanted."""

    limit: int
    is_all: bool
    cursor: str | None


def show_list(
    client: Client, screen: Screen, path: str, query: Query, part: Part, columns: Sequence[Column], row: Row
) -> None:
    """Read a list and write it, and say how to get the rest."""
    pages = client.find(path, query, limit=None if part.is_all else part.limit, cursor=part.cursor)
    if screen.as_json:
        _write_json(pages)
        return
    following: str | None = None
    rows: list[Sequence[object]] = []
    for page in pages:
        following = page.next_cursor
        rows.extend(row(screen, item) for item in page.items)
    if rows:
        screen.table(columns, rows)
    else:
        screen.remark("none found")
    if following is not None:
        screen.remark(f"there are more: use --all, --limit, or --cursor {following}")


def _write_json(pages: Iterable[Found]) -> None:
    """Write a list as it comes: with --all it may be longer than memory."""
    separator = '{"items": [\n'
    following: str | None = None
    for page in pages:
        following = page.next_cursor
        for item in page.items:
            print(separator + textwrap.indent(json.dumps(item, indent=2, ensure_ascii=False), "  "), end="")
            separator = ",\n"
    opening = '{"items": [' if separator.startswith("{") else "\n"
    print(f'{opening}], "next_cursor": {json.dumps(following)}}}')


def job_row(screen: Screen, job: dict[str, Any]) -> Sequence[object]:
    return (
        job["name"],
        job["state"],
        one_line(schedule_text(job), 40),
        screen.moment(job.get("next_fire_at")),
        one_line(target_text(job.get("target")), 50),
        job.get("pool"),
        job["id"],
    )


def execution_row(screen: Screen, execution: dict[str, Any]) -> Sequence[object]:
    late = execution.get("lateness_ms")
    return (
        execution["id"],
        execution["state"],
        execution.get("job"),
        screen.moment(execution["slot"]),
        execution["attempt"],
        None if late is None else times.elapsed(late),
        took(execution),
        why(execution),
    )


def execution_rows(screen: Screen, executions: Iterable[dict[str, Any]]) -> list[Sequence[object]]:
    return [execution_row(screen, each) for each in executions]


def took(execution: dict[str, Any]) -> str | None:
    """How long the latest attempt ran."""
    started, finished = execution.get("started_at"), execution.get("finished_at")
    if started is None or finished is None:
        return None
    length = times.read_moment(finished) - times.read_moment(started)
    return times.elapsed(length.total_seconds() * 1000)


def why(execution: dict[str, Any]) -> str:
    """What is worth knowing about how it stands: its error, or the reason of its state."""
    return one_line(execution.get("error") or execution.get("reason"), 100)


def schedule_text(job: dict[str, Any]) -> str:
    """A schedule as its user wrote it, with its zone."""
    schedule = job.get("schedule")
    zone = job.get("timezone")
    if schedule is None:
        return after_text(job.get("after")) or "(only when triggered)"
    if isinstance(schedule, dict):
        zone = schedule.get("timezone") or zone
        text = _spec_text(schedule) + (f" {zone}" if zone else "")
        for name, words in (("only", "only in"), ("exclude", "not in")):
            if followed := schedule.get(name):
                text += f"; {words} {followed if isinstance(followed, str) else ', '.join(followed)}"
        return text
    return f"{schedule} {zone}" if zone else str(schedule)


def after_text(after: object) -> str | None:
    """What a job follows, in short; None for one that follows none."""
    mode = "any" if isinstance(after, dict) and after.get("any") else "all"
    listed = after.get(mode) if isinstance(after, dict) else after
    if not isinstance(listed, list) or not listed:
        return None
    names = [
        each["job"] if each.get("on", "succeeded") == "succeeded" else f"{each['job']} ({each['on']})"
        for each in listed
    ]
    return f"after {'any of ' if mode == 'any' else ''}{', '.join(names)}"


def _spec_text(spec: object) -> str:
    """What a schedule says of its times, in short."""
    if not isinstance(spec, dict):
        return str(spec)
    if united := spec.get("any"):
        first, *others = [_spec_text(each) for each in united]
        return f"{first} and {len(others)} more" if others else first
    kind = next((each for each in ("cron", "rrule", "every", "at", "in") if spec.get(each)), "")
    text = spec.get(kind, "")
    text = ", ".join(map(str, text)) if isinstance(text, list) else str(text)
    return text if kind in ("cron", "rrule") else f"{kind} {text}"


def target_text(target: object) -> str:
    """What a job calls, in a few words."""
    if isinstance(target, str):
        return f"POST {target}"
    if not isinstance(target, dict):
        return "-"
    if http := target.get("http"):
        return f"{http.get('method', 'POST')} {http.get('url')}"
    if handler := target.get("handler"):
        return f"handler {handler.get('name')}"
    if shell := target.get("shell"):
        command = shell.get("command")
        return f"shell {command if isinstance(command, str) else ' '.join(map(str, command or ()))}"
    if publish := target.get("publish"):
        where = f"stream {(publish.get('redis') or {}).get('stream')}"
        broker = publish.get("broker", "default")
        return f"publish to {where}" + ("" if broker == "default" else f" of {broker}")
    return "-"


def moment_option(text: str | None, option: str, screen: Screen) -> str | None:
    """A time in the past that was given as an option, as the API takes it."""
    if text is None:
        return None
    try:
        return times.write_moment(times.parse_moment(text, now=screen.now, toward="past"))
    except ValueError as error:
        raise usage(f"{option}: {error}") from None
