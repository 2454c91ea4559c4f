"""The way to etcd: TLS, users, several servers; and every failure says what to do."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import trustme

from cronwell import errors, telemetry
from cronwell.config import EtcdSettings
from cronwell.coordination.etcd import EtcdCoordination
from cronwell.coordination.port import Member
from cronwell.runtime.service import run_services
from tests.support.etcd import EtcdServer, fresh_settings, temporary_etcd
from tests.support.proxy import proxy_to

TTL = timedelta(seconds=30)
ANN = Member(uuid4())
PATIENT = fresh_settings(timeout=timedelta(seconds=5))


@dataclasses.dataclass(frozen=True, slots=True)
class Guarded:
    """An etcd that speaks TLS only, wants a certificate, and knows two users of whom one may do nothing."""

    server: EtcdServer
    settings: EtcdSettings
    directory: Path
    login: list[str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("certificates")
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(directory / "authority.pem")
    stranger.cert_pem.write_to_path(directory / "stranger.pem")
    # etcd's own gateway asks etcd at its address, as a client with the server's certificate.
    served = authority.issue_cert("127.0.0.1", "etcd.example")
    shown = authority.issue_cert("cronwell.example")
    unknown = stranger.issue_cert("cronwell.example")
    for name, certificate in (("served", served), ("shown", shown), ("unknown", unknown)):
        certificate.private_key_pem.write_to_path(directory / f"{name}.key")
        for part in certificate.cert_chain_pems:
            part.write_to_path(directory / f"{name}.pem", append=True)
    options = [
        f"--cert-file={directory / 'served.pem'}",
        f"--key-file={directory / 'served.key'}",
        f"--trusted-ca-file={directory / 'authority.pem'}",
        "--client-cert-auth",
    ]
    with temporary_etcd(*options, scheme="https") as server:
        login = [
            f"--cacert={directory / 'authority.pem'}",
            f"--cert={directory / 'shown.pem'}",
            f"--key={directory / 'shown.key'}",
        ]
        for command in (
            "user add root:rootword",
            "user grant-role root root",
            "role add keeper",
            "role grant-permission keeper --prefix=true readwrite /cronwell/",
            "user add cronwell:s@cret",
            "user grant-role cronwell keeper",
            "user add nobody:password",
            "auth enable",
        ):
            server.ctl(*login, *command.split())
        yield Guarded(
            server,
            EtcdSettings(
                ca=str(directory / "authority.pem"),
                cert=str(directory / "shown.pem"),
                key=str(directory / "shown.key"),
                user="cronwell",
                password="s@cret",
                timeout=timedelta(seconds=5),
            ),
            directory,
            login,
        )


@contextlib.asynccontextmanager
async def opened(address: str, settings: EtcdSettings) -> AsyncIterator[EtcdCoordination]:
    coordination = EtcdCoordination(address, settings, on_error=telemetry.service_failed)
    try:
        yield coordination
    finally:
        await coordination.close()


async def refusal(address: str, settings: EtcdSettings) -> str:
    async with opened(address, settings) as coordination:
        with pytest.raises(errors.CoordinationUnavailable) as caught:
            await coordination.beat(ANN, TTL)
    return str(caught.value)


async def test_a_member_may_come_by_tls_with_a_certificate_and_a_password(guarded: Guarded) -> None:
    async with opened(guarded.server.address, guarded.settings) as coordination:
        assert (await coordination.beat(ANN, TTL)).members == {ANN.id: ANN}
        assert await coordination.take({"a": None}, ANN.id) == {"a"}
        told = asyncio.Event()
        stop = asyncio.Event()
        watching = asyncio.create_task(run_services([coordination.watch(told.set)], stop=stop))
        async with asyncio.timeout(5):
            await told.wait()
            told.clear()
            await coordination.leave(ANN.id)
            await told.wait()
        stop.set()
        await watching


def connections_to(port: int) -> int:
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(there.endswith(f":{port:04X}") and state == "01" for _, _, there, state, *_ in lines)


async def test_a_watch_of_a_server_that_has_fallen_silent_leaves_no_connection_behind(
    guarded: Guarded,
) -> None:
    async with proxy_to(guarded.server.url) as proxy:
        async with opened(f"etcds://127.0.0.1:{proxy.port}", guarded.settings) as coordination:
            told, stop = asyncio.Event(), asyncio.Event()
            watching = asyncio.create_task(run_services([coordination.watch(told.set)], stop=stop))
            async with asyncio.timeout(5):
                await told.wait()
            assert connections_to(proxy.port) > 0
            proxy.go_silent()
            stop.set()
            await watching
        assert connections_to(proxy.port) == 0


async def test_user_and_password_may_stand_in_the_address(guarded: Guarded) -> None:
    settings = dataclasses.replace(guarded.settings, user="", password="")
    address = f"etcds://cronwell:s%40cret@127.0.0.1:{guarded.server.port}"
    async with opened(address, settings) as coordination:
        assert ANN.id in (await coordination.beat(ANN, TTL)).members


async def test_a_login_that_has_become_invalid_is_made_again(guarded: Guarded) -> None:
    async with opened(guarded.server.address, guarded.settings) as coordination:
        await coordination.beat(ANN, TTL)
        # etcd forgets all logins by that.
        for command in ("disable", "enable"):
            guarded.server.ctl(*guarded.login, "--user=root:rootword", "auth", command)
        assert ANN.id in (await coordination.beat(ANN, TTL)).members


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            {"password": "guess"},
            "it refuses user 'cronwell' or the password: check etcd.user and etcd.password",
        ),
        ({"user": ""}, "it wants a user: set etcd.user and etcd.password"),
        (
            {"user": "nobody", "password": "password"},
            "grant-permission ROLE --prefix=true readwrite /cronwell/",
        ),
        ({"prefix": "/elsewhere/"}, "may not use the keys that start with '/elsewhere/'"),
        ({"ca": "stranger.pem"}, "set etcd.ca (CRONWELL_ETCD_CA) to the certificate of its authority"),
        ({"ca": ""}, "set etcd.ca (CRONWELL_ETCD_CA)"),
        ({"cert": "", "key": ""}, "set etcd.cert and etcd.key"),
        ({"cert": "unknown.pem", "key": "unknown.key"}, "it wants a certificate that it trusts"),
        ({"server_name": "other.example"}, "set etcd.server_name (CRONWELL_ETCD_SERVER_NAME)"),
    ],
    ids=str,
)
async def test_what_etcd_refuses_says_what_to_do(guarded: Guarded, wrong: dict[str, str], told: str) -> None:
    files = {
        name: str(guarded.directory / value) if value.endswith((".pem", ".key")) else value
        for name, value in wrong.items()
    }
    settings = dataclasses.replace(guarded.settings, **files)  # type: ignore[arg-type]  # every one of them is a text
    message = await refusal(guarded.server.address, settings)
    assert told in message
    assert "s@cret" not in message


async def test_a_password_that_was_refused_is_not_tried_at_each_beat(guarded: Guarded) -> None:
    settings = dataclasses.replace(guarded.settings, password="guess")
    async with proxy_to(guarded.server.url) as proxy:
        address = f"etcds://127.0.0.1:{proxy.port}"
        coordination = EtcdCoordination(address, settings, on_error=telemetry.service_failed)
        for _ in range(3):
            with pytest.raises(errors.CoordinationUnavailable, match="it refuses user 'cronwell'"):
                await coordination.beat(ANN, TTL)
            # Whoever asks again needs a new connection.
            proxy.cut()
        assert proxy.connections == 1
        await coordination.close()


async def test_another_name_may_be_asked_of_the_certificate(guarded: Guarded) -> None:
    settings = dataclasses.replace(guarded.settings, server_name="etcd.example")
    async with opened(guarded.server.address, settings) as coordination:
        assert ANN.id in (await coordination.beat(ANN, TTL)).members


async def test_tls_and_no_tls_are_told_apart(guarded: Guarded, etcd_url: str) -> None:
    plain = etcd_url.removeprefix("http://")
    assert "use etcd:// instead of etcds://" in await refusal(f"etcds://{plain}", PATIENT)
    message = await refusal(f"etcd://127.0.0.1:{guarded.server.port}", PATIENT)
    assert "use etcds:// instead of etcd://" in message


async def test_an_etcd_without_a_gateway_is_told_about() -> None:
    with temporary_etcd("--enable-grpc-gateway=false") as server:
        assert "start etcd without --enable-grpc-gateway=false" in await refusal(server.address, PATIENT)


async def test_a_user_is_no_trouble_where_none_is_asked_for(etcd_url: str) -> None:
    settings = dataclasses.replace(PATIENT, user="ann", password="secret")
    async with opened(etcd_url.replace("http", "etcd"), settings) as coordination:
        assert ANN.id in (await coordination.beat(ANN, TTL)).members


@pytest.mark.parametrize(
    ("address", "given", "told"),
    [
        ("etcd://one", {"ca": "x.pem"}, "make it etcds://"),
        ("etcds://one", {"cert": "x.pem"}, "go together"),
        ("etcds://one", {"ca": "/nowhere/x.pem"}, "cannot read /nowhere/x.pem: No such file"),
        ("etcds://one", {"ca": __file__}, "no certificates and key in PEM form"),
    ],
)
async def test_settings_that_cannot_be_meant_are_refused_at_start(
    address: str, given: dict[str, str], told: str
) -> None:
    with pytest.raises(errors.ConfigError, match=told.replace("(", r"\(")):
        EtcdCoordination(address, EtcdSettings(**given), on_error=telemetry.service_failed)  # type: ignore[arg-type]  # texts


async def test_the_next_server_is_asked_where_one_is_away_or_silent(etcd_url: str) -> None:
    settings = fresh_settings(timeout=timedelta(seconds=3))
    async with proxy_to(etcd_url) as away, proxy_to(etcd_url) as silent, proxy_to(etcd_url) as well:
        servers = ",".join(f"127.0.0.1:{each.port}" for each in (away, silent, well))
        await away.close()
        silent.go_silent()
        async with opened(f"etcd://{servers}", settings) as coordination:
            assert ANN.id in (await coordination.beat(ANN, TTL)).members
            asked = silent.connections
            assert ANN.id in (await coordination.beat(ANN, TTL)).members
            assert silent.connections == asked, "the one that was silent was asked first again"
            silent.speak()
            await well.close()
            assert ANN.id in (await coordination.beat(ANN, TTL)).members


async def test_a_silent_server_is_given_up_in_time(etcd_url: str) -> None:
    async with proxy_to(etcd_url) as proxy:
        proxy.go_silent()
        settings = fresh_settings(timeout=timedelta(milliseconds=300))
        began = asyncio.get_running_loop().time()
        message = await refusal(f"etcd://127.0.0.1:{proxy.port}", settings)
        assert "no answer" in message
        assert asyncio.get_running_loop().time() - began < 2
