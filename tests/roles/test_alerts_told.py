"""Alerts as they arrive: at a mail server, a webhook and a chat, each once, whoever judges the rules how often."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from standardwebhooks.webhooks import Webhook

from cronwell.config import HttpSettings, Settings, SmtpSettings
from cronwell.model.execution import ExecutionKey, State
from cronwell.runtime.clock import SystemClock
from cronwell.targets.egress import Egress
from cronwell.targets.email import EmailRunner
from cronwell.targets.http import HttpRunner
from cronwell.targets.registry import Context
from tests.support.house import TENANT, House
from tests.support.smtp import MailServer, mail_server
from tests.support.waiting import until
from tests.targets.rig import Receiver, Request

OPS = "ops@example.com"


@dataclasses.dataclass(frozen=True)
class Site:
    """A house that sends, and those who receive."""

    house: House
    mail: MailServer
    hook: Receiver

    async def judge(self, rounds: int = 3) -> None:
        """Have several schedulers judge the rules at the same time, again and again."""
        chores = [self.house.alerting() for _ in range(3)]
        for _ in range(rounds):
            await asyncio.gather(*(chore.run_once() for chore in chores))

    def mails(self, word: str) -> list[str]:
        return [each.message["Subject"] for each in self.mail.mails if word in each.message["Subject"]]

    def posts(self, path: str) -> list[dict[str, Any]]:
        return [orjson.loads(each.body) for each in self.hook.requests if each.path == path]


@asynccontextmanager
async def site(url: str) -> AsyncIterator[Site]:
    async with mail_server() as mail, Receiver() as hook:
        smtp = SmtpSettings(host="127.0.0.1", port=mail.port, tls="none", sender="cronwell@example.com")
        house = await House.open(url, dataclasses.replace(Settings(), smtp=smtp))
        http = HttpRunner(HttpSettings(), Egress(["127.0.0.0/8"]), SystemClock(), 1000)
        email = EmailRunner(smtp, 1000)
        try:
            async with house.working({"http": http, "email": email}):
                yield Site(house, mail, hook)
        finally:
            await http.close()
            await email.close()
            await house.close()


@pytest.fixture
async def opened(migrated_url: str) -> AsyncIterator[Site]:
    async with site(migrated_url) as made:
        alerts = made.house.alerts
        await alerts.put_channel(TENANT, "mail", {"email": {"to": [OPS]}})
        hook = {"url": made.hook.url(path="/hook"), "headers": {"Authorization": "Bearer hidden"}}
        await alerts.put_channel(TENANT, "hook", {"webhook": hook})
        await alerts.put_channel(TENANT, "chat", {"slack": {"url": made.hook.url(path="/chat")}})
        yield made


async def test_failure_missed_and_resolve_arrive_exactly_once_each(opened: Site) -> None:
    house, everyone = opened.house, ["mail", "hook", "chat"]
    is_broken = True

    def work(_: Context) -> str:
        if is_broken:
            raise RuntimeError("out of paper")
        return "done"

    house.registry.add(work, "work")
    await house.create("invoices", retry={"max_attempts": 1})
    await house.create("backup")
    await house.database.execute(
        "update jobs set updated_at = now() - interval '1 day' where name = 'backup'"
    )
    failing = {"on": {"job": "invoices"}, "when": {"consecutive_failures": 2}, "channels": everyone}
    await house.alerts.put_rule(TENANT, "failing", failing)
    missing = {"on": {"job": "backup"}, "when": {"missed": "2h"}, "channels": everyone, "severity": "warning"}
    await house.alerts.put_rule(TENANT, "missing", missing)

    await house.until_state(await house.trigger("invoices"), State.FAILED)
    await opened.judge()
    newest = await house.trigger("invoices")
    await house.until_state(newest, State.FAILED)
    await opened.judge()
    await until(lambda: len(opened.mail.mails) == 2 and len(opened.hook.requests) == 4)

    is_broken = False
    await house.until_state(await house.trigger("invoices"), State.SUCCEEDED)
    await house.until_state(await house.trigger("backup"), State.SUCCEEDED)
    await opened.judge()
    await until(lambda: len(opened.mail.mails) == 4 and len(opened.hook.requests) == 8)
    await opened.judge()
    sent = [each for each in await house.history() if each.reason == "alert"]
    assert [each.state for each in sent] == [State.SUCCEEDED] * 12

    assert sorted(each.message["Subject"] for each in opened.mail.mails) == [
        "[critical] invoices: failed 2 times in a row",
        "[critical] resolved: invoices: failed 2 times in a row",
        "[warning] backup: had no success within 2h; none is known",
        "[warning] resolved: backup: had no success within 2h; none is known",
    ]
    assert {tuple(each.recipients) for each in opened.mail.mails} == {(OPS,)}
    assert len({each.message["Message-ID"] for each in opened.mail.mails}) == 4
    told = [each["payload"] for each in opened.posts("/hook")]
    assert sorted((each["event"], each["rule"]) for each in told) == [
        ("opened", "failing"),
        ("opened", "missing"),
        ("resolved", "failing"),
        ("resolved", "missing"),
    ]
    assert len({each["incident"] for each in told}) == 2
    [failing] = [each["facts"] for each in told if (each["event"], each["rule"]) == ("opened", "failing")]
    assert failing["execution"] == str(newest)
    assert "out of paper" in failing["error"]
    texts = [each.message.get_content() for each in opened.mail.mails]
    assert sum(f"Execution: {newest}" in text and "out of paper" in text for text in texts) == 2
    texts = sorted(each["text"] for each in opened.posts("/chat"))
    assert texts[0] == "[critical] invoices: failed 2 times in a row"
    assert len(texts) == 4
    secret = await house.store.signing_secret(TENANT)
    for request in opened.hook.requests:
        Webhook(secret).verify(request.body, request.headers)
    assert {each.headers.get("authorization") for each in opened.hook.requests if each.path == "/hook"} == {
        "Bearer hidden"
    }


async def test_a_message_that_does_not_arrive_is_tried_again_and_known_by_its_id(opened: Site) -> None:
    answers = iter([None, "451 later"])
    # Taken, but the answer is lost: the worker cannot know.
    opened.mail.answers["."] = lambda _: next(answers, "250 taken")
    tested = await opened.house.alerts.test(TENANT, "mail")
    key = ExecutionKey.parse(tested.execution)
    for attempt in (2, 3):
        await opened.house.until_state(key, State.RETRYING)
        await opened.house.database.execute(
            "update executions set ready_at = now() where state = 'retrying' and job_id = $1", key.job_id
        )
        await until(lambda wanted=attempt: len(opened.mail.mails) == wanted)  # type: ignore[misc]  # bound now
    ended = await opened.house.until_state(key, State.SUCCEEDED)
    assert (ended.attempt, ended.job_name) == (3, ".alerts/mail")
    assert {each.message["Message-ID"] for each in opened.mail.mails} == {f"<{tested.execution}@example.com>"}
    assert opened.mails("test: ") == ["[info] test: this is a test of the channel mail; nothing is wrong"] * 3


async def test_a_receiver_that_sends_back_what_it_got_shows_nothing_of_a_channel(opened: Site) -> None:
    """Such as one that points from http to https: the address of a chat is all that it takes to write there."""
    house = opened.house
    url = opened.hook.url(path="/services/T024BE7LD/xoxHIDDEN4e1f93ab?key=HIDDENquery")
    headers = {"Authorization": "Bearer HIDDENheader"}
    await house.alerts.put_channel(TENANT, "chat", {"slack": {"url": url, "headers": headers}})

    async def echo(request: Request, writer: asyncio.StreamWriter) -> None:
        said = f"{request.path} is not here, {request.headers['authorization']}, xoxHIDDEN4e1f93ab".encode()
        head = f"HTTP/1.1 301 Moved\r\nLocation: https://127.0.0.1{request.path}\r\nContent-Length: {len(said)}\r\n\r\n"
        writer.write(head.encode() + said)

    opened.hook.answer = echo
    tested = await house.alerts.test(TENANT, "chat")
    ended = await house.until_state(ExecutionKey.parse(tested.execution), State.RETRYING)
    assert ended.error is not None
    assert "pointed to https://127.0.0.1[secret path]" in ended.error
    kept = await house.database.fetch(
        "select e::text as row from executions as e union all select a::text from attempts as a"
    )
    assert not [each["row"] for each in kept if "HIDDEN" in each["row"]]
