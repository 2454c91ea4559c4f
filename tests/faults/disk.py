"""A small file system for PostgreSQL alone, which a fault can fill."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.postgres import temporary_directory

SIZE_MB = 1500


@contextlib.contextmanager
def small_disk(size_mb: int = SIZE_MB) -> Iterator[tuple[Path, bool]]:
    """A folder for the server, and whether it is a file system of its own: only root may mount one."""
    with temporary_directory() as folder:
        mount = shutil.which("mount")
        is_own = False
        if os.geteuid() == 0 and mount is not None:
            done = subprocess.run(
                [mount, "-t", "tmpfs", "-o", f"size={size_mb}m,mode=0755", "cronwell-rig", str(folder)],
                capture_output=True,
                check=False,
            )
            is_own = done.returncode == 0
        try:
            yield folder, is_own
        finally:
            if is_own:
                subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)
