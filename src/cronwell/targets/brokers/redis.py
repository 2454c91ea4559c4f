"""Redis Streams: one entry for each attempt, added with XADD, which has succeeded when Redis has answered with its id.

One connection serves a worker process. It is made when the first message comes and anew when it has ended; commands of many
attempts are under way on it at once. A command whose answer does not come is not sent again here: its attempt fails, and the
next one publishes the same execution id.
"""

from __future__ import annotations

import asyncio
import ssl

from cronwell import addresses, durations
from cronwell.config import PublishSettings, env_name
from cronwell.model.publishing import PublishTarget, RedisStream
from cronwell.targets.brokers.port import Message
from cronwell.targets.brokers.resp import Connection, Lost, Refused
from cronwell.targets.exchange import Trouble

_MAY_BE_THERE = (
    "it may have taken the message, which the next attempt sends again under the same execution id"
)

_ADVICE = {
    "NOAUTH": ("broker_auth", "it asks for a password: put USER:PASSWORD@ before the host in {setting}"),
    "WRONGPASS": ("broker_auth", "it refused user or password: put the right ones into {setting}"),
    "NOPERM": ("broker_denied", "allow its user the stream and XADD (ACL SETUSER … ~{stream} +xadd)"),
    "WRONGTYPE": ("wrong_type", "the key {stream} is no stream: choose another name for the job's stream, or move that key"),
    "OOM": ("broker_full", "its memory is full: raise its maxmemory, or give the streams of jobs a maxlen"),
    "READONLY": ("broker_readonly", "it is a replica: put the address of its primary into {setting}"),
    "MISCONF": ("broker_unready", "it cannot write to its disk: mend that"),
    "NOREPLICAS": ("broker_unready", "fewer replicas follow it than its min-replicas-to-write: bring them back"),
    "LOADING": ("broker_unready", "it is still reading its data"),
    "BUSY": ("broker_unready", "it is busy with a script"),
    "MASTERDOWN": ("broker_unready", "it is a replica without its primary"),
    "CLUSTERDOWN": ("broker_unready", "its cluster is down"),
    "MOVED": ("broker_cluster", "it is part of a Redis Cluster, which is not supported: use a server of its own"),
    "CROSSSLOT": ("broker_cluster", "it is part of a Redis Cluster, which is not supported: use a server of its own"),
}  # fmt: skip
_FINAL = frozenset({"wrong_type"})
"""Where trying again cannot help."""
_ELSEWHERE = frozenset({"READONLY", "MASTERDOWN", "NOAUTH"})
"""After these the next message goes by a connection of its own: the name may lead to another server by then."""


class RedisBroker:
    """One Redis server."""

    def __init__(self, name: str, address: str, settings: PublishSettings) -> None:
        self._servers = addresses.parse_one(
            address, schemes=addresses.BROKER_SCHEMES["redis"], port=addresses.REDIS_PORT
        )
        (host, port), *_ = self._servers.hosts
        self._host, self._port = host.strip("[]"), port
        self._peer = f"the broker {name} (Redis at {host}:{port})"
        self._setting = env_name(f"brokers.{name}")
        self._settings = settings
        self._tls: ssl.SSLContext | None = None
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None

    async def publish(self, target: PublishTarget, message: Message) -> str:
        """Add an entry to the stream, and return the id that Redis gave it."""
        stream = target.redis
        if stream is None:
            raise Trouble("no_broker", f"{self._peer} takes messages for `redis`, and the job has none")
        connection: Connection | None = None
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                connection = await self._connected()
                return await connection.ask(*_entry(stream, message))
        except TimeoutError:
            limit = durations.write(self._settings.timeout)
            if connection is None:
                raise Trouble("connect", f"{self._peer} did not accept a connection within {limit}") from None
            # Answers come in order: who waits behind this one would wait in vain.
            connection.abort()
            raise Trouble(
                "broker_lost", f"{self._peer} did not answer within {limit}; {_MAY_BE_THERE}"
            ) from None
        except Lost as error:
            raise Trouble("broker_lost", f"{self._peer} was lost: {error}; {_MAY_BE_THERE}") from None
        except Refused as error:
            raise self._refusal(error, stream.stream) from None

    async def close(self) -> None:
        """End the connection."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.abort()

    async def _connected(self) -> Connection:
        connection = self._connection
        if connection is not None and connection.is_open:
            return connection
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name=f"connecting to {self._peer}")
            # An error is told to those who wait; if nobody does any more, it is nobody's.
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        # Others wait for the same connection, which is made although one of them gives up.
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> Connection:
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                self._connection = await self._open()
                return self._connection
        except TimeoutError:
            limit = durations.write(self._settings.timeout)
            raise Trouble("connect", f"{self._peer} did not accept a connection within {limit}") from None
        except ssl.SSLError as error:
            said = f"no secure connection to {self._peer}: {error}"
            raise Trouble(
                "tls", f"{said}; CRONWELL_PUBLISH_CA names the certificates that it is judged by"
            ) from None
        except OSError as error:
            raise Trouble("connect", f"cannot connect to {self._peer}: {error.strerror or error}") from None
        except Lost as error:
            raise Trouble("connect", f"{self._peer} ended the connection at once: {error}") from None
        except Refused as error:
            raise self._refusal(error, "") from None
        finally:
            self._connecting = None

    async def _open(self) -> Connection:
        servers, loop = self._servers, asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, self._host, self._port, ssl=self._context())
        try:
            if servers.password:
                words = [servers.user, servers.password] if servers.user else [servers.password]
                await connection.ask(b"AUTH", *(word.encode() for word in words))
            if servers.database:
                await connection.ask(b"SELECT", b"%d" % servers.database)
        except BaseException:
            connection.abort()
            raise
        return connection

    def _context(self) -> ssl.SSLContext | None:
        if self._servers.scheme == "rediss" and self._tls is None:
            try:
                self._tls = ssl.create_default_context(cafile=self._settings.ca or None)
            except OSError as error:
                said = f"the certificates in {self._settings.ca!r} cannot be read: {error.strerror or error}"
                raise Trouble("tls", f"{said}; mend CRONWELL_PUBLISH_CA and restart the worker") from None
        return self._tls

    def _refusal(self, error: Refused, stream: str) -> Trouble:
        said = str(error)
        if self._servers.password:
            # A server that does not know a command, or a proxy before it, says what came with it.
            said = said.replace(self._servers.password, "***")
        # Before Redis 6 a wrong password, and at all times one that it does not want, have no word of their own.
        code = error.code
        if code == "ERR" and ("AUTH" in said or "invalid password" in said):
            code = "WRONGPASS"
        kind, advice = _ADVICE.get(code, ("broker_refused", ""))
        if code in _ELSEWHERE and self._connection is not None:
            self._connection.retire()
        what = f"{self._peer} refused: {said}"
        if advice:
            what += f"; {advice.format(setting=self._setting, stream=stream)}"
        return Trouble(kind, what, is_retryable=kind not in _FINAL)


def _entry(stream: RedisStream, message: Message) -> list[bytes]:
    """The command that adds a message to a stream."""
    words = [b"XADD", stream.stream.encode()]
    if stream.maxlen is not None:
        # About: to the entry it would cost Redis much more.
        words += [b"MAXLEN", b"~", b"%d" % stream.maxlen]
    words.append(b"*")
    for name, value in message.fields:
        words += [name.encode(), value]
    return words
