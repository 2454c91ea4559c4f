"""Deliveries as they are written: what makes two of them go to one host."""

from __future__ import annotations

import orjson
import pytest

from cronwell.targets.delivery import _letterhead, build
from cronwell.targets.signing import sign
from tests.targets.rig import SECRET, SLOT, make_call


@pytest.mark.parametrize("url", ["https://Example.COM/run", "HTTPS://example.com:443/other?a=B"])
def test_a_host_is_one_however_its_name_is_written(url: str) -> None:
    assert _letterhead(url, "POST", ()).origin == _letterhead("https://example.com/run", "POST", ()).origin


def test_what_is_asked_for_is_sent_as_it_is_written() -> None:
    assert _letterhead("https://Example.COM/Run?a=B", "POST", ()).head.startswith(
        b"POST /Run?a=B HTTP/1.1\r\n"
    )


@pytest.mark.parametrize("payload", [{"text": "hello"}, None, [1, "ü"]])
def test_a_receiver_that_knows_nothing_of_us_gets_the_payload_alone_and_signed(payload: object) -> None:
    call = make_call({"http": {"url": "https://example.com", "body": "payload"}}, payload=payload)
    assert call.target.http is not None
    _, request = build(call, call.target.http, int(SLOT.timestamp()))
    head, _, body = request.partition(b"\r\n\r\n")
    assert orjson.loads(body) == payload
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert headers["webhook-signature"] == sign(SECRET, call.execution_id, int(SLOT.timestamp()), body)
