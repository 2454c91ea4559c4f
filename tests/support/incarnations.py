"""A database that says to be another server than it is, for tests that need no second one."""

from __future__ import annotations

import asyncpg


class Replaceable:
    """Changes what the database at `url` calls itself."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def become(self, incarnation: str) -> None:
        """Be another incarnation from now on."""
        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute(
                "create or replace function incarnation() returns text language sql stable parallel safe "
                f"as $$ select '{incarnation}'::text $$"
            )
        finally:
            await connection.close()
