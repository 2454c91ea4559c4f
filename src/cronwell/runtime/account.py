"""The operating system's user that the embedded PostgreSQL runs as, and what that user can reach.

PostgreSQL refuses to run as root. For root, therefore, it runs as a system user, which is made when it is first needed
and gets the right to pass through the directories above its files; it cannot list them.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cronwell import errors

SYSTEM_USER = "cronwell-postgres"

_READ_BY_ALL = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH
_EXECUTE_BY_ALL = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


@dataclass(frozen=True, slots=True)
class Account:
    """The operating system's user that the server runs as."""

    uid: int
    gid: int
    is_other: bool
    """True where we are root and the server must be somebody else."""

    @classmethod
    def of_server(cls) -> Account:
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid(), is_other=False)
        entry = _system_user()
        return cls(entry.pw_uid, entry.pw_gid, is_other=True)

    @property
    def identity(self) -> dict[str, Any]:
        """Arguments for subprocess."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.is_other else {}

    def own(self, path: Path) -> None:
        """Give the server what it must be able to write."""
        if self.is_other:
            os.chown(path, self.uid, self.gid)

    def let_reach(self, directory: Path) -> None:
        """Let the server pass through `directory` and those above it."""
        if self.is_other:
            for each in (directory, *directory.parents):
                self._permit(each, stat.S_IXOTH)

    def let_read(self, directory: Path) -> None:
        """Let the server read, and execute where we may, all that is below `directory`."""
        if self.is_other:
            self.let_reach(directory.parent)
            for path in (directory, *directory.rglob("*")):
                if not path.is_symlink():
                    is_executable = path.stat().st_mode & stat.S_IXUSR
                    self._permit(path, _READ_BY_ALL | _EXECUTE_BY_ALL if is_executable else _READ_BY_ALL)

    def make_private(self, directory: Path) -> None:
        """Make a directory that only the server's user can enter; one that exists keeps its mode and owner."""
        if directory.exists():
            return
        directory.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
            self.own(directory)

    def _permit(self, path: Path, bits: int) -> None:
        status = path.stat()
        if status.st_mode & bits == bits or (status.st_uid == self.uid and status.st_mode & stat.S_IXUSR):
            return
        try:
            path.chmod(status.st_mode | bits)
        except OSError as error:
            raise errors.ConfigError(
                f"{path} cannot be reached by the system user {SYSTEM_USER}, as which PostgreSQL runs for root: {error}; "
                "run Cronwell as an ordinary user instead"
            ) from error


def _system_user() -> pwd.struct_passwd:
    problem = ""
    for _ in range(50):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(SYSTEM_USER)
        try:
            made = subprocess.run(  # noqa: S603
                ["useradd", "--system", "--no-create-home", "--shell", "/bin/false", SYSTEM_USER],  # noqa: S607
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError as error:
            raise errors.ConfigError(
                f"as root, PostgreSQL needs the system user {SYSTEM_USER}: {error}"
            ) from error
        problem = made.stderr.strip()
        if made.returncode != 0:
            time.sleep(0.1)  # somebody else has the password file locked, perhaps to add the same user
    raise errors.ConfigError(
        f"cannot add the system user {SYSTEM_USER}, as which PostgreSQL runs for root: {problem}"
    )
