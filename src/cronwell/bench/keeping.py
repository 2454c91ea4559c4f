"""Places for what a benchmark keeps: checked before it measures, because afterwards an hour would be lost."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cronwell import errors


def check_file(path: Path) -> None:
    """Raise ConfigError where a report cannot be written to a file. One that is there stays as it was, and none is left."""
    try:
        if path.exists():
            with path.open("ab"):
                return
        # Of a link that leads to no file yet, the folder that it leads to.
        folder = Path(os.path.realpath(path)).parent
        if not folder.exists():
            raise errors.ConfigError(
                f"the report cannot be written to {path}: there is no folder {folder}; make it, or name another"
            )
        _try(folder)
    except OSError as error:
        raise errors.ConfigError(
            f"the report cannot be written to {path}: {error.strerror}; name another file"
        ) from None


def check_folder(path: Path) -> None:
    """Raise ConfigError where plots cannot be written into a folder, which may have to be made, but not those above it."""
    try:
        if path.exists():
            _try(path)
            return
        if not path.absolute().parent.exists():
            raise errors.ConfigError(
                f"plots cannot be written into {path}: there is no folder {path.absolute().parent}; make it, or name another"
            )
        path.mkdir()
        path.rmdir()
    except OSError as error:
        raise errors.ConfigError(
            f"plots cannot be written into {path}: {error.strerror}; name another folder"
        ) from None


def _try(folder: Path) -> None:
    """Write into a folder and leave nothing: its permissions alone say nothing of a file system that takes no files."""
    with tempfile.TemporaryFile(dir=folder):
        pass
