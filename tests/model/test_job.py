"""A job's definition: what each part accepts, what it refuses, and what it becomes."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cronwell.model.job import (
    PAYLOAD_DEPTH,
    RESERVED_HEADERS,
    HttpTarget,
    JobSpec,
    OutcomeRule,
    RetryPolicy,
    ShellTarget,
    Target,
    check_json,
)
from cronwell.model.publishing import PublishTarget, RedisStream
from cronwell.model.references import SecretRef

GOOD: dict[str, Any] = {"name": "nightly", "target": {"handler": {"name": "work"}}}


def spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate({**GOOD, **fields})


def refusal(**fields: object) -> str:
    with pytest.raises(ValidationError) as caught:
        spec(**fields)
    return str(caught.value)


def test_a_job_needs_a_name_and_a_target_and_has_sensible_defaults() -> None:
    job = spec()
    assert (job.retry.max_attempts, job.retry.backoff) == (4, "exponential")
    assert (job.timeout, job.priority, job.pool) == (timedelta(minutes=10), "normal", "default")
    assert (job.overlap, job.running_limit, job.catch_up) == ("skip", 1, "last")


@pytest.mark.parametrize("name", ["a", "daily-invoices", "team/x.y_z", "0", "A" * 200])
def test_names_may_be_paths_and_file_names(name: str) -> None:
    assert spec(name=name).name == name


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "ä", "A" * 201, "a\n", "a\0", "name:x"])
def test_names_that_could_be_taken_for_something_else_are_refused(name: str) -> None:
    assert "name" in refusal(name=name)


@pytest.mark.parametrize("pool", ["", "Default", "a.b", "-a", "a" * 64, "a\n"])
def test_pools_have_plain_names(pool: str) -> None:
    assert "pool" in refusal(pool=pool)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "http://example.com:8080/a/b?c=d#e",
        "http://[::1]:9000/",
        "https://xn--bcher-kva.example/%20",
    ],
)
def test_a_url_is_kept_to_the_letter(url: str) -> None:
    assert HttpTarget(url=url).url == url


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("example.com/run", "whole URL"),
        ("ftp://example.com/", "whole URL"),
        ("http:///path", "whole URL"),
        ("https://user:secret@example.com/", "headers"),
        ("https://user@example.com/", "headers"),
        ("http://example.com:0/", "port 0"),
        ("http://example.com:99999/", "not a URL"),
        ("http://[::1/", "not a URL"),
        ("https://.example.com/", "'.example.com' is not a host"),
        ("https://example..com/", "is not a host"),
        (f"https://{'a' * 64}.com/", "1 to 63 characters"),
        ("http://example.com/a b", "percent-encode"),
        ("http://example.com/\n", "percent-encode"),
        ("http://example.com/\x7f", "percent-encode"),
        ("http://" + "a" * 4096, "at most 4096"),
    ],
)
def test_what_is_no_url_to_call_is_refused_with_advice(url: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        HttpTarget(url=url)


@pytest.mark.parametrize(
    "name", [*sorted(RESERVED_HEADERS), "Webhook-Id", "CRONWELL-x", "Proxy-Authorization", "Host"]
)
def test_headers_that_a_delivery_sets_itself_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="set by Cronwell"):
        HttpTarget(url="https://example.com", headers={name: "x"})


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "\0", "\x7f", "snow\N{SNOWMAN}"])
def test_header_values_cannot_smuggle(value: str) -> None:
    with pytest.raises(ValidationError, match="cannot carry"):
        HttpTarget(url="https://example.com", headers={"X-Team": value})


@pytest.mark.parametrize("name", ["", "a b", "a:b", "ä", "a\n"])
def test_header_names_are_tokens(name: str) -> None:
    with pytest.raises(ValidationError):
        HttpTarget(url="https://example.com", headers={name: "x"})


def test_ordinary_headers_are_kept() -> None:
    headers: dict[str, str | SecretRef] = {"Authorization": "Bearer x", "X-Tab": "a\tb", "X-Latin": "é"}
    assert HttpTarget(url="https://example.com", headers=headers).headers == headers


@pytest.mark.parametrize(
    "fields",
    [
        {"command": "a\0b"},
        {"command": ["a", "b\0"]},
        {"command": "a", "env": {"A": "\0"}},
        {"command": "a", "cwd": "/\0"},
        {"command": ""},
        {"command": []},
        {"command": "a", "cwd": "relative"},
        {"command": "a", "env": {"1A": "x"}},
        {"command": "a", "env": {"A=B": "x"}},
    ],
)
def test_commands_that_cannot_be_run_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ShellTarget.model_validate(fields)


def test_a_command_is_a_text_for_the_shell_or_a_list_as_it_is() -> None:
    assert ShellTarget(command="ls | wc").command == "ls | wc"
    assert ShellTarget(command=["ls", "-l", ""]).command == ["ls", "-l", ""]


@pytest.mark.parametrize("name", ["work", "reports.daily", "module:function", "_x", "a-b"])
def test_handlers_are_named_like_functions(name: str) -> None:
    assert spec(target={"handler": {"name": name}}).target.kind == "handler"


@pytest.mark.parametrize("name", ["", "1work", "a b", "a()", "a\n"])
def test_handlers_with_other_names_are_refused(name: str) -> None:
    refusal(target={"handler": {"name": name}})


@pytest.mark.parametrize(
    ("target", "given_kinds"),
    [
        ({}, "none"),
        ({"http": {"url": "https://example.com"}, "handler": {"name": "x"}}, "http, handler"),
        ({"http": None}, "none"),
    ],
)
def test_a_target_is_exactly_one_kind(target: dict[str, Any], given_kinds: str) -> None:
    with pytest.raises(ValidationError, match=f"given: {given_kinds}"):
        Target.model_validate(target)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("https://example.com/run", "http"),
        ({"http": {"url": "https://example.com"}}, "http"),
        ({"shell": {"command": "true"}}, "shell"),
        ({"handler": {"name": "x"}}, "handler"),
        ({"publish": {"redis": {"stream": "orders"}}}, "publish"),
    ],
)
def test_a_target_knows_its_kind_and_a_url_is_an_http_post(target: object, kind: str) -> None:
    found = spec(target=target).target
    assert found.kind == kind
    if found.http is not None:
        assert found.http.method == "POST"


def test_a_publish_target_has_a_broker_and_a_stream() -> None:
    found = spec(target={"publish": {"redis": {"stream": "orders:{eu}"}}}).target.publish
    assert found == PublishTarget(broker="default", redis=RedisStream(stream="orders:{eu}", maxlen=None))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "say where to"),
        ({"broker": "default"}, "say where to"),
        ({"redis": {}}, "stream"),
        ({"redis": {"stream": ""}}, "stream"),
        ({"redis": {"stream": "a b"}}, "stream"),
        ({"redis": {"stream": "a\n"}}, "stream"),
        ({"redis": {"stream": "ü"}}, "stream"),
        ({"redis": {"stream": "x" * 256}}, "stream"),
        ({"redis": {"stream": "x", "maxlen": 0}}, "maxlen"),
        ({"redis": {"stream": "x", "maxlen": "5"}}, "maxlen"),
        ({"redis": {"stream": "x", "maxlen": True}}, "maxlen"),
        ({"redis": {"stream": "x", "maxlen": 10**13}}, "maxlen"),
        ({"redis": {"stream": "x", "database": 3}}, "database"),
        ({"redis": {"stream": "x", "url": "redis://10.0.0.1"}}, "url"),
        ({"broker": "redis://10.0.0.1", "redis": {"stream": "x"}}, "broker"),
        ({"broker": "Events", "redis": {"stream": "x"}}, "broker"),
        ({"broker": "", "redis": {"stream": "x"}}, "broker"),
    ],
)
def test_publish_targets_that_make_no_sense_or_carry_an_address_are_refused(
    fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValidationError, match=told):
        PublishTarget.model_validate(fields)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"max_attempts": 0}, "greater than or equal to 1"),
        ({"max_attempts": 101}, "less than or equal to 100"),
        ({"max_attempts": "4"}, "integer"),
        ({"max_attempts": True}, "integer"),
        ({"max_delay": "8d"}, "at most 7d"),
        ({"initial_delay": "2h"}, "longer than max_delay"),
        ({"initial_delay": 10}, "duration"),
        ({"initial_delay": "-1s"}, "duration"),
        ({"jitter": 1.1}, "less than or equal to 1"),
        ({"jitter": -0.1}, "greater than or equal to 0"),
        ({"jitter": math.nan}, "jitter"),
        ({"backoff": "random"}, "exponential"),
        ({"outcomes": {"cancelled": {}}}, "timed_out"),
    ],
)
def test_retry_policies_that_make_no_sense_are_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        RetryPolicy.model_validate(fields)


def test_an_outcome_may_have_its_own_rule() -> None:
    policy = RetryPolicy.model_validate({"outcomes": {"timed_out": {"retry": False}}})
    assert policy.outcomes == {"timed_out": OutcomeRule(retry=False)}


@pytest.mark.parametrize("timeout", ["1ms", "10m", "7d", "PT15M"])
def test_timeouts_between_their_bounds_are_taken(timeout: str) -> None:
    assert timedelta(milliseconds=1) <= spec(timeout=timeout).timeout <= timedelta(days=7)


@pytest.mark.parametrize("timeout", ["0s", "999us", "7d1us", 30, True, 1.5, None, "soon", ""])
def test_other_timeouts_are_refused(timeout: object) -> None:
    assert "timeout" in refusal(timeout=timeout)


def test_a_limit_goes_with_all_but_allow() -> None:
    assert spec(overlap="allow").running_limit is None
    assert spec(max_running=7).running_limit == 7
    assert spec(overlap="queue_all", max_running=7).running_limit == 7
    assert "has no limit; with `queue_all`" in refusal(overlap="allow", max_running=2)


def test_how_a_slot_beyond_the_limit_waits() -> None:
    kinds = ("allow", "skip", "queue_one", "queue_all", "cancel_running")
    assert [spec(overlap=kind).queueing for kind in kinds] == [
        None,
        None,
        "queue_one",
        "queue_all",
        "cancel_running",
    ]
    assert spec(group={"key": "warehouse"}).group_limit == ("warehouse", 1)
    assert spec(group={"key": "warehouse", "limit": 3}).group_limit == ("warehouse", 3)
    assert spec().group_limit is None
    assert "1" in refusal(group={"key": "warehouse", "limit": 0})
    assert "key" in refusal(group={"limit": 3})
    assert "pattern" in refusal(group={"key": "not a name"})


@pytest.mark.parametrize("fields", [{"max_running": 0}, {"max_running": 10_001}, {"catch_up_limit": 0}])
def test_limits_have_bounds(fields: dict[str, Any]) -> None:
    assert next(iter(fields)) in refusal(**fields)


@pytest.mark.parametrize(
    "tags", [{"a b": "x"}, {"": "x"}, {"a": 1}, {"a": "x" * 257}, {f"k{n}": "x" for n in range(33)}]
)
def test_tags_are_few_short_texts(tags: dict[str, Any]) -> None:
    assert "tags" in refusal(tags=tags)


def test_a_definition_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec().__setattr__("name", "other")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def _has_null_character(value: object) -> bool:
    if isinstance(value, dict):
        return any(_has_null_character(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return any(_has_null_character(part) for part in value)
    return isinstance(value, str) and "\0" in value


@given(json_values)
def test_json_is_a_payload_unless_it_has_a_null_character(value: object) -> None:
    if _has_null_character(value):
        assert "null character" in refusal(payload=value)
    else:
        assert spec(payload=value).payload == value


def nested(depth: int, *, innermost: object = 1) -> object:
    value = innermost
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def test_depth_is_bounded_exactly() -> None:
    check_json(nested(PAYLOAD_DEPTH))
    with pytest.raises(ValueError, match="nested deeper"):
        check_json(nested(PAYLOAD_DEPTH + 1))


def test_bottomless_nesting_is_refused_and_not_followed() -> None:
    with pytest.raises(ValueError, match="nested deeper"):
        check_json(nested(100_000))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("depth", [0, 1, PAYLOAD_DEPTH])
def test_numbers_that_json_does_not_know_are_refused_wherever_they_are(number: float, depth: int) -> None:
    with pytest.raises(ValueError, match="finite"):
        check_json(nested(depth, innermost=number))


@pytest.mark.parametrize("value", ["\0", ["a\0"], {"\0": 1}, {"a": {"b": ["\0"]}}])
def test_a_null_character_is_refused_in_keys_and_values(value: object) -> None:
    with pytest.raises(ValueError, match="null character"):
        check_json(value)


@pytest.mark.parametrize("text", ["30s", "15m", "1h30m", "500ms", "PT15M", "1d"])
def test_what_is_written_out_is_read_back(text: str) -> None:
    job = spec(timeout=text, retry={"initial_delay": "250ms", "max_delay": text})
    assert JobSpec.model_validate_json(job.model_dump_json()) == job
