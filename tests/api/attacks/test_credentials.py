"""Credentials that open nothing: none, made up, over, another's, or sent in another way than the one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from fastapi.routing import APIRoute

from cronwell import errors
from cronwell.api.app import ROUTERS
from cronwell.api.auth import is_callback, is_open
from cronwell.api.role import api
from cronwell.config import Settings
from cronwell.model.access import ALL_SCOPES, Caller, Scope
from tests.api.attacks.conftest import As, Fortress
from tests.api.rig import Rig

ROUTES = [
    (method, route.path_format)
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and not is_open(route.path_format) and not is_callback(route.path_format)
    for method in sorted(route.methods or ())
]
READ = "/v1/jobs"


async def test_no_route_is_answered_without_a_key(fortress: Fortress) -> None:
    replies = {
        (method, path): await fortress.rig.caller.call(method, path.replace("{", "").replace("}", ""))
        for method, path in ROUTES
    }
    assert len(replies) > 40
    told = {each: (reply.status, reply.headers.get("WWW-Authenticate")) for each, reply in replies.items()}
    assert {each: said for each, said in told.items() if said != (401, "Bearer")} == {}


async def test_what_is_not_there_is_not_told_without_a_key(fortress: Fortress) -> None:
    reply = await fortress.rig.caller.get("/v1/nothing")
    assert reply.status == 401


@pytest.mark.parametrize(
    "credential",
    [
        "cw_",
        "cw_000000000000_" + 64 * "0",
        "cw_000000000000_" + 63 * "0",
        "CW_000000000000_" + 64 * "0",
        "cw_' or 1=1 --",
        "cw_" + 10_000 * "a",
        "nothing",
        "a.b.c",
        "..",
    ],
)
async def test_a_key_that_was_made_up_is_not_known(credential: str, fortress: Fortress) -> None:
    reply = await As(fortress.rig.caller, credential.replace(" ", "")).call("GET", READ)
    assert reply.status == 401


async def test_a_key_is_judged_to_its_last_character(fortress: Fortress) -> None:
    good = await fortress.key("ours")
    assert (await good.call("GET", READ)).status == 200
    last = "0" if good.credential[-1] != "0" else "1"
    wrong = [
        good.credential[:-1],
        good.credential + "0",
        good.credential[:-1] + last,
        good.credential.upper(),
        good.credential[:15] + "_" + 64 * "0",
    ]
    for credential in wrong:
        assert (await As(good.client, credential).call("GET", READ)).status == 401


async def test_a_revoked_key_opens_nothing_from_the_next_request_on(fortress: Fortress) -> None:
    good = await fortress.key("ours")
    listed = (await good.call("GET", "/v1/keys")).json["items"]
    [mine] = [each for each in listed if good.credential.startswith(each["prefix"])]
    assert (await good.call("POST", f"/v1/keys/{mine['id']}/revoke")).json["state"] == "revoked"
    reply = await good.call("GET", READ)
    assert (reply.status, "revoked" in reply.json["detail"]) == (401, True)


async def test_an_expired_key_opens_nothing(fortress: Fortress) -> None:
    owner = Caller(fortress.tenant_ids["ours"], ALL_SCOPES, "test")
    soon = fortress.rig.clock.now() + timedelta(milliseconds=1)
    made = await fortress.keys.create(owner, "short", [Scope.READ], expires_at=soon)
    while fortress.rig.clock.now() <= soon:
        pass
    reply = await As(fortress.rig.caller, made.key).call("GET", READ)
    assert (reply.status, "expired" in reply.json["detail"]) == (401, True)


async def test_a_rotated_key_is_good_for_the_time_of_the_overlap_alone(fortress: Fortress) -> None:
    old = await fortress.key("ours")
    [mine] = [
        each
        for each in (await old.call("GET", "/v1/keys")).json["items"]
        if old.credential.startswith(each["prefix"])
    ]
    made = (await old.call("POST", f"/v1/keys/{mine['id']}/rotate", {"overlap": "1h"})).json
    new = As(old.client, made["key"])
    assert [(await each.call("GET", READ)).status for each in (old, new)] == [200, 200]
    again = (await new.call("POST", f"/v1/keys/{made['id']}/rotate", {"overlap": "0s"})).json
    newest = As(old.client, again["key"])
    assert [(await each.call("GET", READ)).status for each in (old, new, newest)] == [200, 401, 200]
    assert (await newest.call("POST", f"/v1/keys/{made['id']}/rotate")).status == 409


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-API-Key", "{key}"),
        ("Authorization", "Basic {key}"),
        ("Authorization", "{key}"),
        ("Authorization", "Bearer {key} {key}"),
        ("Authorization", "Bearer"),
        ("Cookie", "Authorization=Bearer {key}"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("Forwarded", "for=127.0.0.1"),
        ("Host", "127.0.0.1"),
    ],
)
async def test_a_key_counts_in_one_place_alone(name: str, value: str, fortress: Fortress) -> None:
    good = await fortress.key("ours")
    reply = await fortress.rig.caller.call("GET", READ, headers={name: value.format(key=good.credential)})
    assert reply.status == 401
    reply = await fortress.rig.caller.get(f"{READ}?access_token={good.credential}")
    assert reply.status == 401


async def test_two_credentials_are_none(fortress: Fortress) -> None:
    good = await fortress.key("ours")
    sent = [("Authorization", f"Bearer {good.credential}"), ("Authorization", "Bearer other")]
    async with fortress.rig.caller.session.get(f"{fortress.rig.caller.url}{READ}", headers=sent) as reply:
        assert reply.status == 400


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8420", "127.0.0.1.evil.example", "[::2]", "@", ""]
)
async def test_a_name_that_was_made_to_lead_here_is_no_loopback(host: str, rig: Rig) -> None:
    """A page of another site can give its own name our address, and is then of the same origin as we are."""
    reply = await rig.caller.call("GET", READ, headers={"Host": host})
    assert reply.status in (400, 401)
    for own in ("localhost", "localhost:8420", "127.0.0.1", "[::1]:8420", "LOCALHOST."):
        assert (await rig.caller.call("GET", READ, headers={"Host": own})).status == 200


@pytest.mark.parametrize("name", ["X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "Via", "X-Real-IP"])
async def test_what_a_proxy_passed_on_is_not_from_this_machine(name: str, rig: Rig) -> None:
    """A proxy asks for this machine by its own name; whom it lets in is told by what it adds."""
    assert (await rig.caller.call("GET", READ, headers={name: "203.0.113.9"})).status == 401


async def test_a_wrong_key_is_not_taken_for_none(rig: Rig) -> None:
    assert (await rig.caller.get(READ)).status == 200
    reply = await rig.caller.get(READ, Authorization="Bearer cw_000000000000_" + 64 * "0")
    assert reply.status == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "cronwell.example.com"])
async def test_an_address_that_others_reach_takes_a_key(host: str, rig: Rig) -> None:
    async def ready() -> list[str]:
        return []

    async def load() -> bytes:
        return b""

    settings = Settings(host=host)
    store = _Keyless(rig)
    with pytest.raises(errors.ConfigError, match="cronwell bootstrap"):
        await api(store, None, rig.clock, settings, None, is_ready=ready, load_token_keys=load)  # type: ignore[arg-type]  # it gets no further


class _Keyless:
    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    async def has_keys(self, now: object) -> bool:
        return False
