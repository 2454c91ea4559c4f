"""The manual as tests see it: Markdown cut into blocks, and its commands run as a reader would type them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted(
        path
        for folder in ("guide", "reference", "operations")
        for path in (ROOT / "docs" / folder).glob("*.md")
    ),
]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w.]+\.(?:py|toml|ndjson))\b")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that the reader should save it as, named in a comment at its top."""
        match = _FILE.match(self.text)
        return None if match is None else match[1]


@dataclass(frozen=True, slots=True)
class Step:
    """A command and what the page says that it prints."""

    command: str
    expected: list[str]


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that was run."""

    command: str
    code: int
    output: str


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = [Block(match[1], match[2]) for match in _FENCE.finditer(page.read_text(encoding="utf-8"))]
    return [block for block in found if language in (None, block.language)]


def steps(page: Path) -> list[Step]:
    """The commands of a page's console blocks, each with the output below it."""
    found: list[Step] = []
    for block in blocks(page, "console"):
        is_open = False
        for line in block.text.splitlines():
            if is_open:
                found[-1] = Step(f"{found[-1].command}\n{line}", [])
            elif line.startswith("$ "):
                found.append(Step(line.removeprefix("$ "), []))
            else:
                found[-1].expected.append(line)
                continue
            is_open = line.endswith("\\")
    return found


def save_files(page: Path, folder: Path, swaps: Mapping[str, str]) -> None:
    """Save the blocks that are files."""
    for block in blocks(page):
        if block.file is not None:
            (folder / block.file).write_text(swapped(block.text, swaps), encoding="utf-8")


def follow(page: Path, folder: Path, environ: Mapping[str, str], swaps: Mapping[str, str]) -> list[str]:
    """Run every command of a page, in order, and return what was not as the page says.

    `swaps` are texts of the page that are others here: ports, files. An id in a command is the one that was printed
    here where the page shows that id being printed.
    """
    known = dict(swaps)
    wrong: list[str] = []
    for step in steps(page):
        ran = run(swapped(step.command, known), folder, environ)
        expected = [swapped(line, known) for line in step.expected]
        is_exact = "--after" in step.command
        if ran.code != 0:
            wrong.append(f"$ {ran.command}\nexit {ran.code}\n{ran.output}")
        elif (what := difference(expected, ran.output, is_exact=is_exact)) is not None:
            wrong.append(f"$ {ran.command}\n{what}\n{ran.output}")
        shown = [_EXECUTION.findall(text) for text in ("\n".join(step.expected), ran.output)]
        known.update(zip(*shown, strict=False))
    return wrong


def swapped(text: str, swaps: Mapping[str, str]) -> str:
    """The text with each of its swaps made, in one go."""
    if not swaps:
        return text
    return re.sub("|".join(map(re.escape, swaps)), lambda found: swaps[found[0]], text)


def run(command: str, folder: Path, environ: Mapping[str, str], *, within: float = 60) -> Ran:
    """Run a command as a terminal would; what it prints comes in order."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within,
        check=False,
    )
    return Ran(command, done.returncode, done.stdout)


def difference(expected: list[str], output: str, *, is_exact: bool = False) -> str | None:
    """Say which line of a page is not what was printed; None where all of them are.

    Ids, times and lengths of time count as equal, and so does which change of the clocks comes next. `…` in a line stands
    for anything, `…` alone for any lines. With `is_exact` moments count too, where a page shows the same ones for ever.
    """
    actual = [_plain(line, is_exact=is_exact) for line in output.splitlines() if line.strip()]
    is_partial = False
    place = 0
    for line in expected:
        if line.strip() == "…":
            is_partial = True
            continue
        if not line.strip():
            continue
        wanted = re.compile(
            ".*?".join(re.escape(part) for part in _plain(line, is_exact=is_exact).split("…"))
        )
        if not is_partial and not any(wanted.fullmatch(each) for each in actual[place : place + 1]):
            return f"{line!r} is not {actual[place : place + 1]}"
        while place < len(actual) and not wanted.fullmatch(actual[place]):
            place += 1
        if place == len(actual):
            return f"{line!r} was not printed"
        place += 1
        is_partial = False
    if expected and not is_partial and place < len(actual):
        return f"{actual[place]!r} is printed too"
    return None


_EXECUTION = re.compile(r"[0-9a-f]{32}-[smbd]-\d{8}T\d{6,12}Z")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WEEKDAY = re.compile(r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?=\d{4}-)")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d| [+-]\d{4})?")
_CHANGE = re.compile(r"^(?:gap|fold): at MOMENT the clock shows MOMENT")
# All jobs of all pages are counted, and pages are followed side by side.
_COUNTED = re.compile(r"^expected [\d,]+, accounted for [\d,]+(?=, missing)|extra [\d,]+; [\d,]+ jobs$")
# Whoever looks while it runs sees that it runs.
_STATUS = re.compile(r'"status":"(?:running|succeeded)"')
_FOLLOWED = re.compile(r"^(MOMENT) (?:running|succeeded) (\S+ EXECUTION)\b.*")
_SPAN = re.compile(r"\b(?:in )?(?:\d+(?:\.\d+)?(?:d|h|ms|m|us|s))+(?: ago)?\b|\bnow\b")


def _plain(line: str, *, is_exact: bool) -> str:
    """The line without what differs from one run to the next."""
    line = _STATUS.sub("STATUS", _UUID.sub("ID", _EXECUTION.sub("EXECUTION", line)))
    if not is_exact:
        line = _MOMENT.sub("MOMENT", _WEEKDAY.sub("", line))
        line = _COUNTED.sub("COUNTED", _CHANGE.sub("CHANGE", line))
    line = " ".join(_SPAN.sub("SPAN", line).split())
    return _FOLLOWED.sub(r"\1 \2", line)


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """The links of a page to files of this repository: as written, the file, and the part of it."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        yield target, (page.parent / path).resolve() if path else page, anchor


def anchors(page: Path) -> set[str]:
    """The parts of a page that a link can name."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
