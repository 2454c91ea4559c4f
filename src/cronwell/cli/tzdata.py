"""`cronwell tzdata`: what new rules of time zones move, and what is to be done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cronwell.cli import times
from cronwell.cli.failures import ExitCode
from cronwell.cli.paths import job_reference
from cronwell.cli.screen import Column, Screen
from cronwell.cli.session import Json, Yes, session
from cronwell.cli.sources import usage

if TYPE_CHECKING:
    from cronwell.cli.client import Client

COLUMNS = (
    Column("JOB"),
    Column("ZONE", rank=2),
    Column("NEXT SLOT"),
    Column("MOVES TO"),
    Column("BY", rank=3),
    Column("IN ITS ZONE", rank=1),
    Column("STAGED", rank=4, is_number=True),
)
PAGE = 500
AT_ONCE = 100
"""Jobs that one request may name."""

Jobs = Annotated[list[str] | None, typer.Argument(metavar="JOB", help="Only these, by name or id; else all.")]

app = typer.Typer(no_args_is_help=True, help="Rules of time zones: what new ones move, apply them or hold.")


@app.command()
def impact(
    context: typer.Context,
    is_applied: Annotated[bool, typer.Option("--apply", help="Move what is listed.")] = False,
    is_held: Annotated[bool, typer.Option("--hold", help="Keep what is listed where it is.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """List the jobs whose next slots move under the time zone rules that the server has installed."""
    if is_applied and is_held:
        raise usage("--apply and --hold contradict each other; write one of them")
    here = session(context)
    screen = here.screen(as_json)
    found = _impact(here.client, screen)
    settled = None
    if found["items"] and (is_applied or is_held):
        if not as_json:
            screen.table(COLUMNS, [_row(screen, each) for each in found["items"]])
        settled = _decide(here.client, screen, "apply" if is_applied else "hold", None, yes=yes)
    if as_json:
        screen.json(found if settled is None else found | {"settled": settled})
    elif settled is not None:
        screen.line(_told(settled))
    elif not found["items"]:
        screen.remark(f"nothing moves under tzdata {found['tzdata']}")
    else:
        screen.table(COLUMNS, [_row(screen, each) for each in found["items"]])
        screen.remark(
            f"{found['moved']} of {found['stale']} jobs that were planned by other rules move under tzdata"
            f" {found['tzdata']}; move them with `cronwell tzdata apply`, or keep each next slot with"
            " `cronwell tzdata hold`"
        )


@app.command()
def apply(context: typer.Context, jobs: Jobs = None, yes: Yes = False, as_json: Json = False) -> None:
    """Move next slots to where the rules installed have them, also those that are staged already."""
    _settle(context, "apply", jobs, yes=yes, as_json=as_json)


@app.command()
def hold(context: typer.Context, jobs: Jobs = None, yes: Yes = False, as_json: Json = False) -> None:
    """Keep next slots where they are; the slots after them follow the rules installed."""
    _settle(context, "hold", jobs, yes=yes, as_json=as_json)


def _settle(
    context: typer.Context,
    action: Literal["apply", "hold"],
    jobs: list[str] | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    here = session(context)
    screen = here.screen(as_json)
    settled = _decide(here.client, screen, action, jobs, yes=yes)
    if as_json:
        screen.json(settled)
    else:
        screen.line(_told(settled))


def _impact(client: Client, screen: Screen) -> dict[str, Any]:
    """All pages as one answer."""
    found: dict[str, Any] = {"tzdata": "", "setting": "", "stale": 0, "moved": 0, "items": []}
    cursor = None
    with screen.progress(is_measured=False) as progress:
        task = progress.add_task("looking at jobs", total=None)
        while True:
            page = client.get("/v1/tzdata/impact", {"limit": PAGE, "cursor": cursor})
            found |= {"tzdata": page["tzdata"], "setting": page["setting"]}
            for name in ("stale", "moved"):
                found[name] += page[name]
            found["items"] += page["items"]
            progress.update(task, description=f"{found['moved']} of {found['stale']} jobs move")
            cursor = page.get("next_cursor")
            if cursor is None:
                return found


def _decide(
    client: Client, screen: Screen, action: Literal["apply", "hold"], jobs: list[str] | None, *, yes: bool
) -> dict[str, Any]:
    if not jobs and not yes:
        verb = "Move" if action == "apply" else "Hold"
        if not screen.confirm(f"{verb} the next slots of all jobs that new rules of their zones move?"):
            screen.remark("nothing was changed")
            raise typer.Exit(ExitCode.FAILED)
    total = {"action": action, "tzdata": "", "changed": 0, "unchanged": 0}
    references = [job_reference(each) for each in jobs or ()]
    bodies: list[dict[str, Any]] = [
        {"jobs": references[start : start + AT_ONCE]} for start in range(0, len(references), AT_ONCE)
    ] or [{}]
    with screen.progress(is_measured=False) as progress:
        task = progress.add_task("settling", total=None)
        while bodies:
            answer = client.post(f"/v1/tzdata/{action}", bodies.pop(0))
            total["tzdata"] = answer["tzdata"]
            for name in ("changed", "unchanged"):
                total[name] += answer[name]
            progress.update(task, description=f"{total['changed']} settled")
            if answer.get("next_cursor") is not None:
                bodies.append({"cursor": answer["next_cursor"]})
    return total


def _told(settled: dict[str, Any]) -> str:
    done = "moved" if settled["action"] == "apply" else "held"
    return f"{done}: {settled['changed']}, the same under tzdata {settled['tzdata']}: {settled['unchanged']}"


def _row(screen: Screen, shift: dict[str, Any]) -> tuple[object, ...]:
    before = times.read_moment(shift["next_slot"])
    there = shift.get("moves_to")
    by = ""
    if there is not None:
        ahead = times.read_moment(there) - before
        sign = "-" if ahead.total_seconds() < 0 else "+"
        by = sign + times.rounded(abs(ahead))
    return (
        shift["job"],
        shift["timezone"],
        screen.moment(shift["next_slot"]),
        "never again" if there is None else times.local(times.read_moment(there)),
        by,
        shift.get("moves_to_local") or "",
        shift["staged"] or "",
    )
