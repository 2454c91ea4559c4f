"""Run the same work by Cronwell and by its peers, one after the other, and print Cronwell's multiple of each.

python -m bench.peers.run [--quick] [--peers NAME,...] [--work NAME,...] [--size FIELD=N ...] [--output FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.peers import catalogue
from bench.peers.catalogue import Peer
from bench.peers.course import Course
from bench.peers.figures import middle_of
from bench.peers.ground import PostgresServer, postgres
from bench.peers.own import CONFIGURATION, Own
from bench.peers.protocol import WORKS, Task
from bench.peers.table import OWN, Entry, report_of, table_of
from bench.peers.toolchains import NotReady, ready
from cronwell import errors
from cronwell.bench.keeping import check_file

CACHE = Path(__file__).parents[1] / "results" / "peers"
SIZES = {"jobs": 50_000, "rate": 500, "seconds": 20, "schedules": 1000, "limit": 100_000}
QUICK = {"jobs": 1000, "rate": 50, "seconds": 3, "schedules": 50, "limit": 5000}
ROUNDS = 3
SHORT_SECONDS = 15
"""A drain that takes no longer is run in several rounds: in two seconds a machine that others share says little."""
TITLES = {
    "drain": "drain: {jobs:,} jobs that do nothing, enqueued beforehand",
    "steady": "steady: {rate:,} jobs due each second for {seconds} s",
    "recurring": "recurring: {schedules:,} schedules, every second for {seconds} s",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options, run, print, and write the report."""
    options = _options(arguments)
    sizes = _sizes(options.size, is_quick=options.quick)
    chosen = _chosen(options.peers, [peer.name for peer in catalogue.peers()])
    works = _chosen(options.work, WORKS)
    if not chosen and not options.own:
        raise SystemExit(
            "--peers none --no-own: there is nobody left to run; name a peer, or leave out --no-own"
        )
    if options.output is not None:
        # Before the builds: afterwards an hour would be lost.
        try:
            check_file(options.output)
        except errors.ConfigError as error:
            raise SystemExit(str(error)) from None
    found: dict[str, list[Entry]] = {work: [] for work in works}
    console = Console(width=None if sys.stdout.isatty() else 140)
    try:
        asyncio.run(_until_told(lambda: _run(options, sizes, chosen, found, console)))
    except (asyncio.CancelledError, KeyboardInterrupt) as stop:
        print(_farewell(found, options.output), file=sys.stderr)
        number = signal.SIGINT if isinstance(stop, KeyboardInterrupt) else signal.SIGTERM
        raise SystemExit(128 + number) from None


def _farewell(found: dict[str, list[Entry]], output: Path | None) -> str:
    """What one who stops it wants to know: what is left of it."""
    if output is None or not any(found.values()):
        return "stopped; nothing is kept"
    return f"stopped; what had been run is in {output}"


async def _until_told(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Let SIGTERM end it as Ctrl-C does: else what was started would go on without us."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: task.cancelling() or task.cancel())
    await run()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers.run", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument(
        "--peers", default="all", help="names, by commas; `all`, or `none` for Cronwell alone"
    )
    parser.add_argument("--work", default="all", help=f"of {', '.join(WORKS)}, by commas")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small sizes and one round, which take seconds: to see that it works",
    )
    parser.add_argument(
        "--size", action="append", default=[], metavar="FIELD=N",
        help=f"another size of one of {', '.join(f'{name} ({size:,})' for name, size in SIZES.items())} (repeatable)",
    )  # fmt: skip
    parser.add_argument(
        "--cores", type=_at_least_one, default=os.cpu_count() or 1, help="worker processes or threads of each"
    )
    parser.add_argument(
        "--patience", type=_above_zero, default=180, help="seconds after which a drain is stopped"
    )
    parser.add_argument(
        "--rounds",
        type=_at_least_one,
        help=f"how often drains that are soon over are run ({ROUNDS}); the middle one counts",
    )
    parser.add_argument(
        "--own", action=argparse.BooleanOptionalAction, default=True, help="whether Cronwell runs too"
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the peers are built")
    parser.add_argument("--output", type=Path, help="write the report as JSON to this file")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    return options


def _at_least_one(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"write a whole number from 1 on, not {text!r}")
    return int(text)


def _above_zero(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"write a number of seconds above 0, not {text!r}")
    return seconds


def _sizes(changes: Sequence[str], *, is_quick: bool) -> dict[str, int]:
    sizes = dict(QUICK if is_quick else SIZES)
    for change in changes:
        name, is_given, value = change.partition("=")
        if not is_given or name not in sizes:
            raise SystemExit(f"--size {change}: write FIELD=N, with FIELD of {', '.join(SIZES)}")
        try:
            sizes[name] = _at_least_one(value)
        except argparse.ArgumentTypeError as error:
            raise SystemExit(f"--size {change}: {error}") from None
    return sizes


def _chosen(named: str, known: Sequence[str]) -> list[str]:
    if named in ("all", "none"):
        return list(known) if named == "all" else []
    names = [name.strip() for name in named.split(",")]
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no {unknown[0]!r}; there are {', '.join(known)}")
    return [name for name in known if name in names]


def task_of(work: str, sizes: dict[str, int], cores: int) -> Task:
    """One kind of work in its size."""
    if work == "drain":
        return Task(work, jobs=sizes["jobs"], cores=cores)
    seconds = sizes["seconds"]
    if work == "steady":
        return Task(work, jobs=sizes["rate"] * seconds, rate=sizes["rate"], seconds=seconds, cores=cores)
    return Task(work, schedules=sizes["schedules"], seconds=seconds, cores=cores)


Stage = Callable[[str], Callable[[int, int], None]]


@dataclass(frozen=True, slots=True, eq=False)
class Entrant:
    """One of those who are compared."""

    who: str
    run: Callable[[Task], Awaitable[Entry]]


async def _run(
    options: argparse.Namespace,
    sizes: dict[str, int],
    chosen: Sequence[str],
    found: dict[str, list[Entry]],
    console: Console,
) -> None:
    """Run every work of `found`, which gets what is known of it so far."""
    tasks = {work: task_of(work, sizes, options.cores) for work in found}
    columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:

        def stage(title: str) -> Callable[[int, int], None]:
            bar = bars.add_task(title, total=None)
            return lambda done, total: bars.update(bar, completed=done, total=total)

        commands = await _build(chosen, options.cache.absolute(), stage)
        async with postgres() as server:
            own = Own(server)
            progress = stage("the limit of the bare statements")
            facts, limit = await own.survey(sizes["limit"])
            progress(1, 1)
            facts["sizes"] = {**sizes, "cores": options.cores, "rounds": options.rounds}
            entrants = [
                _peer(peer, commands, server, options, stage)
                for peer in catalogue.peers()
                if peer.name in chosen
            ]
            if options.own:
                entrants.insert(0, Entrant(OWN, lambda task: _own(own, task, str(facts["version"]), stage)))
            for work, task in tasks.items():
                async for entries in compare(task, entrants, options.rounds):
                    found[work] = entries
                    # After each, so that nothing is lost where the next one never ends.
                    _write(options.output, report_of(facts, limit, tasks, found))
                if work == "drain" and options.own:
                    note = await own.note(task, stage(f"{work}: {OWN}, jobs that run once"))
                    found[work][0] = _noted(found[work][0], note)
    for work, entries in found.items():
        console.print(table_of(work, TITLES[work].format(**sizes), entries))
    console.print(
        f"on {facts['machine']}; limit of the bare statements {limit:,.0f}/s; PostgreSQL "
        + ", ".join(f"{name} {value}" for name, value in facts["postgresql"].items())
    )
    _write(options.output, report_of(facts, limit, tasks, found))


async def compare(task: Task, entrants: Sequence[Entrant], rounds: int) -> AsyncIterator[list[Entry]]:
    """What is known of everybody so far, after each that has run.

    Drains that are soon over are run in several rounds, by turns forth and back, so that a machine that becomes slower or
    faster meanwhile favours nobody.
    """
    runs: dict[Entrant, list[Entry]] = {}
    for number in range(rounds if task.work == "drain" else 1):
        again = entrants if not number else [each for each in entrants if _is_soon_over(task, runs[each][0])]
        for entrant in reversed(again) if number % 2 else again:
            runs.setdefault(entrant, []).append(await entrant.run(task))
            yield [_merged(runs[each]) for each in entrants if each in runs]


def _is_soon_over(task: Task, entry: Entry) -> bool:
    found = entry.figures
    return bool(
        found and not found.missed and found.per_second and task.jobs / found.per_second < SHORT_SECONDS
    )


def _merged(entries: Sequence[Entry]) -> Entry:
    """One entry of several runs: the middle one of those that came to an end."""
    figures = [entry.figures for entry in entries if entry.figures is not None]
    return dataclasses.replace(entries[0], figures=middle_of(figures)) if figures else entries[0]


def _noted(entry: Entry, note: str) -> Entry:
    assert entry.figures is not None
    return dataclasses.replace(entry, figures=dataclasses.replace(entry.figures, note=note))


async def _own(own: Own, task: Task, version: str, stage: Stage) -> Entry:
    timed, figures = await own.run(task, stage(f"{task.work}: {OWN}"))
    return Entry(OWN, version, figures, task=timed, configuration=CONFIGURATION)


def _peer(
    peer: Peer,
    commands: dict[str, list[str] | NotReady],
    server: PostgresServer,
    options: argparse.Namespace,
    stage: Stage,
) -> Entrant:
    return Entrant(peer.title, lambda task: _entry(peer, task, commands[peer.name], server, options, stage))


def _write(output: Path | None, report: dict[str, Any]) -> None:
    if output is not None:
        output.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


async def _build(chosen: Sequence[str], cache: Path, stage: Stage) -> dict[str, list[str] | NotReady]:
    """Each peer's command, or why it has none: before anything is measured, because builds take the whole machine."""
    commands: dict[str, list[str] | NotReady] = {}
    for peer in catalogue.peers():
        if peer.name in chosen:
            progress = stage(f"build {peer.title}")
            try:
                commands[peer.name] = ready(peer, cache)
            except NotReady as error:
                commands[peer.name] = error
            progress(1, 1)
            # Whoever was told to stop builds no further.
            await asyncio.sleep(0)
    return commands


async def _entry(
    peer: Peer,
    task: Task,
    command: list[str] | NotReady,
    server: PostgresServer,
    options: argparse.Namespace,
    stage: Stage,
) -> Entry:
    if isinstance(command, NotReady):
        return Entry(peer.title, peer.version, None, str(command))
    if not peer.can(task.work):
        return Entry(peer.title, peer.version, None, "has no such thing")
    place = options.cache.absolute() / peer.name
    course = Course(peer, command, server, place / f"{task.work}.log", patience=options.patience)
    try:
        timed, figures = await course.run(task, stage(f"{task.work}: {peer.title}"))
    except (NotReady, ValueError, OSError, asyncpg.PostgresError) as error:
        # One that fails does not keep the others from running.
        why = str(error) or type(error).__name__
        return Entry(peer.title, peer.version, None, why, configuration=peer.configuration(task.work))
    return Entry(peer.title, peer.version, figures, task=timed, configuration=peer.configuration(task.work))


if __name__ == "__main__":
    main()
