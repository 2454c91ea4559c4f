"""`cronwell up`: everything in one process tree, with a PostgreSQL of its own unless a database is named.

The parent starts PostgreSQL, migrates, then starts one process per role and keeps them running. It stops them in reverse:
the roles drain at once, then PostgreSQL shuts down, so that nothing is cut off and starting again finds all data.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import os
import shutil
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from pathlib import Path

from cronwell import addresses, config, errors, telemetry, wiring
from cronwell.config import Settings
from cronwell.runtime.embedded import EmbeddedPostgres
from cronwell.runtime.keyring import own_key
from cronwell.runtime.service import Loop, Service, run_services
from cronwell.runtime.supervisor import Child, watch_lifeline
from cronwell.runtime.web import first_answer, wait_for_port

ROLES = ("scheduler", "worker", "api")
CHECK_POSTGRES = timedelta(seconds=1)
READY_WITHIN = timedelta(seconds=60)
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # ours alone: its name has our user and data directory in it
LOOPBACK = ("127.0.0.0/8", "::1/128")
# The API of an `up` that was killed may still be answering its last requests.
PORT_WITHIN = timedelta(seconds=10)

Say = Callable[[str], None]
# At once: where nobody sits at a terminal, somebody may wait for the word that all is ready.
SAY: Say = partial(print, flush=True)


def run_up(settings: Settings, say: Say = SAY) -> int:
    """Run everything until a signal and return the exit code. `say` tells people what is going on."""
    embedded = None
    if not settings.database.url:
        say("Starting PostgreSQL …")
        embedded = EmbeddedPostgres(settings.data_dir, report=lambda what: say(f"  {what}"))
        url = embedded.start()
        settings, made = own_key(settings)
        if made is not None:
            say(f"Made a key for secrets: {made}. Keep a copy: without it they cannot be read.")
        settings = dataclasses.replace(settings, database=dataclasses.replace(settings.database, url=url))
    try:
        # Else another service on that port would answer for ours, and we would call ourselves ready.
        wait_for_port(settings.host, settings.port, PORT_WITHIN)
        for step in wiring.migrate(settings, role="up"):
            say(f"Migrated: {step}")
        return asyncio.run(_run(settings, embedded, say))
    finally:
        if embedded is not None:
            say("Stopping PostgreSQL …")
            embedded.stop()
            say("Stopped. All data is kept; start again any time.")


async def _run(settings: Settings, embedded: EmbeddedPostgres | None, say: Say) -> int:
    stop = asyncio.Event()
    watch_lifeline(stop)
    services: list[Service] = []
    if embedded is not None:
        services.append(_keep_running(embedded))
    metrics = metrics_place(settings)
    environ = {
        **os.environ,
        **config.as_environ(role_settings(settings)),
        "PROMETHEUS_MULTIPROC_DIR": str(metrics),
    }
    drain = settings.worker.drain + settings.worker.cancel_grace + timedelta(seconds=15)
    refusals: list[int] = []

    def refused(role: str, code: int) -> None:
        say(f"The {role} cannot start; its message is above.")
        refusals.append(code)
        stop.set()

    drained: set[str] = set()

    def not_again(role: str) -> None:
        say(f"The {role} was drained and is not started again; a new `up` starts it.")
        telemetry.child_drained(role)
        drained.add(role)
        if drained.issuperset(ROLES):
            say("Everything is drained.")
            stop.set()

    children = [
        Child(
            role,
            [sys.executable, "-m", "cronwell", role],
            environ,
            on_death=telemetry.child_died,
            stop_deadline=drain,
            on_refusal=refused,
            on_drained=not_again,
        )
        for role in ROLES
    ]
    group = Group(children, drain)
    services.append(group)
    announcing = asyncio.create_task(_announce(settings, children, embedded, say), name="banner")

    def end_at_once() -> None:
        # The roles too: without their database they would wait in vain to write down what they know.
        for child in children:
            child.kill()
        if embedded is not None:
            embedded.abandon()

    try:
        await run_services(
            services,
            stop=stop,
            on_stop=lambda why: say(f"\nStopping ({why}): draining …"),
            on_abort=end_at_once,
        )
    finally:
        announcing.cancel()
        shutil.rmtree(metrics, ignore_errors=True)
    return refusals[0] if refusals else 0


def role_settings(settings: Settings) -> Settings:
    """What the roles are told: if only this machine can reach the API, targets may also call this machine.

    Only `up` can grant it: it starts API and worker together. A worker by itself cannot know who reaches the API, whatever
    its own `host` says. Likewise it knows where the API listens, which is where receivers find it unless a setting says
    otherwise.
    """
    if not settings.public_url and not is_every_address(settings.host):
        settings = dataclasses.replace(settings, public_url=api_address(settings.host, settings.port))
    if not addresses.is_loopback(settings.host):
        return settings
    return dataclasses.replace(settings, egress_allow=(*settings.egress_allow, *LOOPBACK))


def api_address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_every_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


class Group(Service):
    """Children that stop together, so that a stop takes as long as the slowest and not as long as all."""

    def __init__(self, children: list[Child], drain: timedelta) -> None:
        super().__init__("roles", stop_deadline=drain + timedelta(seconds=5))
        self._children = children

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for child in self._children:
                group.create_task(child.run(), name=child.name)

    def stop(self) -> None:
        for child in self._children:
            child.stop()


def _keep_running(embedded: EmbeddedPostgres) -> Loop:
    async def poll() -> timedelta:
        if await asyncio.to_thread(embedded.ensure_running):
            telemetry.child_died("PostgreSQL", -1, 0)
        return CHECK_POSTGRES

    return Loop("PostgreSQL", poll, on_error=telemetry.service_failed)


def metrics_place(settings: Settings) -> Path:
    """Make an empty folder where the roles' processes share one set of metrics, which the API serves.

    They are mapped files that grow, and a process that touches such a page on a full disk is killed by the system. So they
    are kept in memory where there is a place for that, and beside the data where there is none.
    """
    place = settings.data_dir.absolute()
    name = f"cronwell-{os.getuid()}-{blake2b(bytes(place), digest_size=8).hexdigest()}"
    for folder in (SHARED_MEMORY / name, place / "metrics"):
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=folder.parent == place)
            break
    else:
        raise errors.ConfigError(f"cannot write to {place}")
    return folder


async def _announce(
    settings: Settings, children: list[Child], embedded: EmbeddedPostgres | None, say: Say
) -> None:
    host = "127.0.0.1" if is_every_address(settings.host) else settings.host
    if not await first_answer(host, settings.port, "/readyz", READY_WITHIN):
        say(f"Not ready after {READY_WITHIN.total_seconds():.0f} s; the log above says why.")
        return
    for line in _banner(settings, host, children, embedded):
        say(line)


def _banner(
    settings: Settings, host: str, children: list[Child], embedded: EmbeddedPostgres | None
) -> list[str]:
    address = api_address(host, settings.port)
    pids = {child.name: child.pid for child in children}
    database = (
        f"embedded, in {settings.data_dir / 'postgres'} (pid {embedded.pid})"
        if embedded is not None
        else "yours, from CRONWELL_DATABASE_URL"
    )
    lines = [
        "",
        f"Cronwell is ready on {address}",
        f"  API         {address}/v1  (pid {pids['api']}), interactive docs at {address}/docs",
        f"  scheduler   pid {pids['scheduler']}",
        f"  worker      pid {pids['worker']}, pool {', '.join(settings.worker.pools)}",
        f"  PostgreSQL  {database}",
    ]
    if addresses.is_loopback(settings.host) and not settings.auth.required:
        lines += [
            "  No key is needed, because only this machine can reach the API.",
            "  Webhooks may call this machine (127.0.0.1), for the same reason.",
        ]
        key = ""
    else:
        lines.append("  Requests need a key; the command line takes it from CRONWELL_API_KEY.")
        key = '-H "Authorization: Bearer $CRONWELL_API_KEY" '
    if is_every_address(settings.host):
        lines.append(f"  Others reach the API at every address of this machine, port {settings.port}.")
    # By GET, because there is nothing on a fresh installation that takes a POST and does no harm. Itself it may call only
    # where nobody else reaches it.
    called = f"{address}/healthz" if addresses.is_loopback(settings.host) else "https://example.com/"
    target = f'{{"http": {{"url": "{called}", "method": "GET"}}}}'
    lines += [
        "",
        "Make a first job:",
        f"  curl {address}/v1/jobs {key}-H 'content-type: application/json' \\",
        f'    -d \'{{"name": "hello", "schedule": "*/10 * * * * *", "target": {target}}}\'',
        "",
        "Ctrl-C drains and stops everything.",
    ]
    return lines
