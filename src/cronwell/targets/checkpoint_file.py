"""The file by which a command is given the last checkpoint and leaves the next one.

It is in memory and has no name: the command opens what it inherited. What the command writes is kept within a second, while
it runs, so that a command that dies with its worker has left it; and once more when it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from typing import IO

from cronwell import errors
from cronwell.model import checkpoint
from cronwell.targets.port import Call, Signals

VARIABLE = "CRONWELL_CHECKPOINT_FILE"
LOOK_SECONDS = 1.0
CLOSE_SECONDS = 5.0
"""Who waits longer than this for the database has lost the attempt soon, and may not keep its place."""
_UNKEPT = (errors.CronwellError, ValueError, RecursionError)


class CheckpointFile:
    """Made before the command starts, closed when it has ended. All methods are called from the event loop's thread."""

    def __init__(self, call: Call, signals: Signals, *, every: float = LOOK_SECONDS) -> None:
        self._call = call
        self._signals = signals
        self._every = every
        self._file = nameless("cronwell-checkpoint")
        self._kept = b"" if call.checkpoint is None else checkpoint.write(call.checkpoint).encode()
        self._file.write(self._kept)
        self._file.flush()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def descriptor(self) -> int:
        """What the command has to inherit."""
        return self._file.fileno()

    @property
    def path(self) -> str:
        """Where the command finds it."""
        return f"/dev/fd/{self.descriptor}"

    def watch(self) -> None:
        """Look now and then what the command has written, until it is closed."""
        self._timer = asyncio.get_running_loop().call_later(self._every, self._look)

    async def keep(self) -> str | None:
        """Keep what was written last; why it could not be kept comes back."""
        try:
            if (text := self._changed()) is not None:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._signals.save(self._call, text)
        except TimeoutError:
            return "the checkpoint was not kept: the database does not answer"
        except _UNKEPT as error:
            return f"the checkpoint was not kept: {error}"
        return None

    def close(self) -> None:
        """Forget it."""
        if self._timer is not None:
            self._timer.cancel()
        self._file.close()

    def _look(self) -> None:
        # It may be half written at this moment: what makes no sense now may do so the next time.
        with contextlib.suppress(*_UNKEPT):
            if (text := self._changed()) is not None:
                self._signals.save(self._call, text)
        self.watch()

    def _changed(self) -> str | None:
        """What is to be kept; None where that is kept already. Raises what keeps it from being kept."""
        content = os.pread(self.descriptor, checkpoint.LIMIT + 1, 0).strip()
        if not content or content == self._kept:
            return None
        if len(content) > checkpoint.LIMIT:
            raise errors.TooLarge(f"it has more than {checkpoint.LIMIT} bytes")
        text = checkpoint.write(json.loads(content))
        self._kept = content
        return text


def nameless(name: str) -> IO[bytes]:
    """A file that nobody finds and that is gone when it is closed; `name` is what tools show of it."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create(name), "w+b")
    return tempfile.TemporaryFile()
