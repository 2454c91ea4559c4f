"""Text that PostgreSQL can hold, cut to a limit."""

from __future__ import annotations


def clip(raw: bytes | str, limit: int) -> tuple[str, bool]:
    """Return `raw` as text of at most `limit` bytes of UTF-8, and whether something was cut off.

    Bytes that are not UTF-8 become U+FFFD. Null characters are dropped: PostgreSQL's text cannot hold them.
    """
    was_cut = isinstance(raw, bytes) and len(raw) > limit
    text = raw[: limit + 1].decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    # Lone surrogates cannot be encoded; "replace" writes a question mark.
    encoded = text.replace("\0", "").encode("utf-8", "replace")
    if len(encoded) > limit:
        return encoded[:limit].decode("utf-8", "ignore"), True
    return encoded.decode(), was_cut
