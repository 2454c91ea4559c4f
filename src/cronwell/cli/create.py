"""`cronwell job create`: one job from options or a file, or many from a file with one job per line."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from cronwell.cli.definitions import JobOptions, takes_job_options
from cronwell.cli.failures import ExitCode, Failure, Unreachable, explain
from cronwell.cli.lists import after_text
from cronwell.cli.screen import Screen
from cronwell.cli.session import Json, session
from cronwell.cli.sources import check_key, usage

if TYPE_CHECKING:
    from cronwell.cli.client import Client

# One request carries so many jobs: the server inserts a thousand in one transaction, and what was acknowledged is
# known to a thousand lines when the connection breaks.
BATCH_LINES = 1000
BATCH_BYTES = 8 * 1024 * 1024
SHOWN_ERRORS = 50


@takes_job_options
def create(
    options: JobOptions,
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The job's name; not needed with a file.")
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch", metavar="FILE|-", help="Create many jobs: a file with one JSON definition per line."
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The same key creates the job once, however often it is sent."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a job, or many with --batch.

    cronwell job create daily-report --schedule "0 3 * * *" --zone Europe/Berlin --http https://example.com/run
    """
    here = session(context)
    screen = here.screen(as_json)
    if batch is not None:
        if name is not None or not options.is_empty:
            raise usage("--batch takes each job from its line; give no name and no other option with it")
        create_many(here.client, screen, batch)
        return
    definition = options.definition(name)
    if not definition.get("name"):
        raise usage("give the job a name: cronwell job create NAME …")
    if not definition.get("target"):
        raise usage("say what the job calls: --http URL, --handler NAME, --shell COMMAND or --stream STREAM")
    job = here.client.post("/v1/jobs", definition, key=check_key(idempotency_key or str(uuid4())))
    if as_json:
        screen.json(job)
        return
    screen.line(f"created {job['name']} ({job['id']})")
    if job.get("next_fire_at"):
        screen.line(f"fires next at {screen.moment(job['next_fire_at'])}")
    elif follows := after_text(job.get("after")):
        screen.line(f"it runs {follows}")
    else:
        screen.line(f"it has no schedule; run it with: cronwell job trigger {job['name']}")
    warn(screen, job)


def warn(screen: Screen, answer: dict[str, Any]) -> None:
    """Pass on what the server found remarkable, and what the clock's next changes do to the schedule."""
    for change in answer.get("clock_changes") or ():
        screen.remark(
            f"{change['kind']}: at {change['local_before']} the clock shows {change['local_after']}; "
            f"{change['effect']}"
        )
    told = [change["effect"] for change in answer.get("clock_changes") or ()]
    for warning in answer.get("warnings") or ():
        if any(warning in effect for effect in told):
            continue
        screen.remark(f"warning: {warning}", style="yellow")


@dataclass(slots=True)
class Tally:
    """How a batch fares."""

    created: int = 0
    failed: int = 0
    errors: list[str] = field(default_factory=list)
    """The first of the failures."""


def create_many(client: Client, screen: Screen, path: str) -> None:
    """Send every line of a file; each job is accepted or refused on its own."""
    tally = Tally()
    begun = time.monotonic()
    with ExitStack() as stack:
        lines, total = _opened(stack, path)
        progress = stack.enter_context(screen.progress(is_measured=total is not None))
        task = progress.add_task("creating jobs", total=total)
        for chunk in _chunks(lines):
            try:
                _send(client, screen, chunk, tally)
            except Unreachable as lost:
                raise _broken_off(lost, chunk, tally) from None
            progress.update(
                task,
                advance=sum(len(line) for _, line in chunk),
                description=f"{tally.created} created, {tally.failed} refused",
            )
    for error in tally.errors:
        screen.remark(error)
    if tally.failed > len(tally.errors):
        screen.remark(
            f"… and {tally.failed - len(tally.errors)} more; --json writes the result of every line"
        )
    seconds = time.monotonic() - begun
    summary = f"created {tally.created} of {tally.created + tally.failed} jobs in {seconds:.1f} s"
    if screen.as_json:
        screen.remark(summary)
    else:
        screen.line(summary)
    if tally.failed:
        raise typer.Exit(ExitCode.FAILED)


def _opened(stack: ExitStack, path: str) -> tuple[IO[bytes], int | None]:
    """The file and how many bytes it has, where that is known."""
    if path == "-":
        return sys.stdin.buffer, None
    try:
        file = stack.enter_context(Path(path).open("rb"))  # noqa: SIM115 - the stack closes it
    except OSError as error:
        raise usage(f"--batch: cannot read {path}: {error.strerror}") from None
    size = os.fstat(file.fileno()).st_size
    return file, size or None


def _chunks(lines: Iterable[bytes]) -> Iterator[list[tuple[int, bytes]]]:
    """Numbered lines that are not blank, in parts of a size that one request may have."""
    chunk: list[tuple[int, bytes]] = []
    size = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if chunk and (len(chunk) == BATCH_LINES or size + len(line) > BATCH_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append((number, line if line.endswith(b"\n") else line + b"\n"))
        size += len(line)
    if chunk:
        yield chunk


def _send(client: Client, screen: Screen, chunk: list[tuple[int, bytes]], tally: Tally) -> None:
    results = client.stream("/v1/jobs:batch", b"".join(line for _, line in chunk))
    answered = 0
    # The results come in the order of the jobs.
    for (number, line), result in zip(chunk, results, strict=False):
        answered += 1
        problem = result.get("problem")
        if screen.as_json:
            screen.json_line({**result, "line": number})
        if problem is None:
            tally.created += 1
            continue
        tally.failed += 1
        if not screen.as_json and len(tally.errors) < SHOWN_ERRORS:
            tally.errors.append(f"line {number}: {explain(problem, _parsed(line))}")
    if answered < len(chunk):
        first, last = chunk[answered][0], chunk[-1][0]
        raise Failure(
            f"the server gave no result for lines {first} to {last}; {tally.created} jobs were created"
        )


def _broken_off(lost: Unreachable, chunk: list[tuple[int, bytes]], tally: Tally) -> Failure:
    first, last = chunk[0][0], chunk[-1][0]
    if not lost.is_sent:
        return Failure(
            f"{lost}\nBefore that, {tally.created} jobs were created: up to line {first - 1}.", lost.code
        )
    return Failure(
        f"{lost}\nBefore that, {tally.created} jobs were created. Lines {first} to {last} may or may not have been; "
        f"send the file from line {first} again: a job that exists is refused, not made twice.",
        lost.code,
    )


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
