"""Secrets on their way: workers put them in their places, receivers get them, and nothing that is kept shows them."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from cronwell.config import HttpSettings, SecretSettings, Settings, ShellSettings
from cronwell.control.secrets import Secrets
from cronwell.model.execution import State
from cronwell.runtime.keyring import Keyring
from cronwell.runtime.programs import MAJOR_VERSION
from cronwell.store.port import SealedSecret
from cronwell.store.postgres.store import PostgresStore
from cronwell.targets.egress import Egress
from cronwell.targets.handler import Context
from cronwell.targets.http import HttpRunner
from cronwell.targets.shell import ShellRunner
from cronwell.worker import vault
from tests.schema.servers import installed
from tests.support.house import CALLER, SECOND, TENANT, House
from tests.support.waiting import until_async

VALUES = {"token": "tok-4e1f93ab77c0d2", "db": 'p"ss\\wörd-8812', "key": "line-one-of-it\nline-two-of-it\n"}
ONCE = {"max_attempts": 1}
QUICK = {"initial_delay": "50ms", "max_delay": "50ms", "jitter": 0}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text(new_key())
    return file


def rewrite(file: Path, change: Callable[[str], str]) -> None:
    file.write_text(change(file.read_text()))


def new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


@dataclass
class SafeHouse:
    """A house with a key, three secrets, and a receiver that sends back all it was sent."""

    house: House
    secrets: Secrets
    url: str
    received: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    status: int = 200

    @asynccontextmanager
    async def working(self, keys: SecretSettings | None = None) -> AsyncIterator[None]:
        """A worker of this process, with other keys if they are given."""
        if keys is not None:
            self.house.settings = dataclasses.replace(self.house.settings, secrets=keys)
        limit = self.house.settings.worker.output_limit
        http = HttpRunner(HttpSettings(), Egress(("127.0.0.0/8",)), self.house.clock, limit)
        shell = ShellRunner(ShellSettings(enabled=True), limit)
        try:
            async with self.house.working({"http": http, "shell": shell}, heartbeat=SECOND / 5):
                yield
        finally:
            await http.close()

    async def everything(self) -> str:
        """All that the database holds, as text."""
        tables = await self.house.database.fetch(
            "select c.relname from pg_class as c where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace"
        )
        rows = []
        for table in tables:
            found = await self.house.database.fetch(f'select t::text as row from "{table["relname"]}" as t')
            rows += [row["row"] for row in found]
        return "\n".join(rows)


@pytest.fixture
async def safe(migrated_url: str, key_file: Path) -> AsyncIterator[SafeHouse]:
    settings = dataclasses.replace(
        Settings(), secrets=SecretSettings(key_file=str(key_file)), shell=ShellSettings(enabled=True)
    )
    house = await House.open(migrated_url, settings)
    made = SafeHouse(house, Secrets(house.store, house.clock, Keyring(settings.secrets)), "")

    async def echo(request: web.Request) -> web.Response:
        body = await request.json()
        made.received.append((dict(request.headers), body))
        told = {"headers": dict(request.headers), "body": body}
        return web.json_response(told, status=made.status)

    app = web.Application()
    app.router.add_post("/run", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/run"
    for name, value in VALUES.items():
        await made.secrets.put(CALLER, name, value)
    yield made
    await runner.cleanup()
    await house.close()


def shown(text: str) -> list[str]:
    """The secrets of which a text shows anything."""
    parts = {"token": ["4e1f93ab77"], "db": ["wörd-8812", "rd-8812"], "key": ["line-one", "line-two"]}
    return [name for name, told in parts.items() if any(each in text for each in told)]


async def test_a_receiver_gets_the_values_and_what_it_sends_back_is_kept_without_them(
    safe: SafeHouse, capfd: pytest.CaptureFixture[str]
) -> None:
    headers = {"Authorization": {"secret": "token", "prefix": "Bearer "}, "X-Plain": "plain"}
    payload = {"db": {"secret": "db"}, "list": [{"secret": "key"}, {"secret": "x", "beside": 1}]}
    target = {"http": {"url": safe.url, "headers": headers}}
    await safe.house.create(target=target, payload=payload, retry=ONCE, overlap="allow")
    async with safe.working():
        done = await safe.house.until_state(await safe.house.trigger(), State.SUCCEEDED)
        safe.status = 500
        failed = await safe.house.until_state(await safe.house.trigger(), State.FAILED)
    for got, body in safe.received:
        assert got["Authorization"] == f"Bearer {VALUES['token']}"
        assert body["payload"] == {"db": VALUES["db"], "list": [VALUES["key"], {"secret": "x", "beside": 1}]}
    assert len(safe.received) == 2
    assert done.output is not None
    assert shown(done.output) == []
    assert '"Authorization": "Bearer [secret token]"' in done.output
    assert '"db": "[secret db]"' in done.output
    assert "[secret key]" in done.output
    assert '"X-Plain": "plain"' in done.output
    assert (failed.error_kind, shown(failed.error or ""), shown(failed.output or "")) == (
        "http_status",
        [],
        [],
    )
    assert "answered 500" in (failed.error or "")
    logged = capfd.readouterr()
    assert shown(logged.out + logged.err) == []


async def test_a_command_gets_the_values_and_what_it_prints_is_kept_without_them(safe: SafeHouse) -> None:
    command = 'echo "$TOKEN / $DSN"; printf %s "$TOKEN" | wc -c; cat; printf %s "$KEY" >&2; exit $CODE'
    env = {
        "TOKEN": {"secret": "token"},
        "DSN": {"secret": "db", "prefix": "postgresql://app:"},
        "KEY": {"secret": "key"},
        "CODE": "3",
    }
    payload = {"token": {"secret": "token"}}
    await safe.house.create(target={"shell": {"command": command, "env": env}}, payload=payload, retry=ONCE)
    async with safe.working():
        done = await safe.house.until_state(await safe.house.trigger(), State.FAILED)
    assert done.error == "the command exited with code 3"
    assert done.output == (
        f"[secret token] / postgresql://app:[secret db]\n{len(VALUES['token'])}\n"
        '{"token":"[secret token]"}[secret key]'
    )


async def test_a_handler_gets_the_values_and_neither_output_error_nor_progress_shows_them(
    safe: SafeHouse,
) -> None:
    seen: list[Any] = []
    go_on = asyncio.Event()

    async def work(ctx: Context) -> None:
        seen.append(ctx.payload)
        ctx.heartbeat({"at": ctx.payload["db"]})
        await go_on.wait()
        raise ValueError(f"cannot log in with {ctx.payload}")

    safe.house.registry.add(work, "work")
    await safe.house.create(payload={"db": {"secret": "db"}}, retry=ONCE)
    async with safe.working():
        key = await safe.house.trigger()

        async def reported() -> Any:
            return (await safe.house.get(key)).progress

        progress = await until_async(reported, within=15)
        go_on.set()
        done = await safe.house.until_state(key, State.FAILED)
    assert seen == [{"db": VALUES["db"]}]
    assert orjson.loads(progress) == {"at": "[secret db]"}
    assert (done.error or "").startswith("ValueError: cannot log in with {'db': '[secret db]'}\n")
    assert shown(done.error or "") == []


async def test_output_that_is_cut_within_a_value_does_not_show_its_beginning(safe: SafeHouse) -> None:
    """Three bytes are left of it at the most."""
    limit = safe.house.settings.worker.output_limit
    command = f'head -c {limit - 9} /dev/zero | tr "\\0" x; echo "$TOKEN"'
    env = {"TOKEN": {"secret": "token"}}
    await safe.house.create(target={"shell": {"command": command, "env": env}})
    async with safe.working():
        done = await safe.house.until_state(await safe.house.trigger(), State.SUCCEEDED)
    assert done.output_truncated
    assert (done.output or "").endswith("xxx…")


async def test_a_dump_of_the_database_has_no_value_in_it(safe: SafeHouse) -> None:
    target = {"http": {"url": safe.url, "headers": {"X-Token": {"secret": "token"}}}}
    await safe.house.create(target=target, payload={"db": {"secret": "db"}, "key": {"secret": "key"}})
    async with safe.working():
        await safe.house.until_state(await safe.house.trigger(), State.SUCCEEDED)
    everything = await safe.everything()
    assert "[secret token]" in everything
    dump = await _dumped(safe.house.url)
    assert b"[secret token]" in dump
    kept = await safe.house.store.sealed_secrets([(TENANT, name) for name in VALUES])
    assert len(kept) == 3
    for text in (everything, dump.decode()):
        assert shown(text) == []
        for value in VALUES.values():
            raw = value.encode()
            assert value not in text
            assert raw.hex() not in text
            assert base64.b64encode(raw).decode() not in text


async def _dumped(url: str) -> bytes:
    """What pg_dump makes of a database."""
    program = installed()[MAJOR_VERSION] / "pg_dump"
    process = await asyncio.create_subprocess_exec(
        str(program), "--dbname", url, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    dump, _ = await process.communicate()
    assert process.returncode == 0
    return dump


async def test_a_ciphertext_that_is_moved_in_the_database_is_refused(safe: SafeHouse) -> None:
    """To another name, and to another tenant: whoever can write to the database learns nothing by it."""
    database = safe.house.database
    await database.execute(
        "insert into tenants (id, name, weight, signing_secret, created_at) values (2, 'other', 1, 'whsec_x', now())"
    )
    await database.execute("delete from secrets where name = 'key'")
    await database.execute("update secrets set name = 'key' where name = 'token'")
    await database.execute("update secrets set tenant_id = 2 where name = 'db'")
    target = {"http": {"url": safe.url, "headers": {"X-Token": {"secret": "key"}}}}
    await safe.house.create(target=target, retry=ONCE)
    other = dataclasses.replace(CALLER, tenant_id=2)
    await safe.house.jobs.create(
        other,
        {"name": "job", "target": {"http": {"url": safe.url}}, "payload": {"secret": "db"}, "retry": ONCE},
    )
    async with safe.working():
        done = await safe.house.until_state(await safe.house.trigger(), State.FAILED)
        answered = await safe.house.executions.trigger(2, "name:job")

        async def ended() -> str | None:
            view = await safe.house.executions.get(2, orjson.loads(answered.body)["id"])
            return view.error if view.state is State.FAILED else None

        told = await until_async(ended, within=15)
    assert (done.error_kind, safe.received) == ("secret", [])
    for error, name in ((done.error, "key"), (told, "db")):
        assert f"the secret '{name}' is not what was written there" in (error or "")
        assert shown(error or "") == []


async def test_a_secret_that_is_set_anew_is_used_soon_and_one_that_is_gone_fails_the_attempt(
    safe: SafeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vault, "KEPT_SECONDS", 0.0)
    target = {"http": {"url": safe.url, "headers": {"X-Token": {"secret": "token"}}}}
    await safe.house.create(target=target, retry={"max_attempts": 100, **QUICK})
    async with safe.working():
        await safe.house.until_state(await safe.house.trigger(), State.SUCCEEDED)
        await safe.secrets.put(CALLER, "token", "another-value")
        await safe.house.until_state(await safe.house.trigger(), State.SUCCEEDED)
        await safe.secrets.delete(CALLER, "token", is_forced=True)
        key = await safe.house.trigger()
        waiting = await safe.house.until_state(key, State.RETRYING)
        assert (waiting.error_kind, "`cronwell secret set token`" in (waiting.error or "")) == (
            "secret",
            True,
        )
        await safe.secrets.put(CALLER, "token", "back-again")
        await safe.house.until_state(key, State.SUCCEEDED)
    assert [headers["X-Token"] for headers, _ in safe.received] == [
        VALUES["token"],
        "another-value",
        "back-again",
    ]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            SecretSettings(),
            "this worker cannot read secrets: there is no key for secrets; set secrets.key_file",
        ),
        (SecretSettings(key="cd" * 32), "which this worker does not have; set secrets.key_file"),
        (
            SecretSettings(key_file="/nowhere/keys"),
            "secrets.key_file (CRONWELL_SECRETS_KEY_FILE) cannot be read",
        ),
        (
            SecretSettings(key_command="false"),
            "secrets.key_command (CRONWELL_SECRETS_KEY_COMMAND) ended with 1",
        ),
    ],
)
async def test_a_worker_without_the_right_key_says_what_to_set(
    keys: SecretSettings, said: str, safe: SafeHouse
) -> None:
    await safe.house.create(payload={"secret": "token"}, target={"http": {"url": safe.url}}, retry=ONCE)
    async with safe.working(keys):
        done = await safe.house.until_state(await safe.house.trigger(), State.FAILED)
    assert (done.error_kind, said in (done.error or ""), safe.received) == ("secret", True, [])


async def test_a_rotation_of_the_key_is_not_noticed_by_jobs(safe: SafeHouse, key_file: Path) -> None:
    await safe.house.create(payload={"secret": "token"}, target={"http": {"url": safe.url}}, overlap="allow")
    async with safe.working():
        await safe.house.until_state(await safe.house.trigger(), State.SUCCEEDED)
        rewrite(key_file, lambda old: f"{new_key()}\n{old}")
        before = await safe.house.store.sealed_secrets([(TENANT, "token")])
        rotated = await safe.secrets.rotate(CALLER, cursor=None)
        after = await safe.house.store.sealed_secrets([(TENANT, "token")])
        assert (rotated.rewrapped, rotated.left) == (3, 0)
        await safe.house.until_state(await safe.house.trigger(), State.SUCCEEDED)
    # Another worker, which has never had the old key.
    rewrite(key_file, lambda keys: keys.splitlines()[0])
    async with safe.working():
        await safe.house.until_state(await safe.house.trigger(), State.SUCCEEDED)
    assert [body["payload"] for _, body in safe.received] == [VALUES["token"]] * 3
    assert before[0].sealed.ciphertext == after[0].sealed.ciphertext
    assert before[0].sealed.wrapped_key != after[0].sealed.wrapped_key


async def test_a_payload_that_names_what_the_job_no_longer_does_fails_the_attempt(safe: SafeHouse) -> None:
    target = {"http": {"url": safe.url, "headers": {"X-Token": {"secret": "token"}}}}
    job = await safe.house.create(target=target, retry=ONCE)
    key = await safe.house.trigger(payload={"mine": {"secret": "token"}})
    await safe.house.jobs.patch(CALLER, str(job), {"target": {"http": {"headers": None}}}, revision=None)
    async with safe.working():
        done = await safe.house.until_state(key, State.FAILED)
    assert (done.error_kind, "which the job's own definition does not" in (done.error or "")) == (
        "secret",
        True,
    )
    assert safe.received == []


async def test_a_value_that_no_header_can_carry_fails_the_attempt(safe: SafeHouse) -> None:
    target = {"http": {"url": safe.url, "headers": {"X-Key": {"secret": "key"}}}}
    await safe.house.create(target=target, retry=ONCE)
    async with safe.working():
        done = await safe.house.until_state(await safe.house.trigger(), State.FAILED)
    assert (done.error_kind, "a header cannot carry" in (done.error or "")) == ("secret", True)
    assert shown(done.error or "") == []


class Counting(PostgresStore):
    """Counts how often secrets are read."""

    reads: list[int]

    async def sealed_secrets(self, keys: Sequence[tuple[int, str]]) -> list[SealedSecret]:
        self.reads.append(len(keys))
        return await super().sealed_secrets(keys)


async def test_secrets_are_read_once_for_many_attempts_and_never_for_those_that_name_none(
    safe: SafeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vault, "KEPT_SECONDS", 60.0)
    store = Counting(safe.house.database)
    store.reads = []
    safe.house.store = store
    safe.house.registry.add(lambda: None, "work")
    await safe.house.create("plain", overlap="allow")
    await safe.house.create("one", overlap="allow", payload=[{"secret": "token"}, {"secret": "db"}])
    await safe.house.create("two", overlap="allow", payload={"secret": "db"})
    plain = [await safe.house.trigger("plain") for _ in range(20)]
    async with safe.working():
        for key in plain:
            await safe.house.until_state(key, State.SUCCEEDED)
    assert store.reads == []
    named = [await safe.house.trigger(name) for name in ("one", "two") for _ in range(20)]
    async with safe.working():
        for key in named:
            await safe.house.until_state(key, State.SUCCEEDED)
    assert store.reads == [2]


async def test_a_value_that_is_a_number_costs_nobody_their_worker(safe: SafeHouse) -> None:
    """What PostgreSQL cannot read as JSON is refused with all that is written beside it, and ended the worker."""
    await safe.secrets.put(CALLER, "year", "2026")
    command = 'echo 2026 > $CRONWELL_CHECKPOINT_FILE; sleep 0.3; echo "$YEAR"; exit 1'
    target = {"shell": {"command": command, "env": {"YEAR": {"secret": "year"}}}}
    await safe.house.create("poison", target=target, retry=ONCE)

    go_on = asyncio.Event()

    async def tell(context: Context) -> None:
        context.heartbeat({"year": 2026})
        await context.checkpoint({"year": 2026})
        await go_on.wait()

    safe.house.registry.add(tell, "tell")
    await safe.house.create(
        "told", target={"handler": {"name": "tell"}}, payload={"secret": "year"}, retry=ONCE
    )
    async with safe.working():
        poison = await safe.house.until_state(await safe.house.trigger("poison"), State.FAILED)
        assert (poison.output, poison.checkpoint) == ("[secret year]\n", '"[secret year]"')
        key = await safe.house.trigger("told")

        async def reported() -> Any:
            return (await safe.house.get(key)).progress

        assert await until_async(reported, within=15) == '{"year":"[secret year]"}'
        go_on.set()
        told = await safe.house.until_state(key, State.SUCCEEDED)
        assert told.checkpoint == '{"year":"[secret year]"}'
