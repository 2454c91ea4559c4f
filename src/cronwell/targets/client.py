"""An HTTP/1.1 client for deliveries: keeps connections to addresses that were judged, and sends each request once.

Ours, because a delivery spends more time in a client for all purposes than in everything else that a worker does with it:
no cookies, redirects, proxies, encodings or hooks have to be asked about here. An address is judged twice: names when they
are resolved, and again whatever a socket is about to connect to, so that no spelling of an address and no second answer of
a name server gets past the table. A kept connection was judged when it was made and cannot change its peer.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, NamedTuple

from aiohappyeyeballs import start_connection
from aiohttp.abc import AbstractResolver

from cronwell import config, durations
from cronwell.targets.egress import Egress
from cronwell.targets.exchange import Answer, Connection, Outbox, Trouble
from cronwell.targets.places import Places

# Below the five seconds after which common servers (Node, uvicorn) close an idle connection: a request that
# meets that close on its way fails, and not every receiver may be sent it twice.
KEEP_ALIVE_SECONDS = 4.0
DNS_CACHE_SECONDS = 10.0
_NAMES_KEPT = 1000
# Between one address of a name and the next, while the first has not answered (RFC 8305).
_STAGGER_SECONDS = 0.25

_AddrInfo = tuple[int, int, int, str, tuple[Any, ...]]


class Origin(NamedTuple):
    """Whom a connection is to."""

    is_tls: bool
    host: str
    """A name as it is asked for (in ASCII), or an IP address without brackets."""
    port: int
    peer: str
    """As it is shown."""


@dataclass(slots=True, eq=False)
class _Pool:
    """The connections to one origin."""

    places: Places
    idle: list[Connection] = field(default_factory=list)
    """The one that was used last comes last, and is used next."""

    @property
    def is_unused(self) -> bool:
        """Whether nobody has anything to do with it. Who waits for a place waits for somebody who has one."""
        return not self.places.taken and not self.idle


@dataclass(slots=True)
class _Name:
    addresses: deque[_AddrInfo]
    until: float


class Client:
    """Connections of one worker process. `resolver` answers with addresses that may be called."""

    def __init__(
        self,
        settings: config.HttpSettings,
        egress: Egress,
        resolver: AbstractResolver,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._egress = egress
        self._resolver = resolver
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(self._loop)
        self._places = Places(settings.connections)
        self._pools: dict[Origin, _Pool] = {}
        self._idle: dict[Connection, tuple[Origin, _Pool]] = {}
        """Connections that wait for a request, the one that has waited for longest first."""
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._names: dict[tuple[str, int], _Name] = {}
        self._lookups: dict[tuple[str, int], asyncio.Task[deque[_AddrInfo]]] = {}

    async def send(self, origin: Origin, request: bytes, answer: Answer) -> None:
        """Send a request and wait until `answer` is complete.

        Raises `Trouble` where there is no answer, and `EgressRefused`. No more than `http.per_host` are under way to one
        origin and no more than `http.connections` in all; who comes later waits.
        """
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = _Pool(Places(self._settings.per_host))
        try:
            # First the place with the host: those who wait for a host that hangs hold no place that others could use.
            if not pool.places.take():
                await pool.places.wait()
            try:
                if not self._places.take():
                    await self._places.wait()
                try:
                    connection = self._take(pool) or await self._connect(origin)
                    answered = connection.ask(request, answer, self._outbox)
                    del request
                    try:
                        await answered
                    except BaseException:
                        connection.close()
                        raise
                    self._keep(connection, origin, pool)
                finally:
                    self._places.give()
            finally:
                pool.places.give()
        finally:
            self._forget(origin, pool)

    async def close(self) -> None:
        """Close every connection; no request is under way."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        self._pools.clear()
        lookups = list(self._lookups.values())
        for task in lookups:
            task.cancel()
        if lookups:
            await asyncio.wait(lookups)
        await self._resolver.close()

    def forget_names(self) -> None:
        """Ask for every name anew."""
        self._names.clear()

    def _keep(self, connection: Connection, origin: Origin, pool: _Pool) -> None:
        """Let a connection wait for the next request, if another may go out on it."""
        if not connection.is_open:
            connection.close()
            return
        connection.idle_since = self._loop.time()
        pool.idle.append(connection)
        self._idle[connection] = origin, pool
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(KEEP_ALIVE_SECONDS, self._sweep)

    def _take(self, pool: _Pool) -> Connection | None:
        """A connection that waits for a request and is still good."""
        while pool.idle:
            connection = pool.idle.pop()
            del self._idle[connection]
            if connection.is_open and self._loop.time() - connection.idle_since < KEEP_ALIVE_SECONDS:
                return connection
            connection.close()
        return None

    def _sweep(self) -> None:
        """Close what has been idle for too long."""
        oldest = self._loop.time() - KEEP_ALIVE_SECONDS
        self._sweep_timer = None
        while self._idle:
            connection = next(iter(self._idle))
            if connection.idle_since > oldest:
                wait = connection.idle_since - oldest
                self._sweep_timer = self._loop.call_later(wait, self._sweep)
                return
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        origin, pool = self._idle.pop(connection)
        pool.idle.remove(connection)  # among the first: it is the one that has waited for longest
        self._forget(origin, pool)
        connection.close()

    def _forget(self, origin: Origin, pool: _Pool) -> None:
        """Let go of a pool that nobody uses; not of another that has taken its place since."""
        if pool.is_unused and self._pools.get(origin) is pool:
            del self._pools[origin]

    async def _connect(self, origin: Origin) -> Connection:
        addresses = await self._addresses(origin)
        while self._idle and self._places.taken + len(self._idle) > self._settings.connections:
            self._drop(next(iter(self._idle)))
        peer, limit = origin.peer, self._settings.connect_timeout
        try:
            async with asyncio.timeout(limit.total_seconds()):
                return await self._open(origin, addresses)
        except TimeoutError:
            said = f"{peer} did not accept a connection within {durations.write(limit)}"
            raise Trouble("connect", said) from None
        except ssl.SSLCertVerificationError as error:
            raise Trouble("tls", f"{peer} has a certificate that is not trusted: {error}") from None
        except ssl.SSLError as error:
            raise Trouble("tls", f"no secure connection to {peer}: {error}") from None
        except OSError as error:
            raise Trouble("connect", f"cannot connect to {peer}: {error.strerror or error}") from None

    async def _open(self, origin: Origin, addresses: list[_AddrInfo]) -> Connection:
        if len(addresses) == 1 and "%" not in addresses[0][4][0]:
            return await self._open_one(origin, *addresses[0][4][:2])
        for *_, address in addresses:
            self._egress.check(address[0])  # a refusal would be lost in the race
        made = await start_connection(
            addresses,
            happy_eyeballs_delay=_STAGGER_SECONDS,
            interleave=1,
            loop=self._loop,
            socket_factory=self._make_socket,
        )
        connection = Connection(origin.peer)
        try:
            await self._loop.create_connection(lambda: connection, sock=made, **self._security(origin))
        except BaseException:
            # First what may still read from the socket: its number is given to the next one.
            connection.close()
            made.close()
            raise
        return connection

    async def _open_one(self, origin: Origin, address: str, port: int) -> Connection:
        """Connect to an address that has no rival: by the loop itself, for 61 µs where a socket of ours takes 140."""
        # An address in its usual form is not looked up by anybody: what is judged here is what is connected to.
        self._egress.check(address)
        connection = Connection(origin.peer)
        try:
            await self._loop.create_connection(lambda: connection, address, port, **self._security(origin))
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_socket(self, info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, address = info
        self._egress.check(str(address[0]))
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def _security(self, origin: Origin) -> dict[str, Any]:
        if not origin.is_tls:
            return {}
        return {"ssl": self._context(), "server_hostname": origin.host.rstrip(".")}

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls

    async def _addresses(self, origin: Origin) -> list[_AddrInfo]:
        """Where to connect to: each time from another address of the name on."""
        host, port, peer = origin.host, origin.port, origin.peer
        if _is_address(host):
            return [_info(host, port)]
        if host.replace(".", "").isdigit():
            # 2130706433, 127.1: the operating system would make an address of it that nobody has meant to write.
            said = f"{peer} cannot be called: {host} is not an IPv4 address in its usual form"
            raise Trouble("url", said, is_retryable=False)
        found = self._names.get((host, port))
        if found is not None and found.until > self._loop.time():
            found.addresses.rotate(-1)
            return list(found.addresses)
        lookup = self._lookups.get((host, port))
        if lookup is None:
            lookup = self._loop.create_task(self._look_up(host, port), name=f"lookup of {host}")
            # An error is told to who waits; if nobody does any more, it is nobody's.
            lookup.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._lookups[host, port] = lookup
        try:
            # Others may wait for the same name: it is looked up to its end although one of them gives up.
            return list(await asyncio.shield(lookup))
        except OSError as error:
            raise Trouble("dns", f"{peer} has no address: {error.strerror or error}") from None

    async def _look_up(self, host: str, port: int) -> deque[_AddrInfo]:
        try:
            answers = await self._resolver.resolve(host, port, socket.AF_UNSPEC)
            addresses = deque(_info(answer["host"], port) for answer in answers)
            if len(self._names) >= _NAMES_KEPT:
                now = self._loop.time()
                self._names = {key: name for key, name in self._names.items() if name.until > now}
            self._names[host, port] = _Name(addresses, self._loop.time() + DNS_CACHE_SECONDS)
            return addresses
        finally:
            self._lookups.pop((host, port), None)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)  # with a scope only where it is IPv6: 8.8.8.8%.example.com is a name
    except ValueError:
        return False
    return True


def _info(address: str, port: int) -> _AddrInfo:
    kind, protocol = socket.SOCK_STREAM, socket.IPPROTO_TCP
    if ":" in address:
        return socket.AF_INET6, kind, protocol, "", (address, port, 0, 0)
    return socket.AF_INET, kind, protocol, "", (address, port)
