"""What is kept of an attempt's output: text that PostgreSQL can hold, cut to a limit and marked when cut."""

from __future__ import annotations

from cronwell.model.clipping import clip

__all__ = ["Kept", "clip", "tail"]


class Kept:
    """The beginning of a stream of bytes; the rest is counted and forgotten."""

    __slots__ = ("_buffer", "_limit", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer: bytearray | None = None  # most answers have no body
        self.size = 0

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        self.size += len(chunk)
        buffer = self._buffer
        if buffer is None:
            buffer = self._buffer = bytearray()
        # One byte more than the limit is enough to know that something was cut.
        room = self._limit + 1 - len(buffer)
        if room > 0:
            buffer += chunk[:room]

    def text(self) -> tuple[str, bool]:
        """Return what was kept as text, and whether something was cut off."""
        return clip(bytes(self._buffer or b""), self._limit)


def tail(text: str, limit: int) -> str:
    """Return the end of `text`, at most `limit` bytes of UTF-8, as PostgreSQL can hold it."""
    encoded = text.replace("\0", "").encode("utf-8", "replace")
    return encoded[-limit:].decode("utf-8", "ignore")
