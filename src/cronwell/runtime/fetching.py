"""A document that an operator names: from a file, or from a server that proves who it is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from cronwell import addresses

TIMEOUT_S = 10.0
LONGEST = 1_048_576


async def fetch(place: str) -> bytes:
    """Read a file, or get an https:// address; http:// is for this machine alone. Raises OSError or ValueError."""
    parts = urlsplit(place)
    if parts.scheme not in ("http", "https"):
        return await asyncio.to_thread(Path(place).read_bytes)
    if parts.scheme == "http" and not addresses.is_loopback(parts.hostname or ""):
        raise ValueError(f"{place} could be anybody's: write https://")
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT_S)) as session,
            session.get(place, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"{place} answered {answer.status}")
            body = await answer.content.read(LONGEST + 1)
            while len(body) <= LONGEST and (more := await answer.content.read(LONGEST)):
                body += more
    except (aiohttp.ClientError, TimeoutError) as error:
        raise OSError(f"{place} does not answer: {type(error).__name__} {error}") from error
    if len(body) > LONGEST:
        raise ValueError(f"{place} answered with more than {LONGEST} bytes")
    return body
