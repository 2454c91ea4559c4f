"""What a command writes: tables and lines for people, JSON for programs; data on stdout, remarks on stderr."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cronwell.cli import times

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

GAP = 2
# Wide enough for any row: a pipe has no edge to wrap at.
_ENDLESS = 100_000
_NARROWEST = 16

STYLES = {
    "succeeded": "green",
    "active": "green",
    "running": "cyan",
    "retrying": "yellow",
    "paused": "yellow",
    "draining": "yellow",
    "failed": "bold red",
    "lost": "bold red",
    "timed_out": "red",
    "worker_lost": "red",
    "cancelled": "magenta",
    "skipped": "dim",
    "finished": "dim",
    "deleted": "dim",
    "owned": "green",
    "unowned": "bold red",
    "stopped": "dim",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Where the terminal is narrow, the highest `rank` is left out first, and rank 0 never."""

    title: str
    rank: int = 0
    is_number: bool = False
    is_prose: bool = False
    """Whether the text may be wrapped instead of leaving the column out."""


class Screen:
    """The two output streams of one command."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.now = datetime.now(UTC)

    @cached_property
    def out(self) -> Console:
        return _console(is_error=False)

    @cached_property
    def err(self) -> Console:
        return _console(is_error=True)

    @property
    def is_interactive(self) -> bool:
        """Whether a person can be asked."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def json(self, value: object) -> None:
        """Write one JSON document."""
        print(json.dumps(value, indent=2, ensure_ascii=False))

    def answer(self, value: object, sentence: str) -> None:
        """Write what was answered for a program, and a sentence on it for people."""
        if self.as_json:
            self.json(value)
        else:
            self.line(sentence)

    def json_line(self, value: object) -> None:
        """Write one line of NDJSON, at once: somebody may be waiting for it."""
        print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), flush=True)

    def line(self, text: str = "", *, style: str | None = None) -> None:
        """Write a line of data."""
        self.out.print(clean(text), style=style, soft_wrap=True, markup=False)

    def remark(self, text: str, *, style: str | None = None) -> None:
        """Write what is not data: where to find more, what happened meanwhile."""
        self.err.print(clean(text), style=style, soft_wrap=True, markup=False)

    def confirm(self, question: str) -> bool:
        """Ask, unless nobody is there to answer: a script that runs the command means it."""
        if not self.is_interactive:
            return True
        print(f"{clean(question)} [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def moment(self, text: str | None) -> str:
        """A time of the API in local form, with how long ago or in how long."""
        if text is None:
            return "-"
        at = times.read_moment(text)
        return f"{times.local(at)} ({times.distance(at, self.now)})"

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        """Write rows below titles, lined up. A cell that is a known state gets its colour."""
        from rich.table import Table
        from rich.text import Text

        cells = [[clean(_cell(value)) for value in row] for row in rows]
        kept = self._fitting(columns, cells)
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for place in kept:
            column = columns[place]
            table.add_column(
                column.title,
                justify="right" if column.is_number else "left",
                # Where nothing can be left out any more, a long text is folded: an id stays whole.
                overflow="fold",
            )
        for row in cells:
            table.add_row(*(Text(row[place], style=STYLES.get(row[place], "")) for place in kept))
        self._write(table)

    def fields(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Write names and values below each other; a name without a value is left out."""
        from rich.table import Table
        from rich.text import Text

        shown = [(name, clean(_cell(value))) for name, value in pairs if value not in (None, "", [], {})]
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in shown:
            table.add_row(name, Text(text, style=STYLES.get(text, "")))
        self._write(table)

    def progress(self, *, is_measured: bool) -> Progress:
        """A bar on stderr for long work; nothing at all where stderr is no terminal."""
        from rich import progress

        columns: list[progress.ProgressColumn] = [progress.TextColumn("{task.description}")]
        if is_measured:
            columns += [progress.BarColumn(), progress.TaskProgressColumn(), progress.TimeRemainingColumn()]
        else:
            columns += [progress.SpinnerColumn(), progress.TimeElapsedColumn()]
        return progress.Progress(*columns, console=self.err, transient=True, disable=not self.err.is_terminal)

    def _write(self, table: Table) -> None:
        if self.out.is_terminal:
            self.out.print(table)
            return
        with self.out.capture() as written:
            self.out.print(table)
        # Nobody wants the padding of the last column in a pipe.
        for line in written.get().splitlines():
            print(line.rstrip())

    def _fitting(self, columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> list[int]:
        """The columns that say something and have room side by side."""
        from rich.cells import cell_len

        widths = []
        for place, column in enumerate(columns):
            longest = max((cell_len(line) for row in cells for line in row[place].split("\n")), default=0)
            width = max(longest, cell_len(column.title))
            widths.append(min(width, 3 * _NARROWEST) if column.is_prose else width)
        kept = [
            place
            for place, column in enumerate(columns)
            if column.rank == 0 or any(row[place] for row in cells)
        ]
        while sum(widths[place] + GAP for place in kept) > self.out.width + GAP:
            worst = max(kept, key=lambda place: (columns[place].rank, place))
            if columns[worst].rank == 0:
                break
            kept.remove(worst)
        return kept


def clean(text: str) -> str:
    """Make text harmless to show: a target's output or a job's note cannot command the terminal."""
    if text.isprintable():
        return text
    return "".join(ch if ch in "\n\t" or not _is_control(ch) else f"<{ord(ch):02X}>" for ch in text)


def one_line(text: str | None, longest: int = 80) -> str:
    """The first line of a text, cut where it is long."""
    line = (text or "").strip().split("\n", 1)[0].strip()
    return line if len(line) <= longest else line[: longest - 1] + "…"


def compact(value: Any) -> str:
    """JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _is_control(ch: str) -> bool:
    # Cc: escape sequences. Cf: marks that reverse the reading order. Cs, Co: nothing that could be shown.
    return unicodedata.category(ch) in ("Cc", "Cf", "Cs", "Co")


def _console(*, is_error: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if is_error else sys.stdout
    width = None if stream.isatty() else _ENDLESS
    return Console(stderr=is_error, highlight=False, emoji=False, width=width)
