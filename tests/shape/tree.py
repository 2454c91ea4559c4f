"""The files that the shape tests look at. Found without git, which a user with a tarball may not have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "cronwell"
TESTS = ROOT / "tests"
FOLDERS = (".ci", "bench", "docs", "proto", "src", "tests", "tools", "web")
TOP_FILES = ("*.lock", "*.md", "*.toml", ".*.yaml", ".gitignore", "LICENSE", "Makefile")
NOT_OURS = frozenset({"__pycache__", "dist", "node_modules", "results"})


def files(folder: Path, pattern: str) -> list[Path]:
    """Every file of ours under a folder, in a stable order."""
    found = (path for path in folder.rglob(pattern) if path.is_file())
    return sorted(path for path in found if NOT_OURS.isdisjoint(path.relative_to(ROOT).parts))


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file of the repository with its content; binary files are passed over."""
    paths = [path for pattern in TOP_FILES for path in sorted(ROOT.glob(pattern))]
    for folder in FOLDERS:
        paths += files(ROOT / folder, "*")
    for path in paths:
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def shown(path: Path) -> str:
    """The path as a reader would type it."""
    return path.relative_to(ROOT).as_posix()
