"""The installation's keys for secrets: from a setting, a file, or a command, read when they are first needed.

The first key encrypts, all of them decrypt. They are read again now and then, and at once when something is met that none
of them opens, so that a new key in the file or behind the command needs no restart.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import os
import secrets
import shlex
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from cronwell import errors, telemetry
from cronwell.config import SecretSettings, Settings
from cronwell.model.envelope import Key
from cronwell.values import KEY_BYTES, read_keys

OWN_FILE = "secrets.key"
"""In the data directory, beside the embedded PostgreSQL."""
BELIEVED_SECONDS = 60.0
AGAIN_SECONDS = 5.0
COMMAND_SECONDS = 30.0
HOW_TO = (
    "set secrets.key_file (CRONWELL_SECRETS_KEY_FILE), secrets.key (CRONWELL_SECRETS_KEY) or secrets.key_command "
    "(CRONWELL_SECRETS_KEY_COMMAND), the same for the API and for workers; `openssl rand -base64 32` makes a key"
)


class Keyring:
    """Keys by their ids, in the order in which they are set. One instance serves a process."""

    def __init__(self, settings: SecretSettings | None = None) -> None:
        self._settings = settings or SecretSettings()
        self._keys: Mapping[str, Key] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    @classmethod
    def of(cls, settings: Settings) -> Keyring:
        """The keys that settings name, or those of the embedded database, if it is that."""
        given = settings.secrets
        own = settings.data_dir / OWN_FILE
        if not settings.database.url and not _is_set(given) and own.exists():
            given = SecretSettings(key_file=str(own))
        return cls(given)

    async def first(self) -> Key:
        """The key to encrypt with; raises SecretsLocked where there is none."""
        return next(iter((await self.keys()).values()))

    async def find(self, key_id: str) -> Key | None:
        """The key with an id; None where it is not one of ours."""
        keys = await self.keys()
        if key_id not in keys:
            keys = await self.keys(believed_seconds=AGAIN_SECONDS)
        return keys.get(key_id)

    async def keys(self, *, believed_seconds: float = BELIEVED_SECONDS) -> Mapping[str, Key]:
        """Every key by its id, the first one first; raises SecretsLocked where there is none, or one is not a key."""
        async with self._reading:
            if not self._keys or time.monotonic() - self._read_at > believed_seconds:
                try:
                    # In a thread: a command may ask a server somewhere, and a file may lie on one.
                    self._keys = await asyncio.to_thread(_read, self._settings)
                except errors.SecretsLocked as error:
                    telemetry.keys_not_read(str(error))
                    if not self._keys:
                        raise
                self._read_at = time.monotonic()
            return self._keys


def own_key(settings: Settings) -> tuple[Settings, Path | None]:
    """Settings of an embedded database with a key for its secrets; the file, where one was made for that just now."""
    if _is_set(settings.secrets):
        return settings, None
    file = settings.data_dir.absolute() / OWN_FILE
    made = _make(file)
    named = dataclasses.replace(settings.secrets, key_file=str(file))
    return dataclasses.replace(settings, secrets=named), file if made else None


def _make(file: Path) -> bool:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():
            return False
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise errors.ConfigError(f"cannot write {file}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
        opened.flush()
        os.fsync(opened.fileno())
    return True


def _is_set(settings: SecretSettings) -> bool:
    return bool(settings.key or settings.key_file or settings.key_command)


def _read(settings: SecretSettings) -> dict[str, Key]:
    if not _is_set(settings):
        raise errors.SecretsLocked(f"there is no key for secrets; {HOW_TO}")
    found: list[bytes] = read_keys(settings.key)
    if settings.key_file:
        found += _parsed(_read_file(settings.key_file), "secrets.key_file (CRONWELL_SECRETS_KEY_FILE)")
    if settings.key_command:
        where = "secrets.key_command (CRONWELL_SECRETS_KEY_COMMAND)"
        found += _parsed(_run(settings.key_command, where), where)
    return {key.id: key for key in map(Key, found)}


def _parsed(text: str, where: str) -> list[bytes]:
    try:
        keys = read_keys(text)
    except ValueError as error:
        raise errors.SecretsLocked(f"{where} gives no key for secrets: {error}") from None
    if not keys:
        raise errors.SecretsLocked(f"{where} gives no key for secrets: it is empty")
    return keys


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError as error:
        said = error.strerror or type(error).__name__
    except UnicodeDecodeError:
        said = "it is not text"
    raise errors.SecretsLocked(f"secrets.key_file (CRONWELL_SECRETS_KEY_FILE) cannot be read: {said}")


def _run(command: str, where: str) -> str:
    """What a command prints. What it says on stderr goes to ours, where whoever runs this finds it."""
    try:
        done = subprocess.run(  # noqa: S603  # the operator's own command, and no shell reads it
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        said = f"did not end within {COMMAND_SECONDS:.0f} s"
    except (OSError, ValueError) as error:
        said = f"cannot be run: {getattr(error, 'strerror', None) or error}"
    else:
        if done.returncode == 0:
            return done.stdout.decode("ascii", "replace")
        said = (
            f"ended with {done.returncode}; what it wrote to stderr is in the log of the process that ran it"
        )
    raise errors.SecretsLocked(f"{where} {said}")
