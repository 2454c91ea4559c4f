"""Secrets by their names: found wherever they may stand, put in their places, and hidden in whatever comes back."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cronwell.model.job import Target
from cronwell.model.naming import filled_target, named_by_target
from cronwell.model.references import SHORTEST_HIDDEN, Hidden, filled, named_in

TOKEN = "tok-8f2c91e7d5b04a63"
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=4, max_size=80)
PAYLOADS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.just({"secret": "a"}),
    lambda below: (
        st.lists(below, max_size=4) | st.dictionaries(st.sampled_from(["x", "y", "z"]), below, max_size=3)
    ),
    max_leaves=12,
)


def test_a_payload_names_secrets_by_objects_that_are_exactly_that() -> None:
    payload = {
        "a": {"secret": "one"},
        "list": [1, {"deep": {"secret": "two"}}, {"secret": "one"}],
        "not": {"secret": "three", "beside": 1},
        "nor": {"secret": 5},
        "secret": {"secret": "four"},
    }
    assert named_in(payload) == [
        ("payload.a", "one"),
        ("payload.list.1.deep", "two"),
        ("payload.list.2", "one"),
        ("payload.secret", "four"),
    ]
    values = {"one": "1", "two": "2", "four": "4"}
    assert filled(payload, values) == {
        "a": "1",
        "list": [1, {"deep": "2"}, "1"],
        "not": {"secret": "three", "beside": 1},
        "nor": {"secret": 5},
        "secret": "4",
    }
    assert filled({"secret": "one"}, values) == "1"


@given(PAYLOADS)
def test_what_is_filled_names_nothing_and_the_given_stays_as_it_is(payload: Any) -> None:
    before = json.dumps(payload)
    put = filled(payload, {"a": "value"})
    assert named_in(put) == []
    assert json.dumps(payload) == before
    assert str(put).count("value") == len(named_in(payload))


def test_a_target_is_filled_and_the_one_that_others_share_is_not_changed() -> None:
    headers = {"Authorization": {"secret": "t", "prefix": "Bearer "}, "X-Plain": "as it is"}
    target = Target.model_validate({"http": {"url": "https://example.com", "headers": headers}})
    assert named_by_target(target) == {"t"}
    put = filled_target(target, {"t": TOKEN})
    assert put.http is not None
    assert put.http.headers == {"Authorization": f"Bearer {TOKEN}", "X-Plain": "as it is"}
    assert named_by_target(target) == {"t"}
    plain = Target.model_validate({"handler": {"name": "work"}})
    assert filled_target(plain, {}) is plain
    shell = Target.model_validate({"shell": {"command": "env", "env": {"A": {"secret": "t"}, "B": "b"}}})
    put = filled_target(shell, {"t": "line\nline"})
    assert put.shell is not None
    assert put.shell.env == {"A": "line\nline", "B": "b"}


@pytest.mark.parametrize("value", ["two\r\nlines", "snow ☃", "nul\0", "tail-of-it\n"])
def test_a_value_that_no_header_can_carry_is_refused_without_telling_it(value: str) -> None:
    target = Target.model_validate(
        {"http": {"url": "https://example.com", "headers": {"X": {"secret": "odd"}}}}
    )
    with pytest.raises(ValueError, match="'odd' has characters that a header cannot carry") as refused:
        filled_target(target, {"odd": value})
    assert value.strip() not in str(refused.value)


@given(VALUES, st.text(max_size=30), st.text(max_size=30))
def test_no_value_is_left_in_a_text(value: str, before: str, after: str) -> None:
    assume(len(value.strip()) >= SHORTEST_HIDDEN)
    hidden = Hidden({"name": value})
    for form in (
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value, safe=""),
    ):
        masked = hidden.mask(before + form + after)
        assert "[secret name]" in masked
        # What is written around it may hold the value too, or complete another.
        if form not in "[secret name]":
            assert form not in masked.replace("[secret name]", "\x01")


@given(
    st.integers(1, len(TOKEN) - 1),
    st.text(alphabet="abc \n", max_size=40),
    st.characters(exclude_characters="\0…"),
)
def test_where_a_text_was_cut_its_end_tells_nothing_of_a_value(length: int, before: str, wrong: str) -> None:
    hidden = Hidden({"token": TOKEN, "short": "1234"})
    kept = f"{TOKEN} was sent; {before}"
    right = kept + TOKEN[:length]
    masked = hidden.mask(right, was_cut=True)
    assert masked.endswith("…")
    assert f"[secret token] was sent; {before}…".startswith(masked[:-1])
    assert len(masked) >= len("[secret token] was sent; ") + len(before) + length - len(TOKEN)
    guess = kept + TOKEN[: length - 1] + wrong
    assert hidden.mask(guess, was_cut=True) == masked, "a wrong guess looks like a right one"
    assert hidden.mask(right) == f"[secret token] was sent; {before}{TOKEN[:length]}"
    error = "answered 500: " + "x" * 300
    told = hidden.mask_error(f"{error}{TOKEN[:length]}…")
    # A part that is long enough is found wherever it is.
    assert told == f"{error}[secret token]…" or f"{error}…".startswith(told[:-1])


def test_what_was_cut_and_has_no_value_to_hide_stays_as_it_is() -> None:
    assert Hidden({}).mask("as it was", was_cut=True) == "as it was"
    assert Hidden({"tiny": "abc"}).mask("as it was", was_cut=True) == "as it was"


@given(st.integers(12, len(TOKEN)), st.booleans())
def test_a_long_error_holds_no_long_part_of_a_value(length: int, is_end: bool) -> None:
    part = TOKEN[-length:] if is_end else TOKEN[:length]
    error = f"pointed to {'x' * 300}{part}; redirects are not followed"
    assert Hidden({"token": TOKEN}).mask_error(error) == (
        f"pointed to {'x' * 300}[secret token]; redirects are not followed"
    )


def test_values_within_each_other_and_within_what_stands_for_them_are_told_apart() -> None:
    hidden = Hidden({"short": "secret", "long": "secret-and-more", "tiny": "abc"})
    assert hidden.mask("secret-and-more, secret, abc") == "[secret long], [secret short], abc"


def test_each_line_of_a_long_value_is_hidden() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nBAQEFAASCBKcwggSjAgEA\n-----END PRIVATE KEY-----\n"
    hidden = Hidden({"pem": pem})
    assert hidden.mask("read BAQEFAASCBKcwggSjAgEA\r\n") == "read [secret pem]\r\n"
    assert "MIIEvQ" not in hidden.mask(json.dumps({"key": pem}))


def test_values_of_any_size_are_looked_for_in_a_moment() -> None:
    values = {f"s{n}": f"{n:04d}" * 16_000 for n in range(8)} | {
        "lines": "\n".join(map(str, range(10**8, 10**8 + 5000)))
    }
    hidden = Hidden(values)
    assert len(hidden.forms) < 1000
    assert hidden.mask("a" * 65_536) == "a" * 65_536
    assert hidden.mask("a" * 65_536, was_cut=True) == "a" * (65_536 - 64_000 + 1) + "…"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ('p<ss&word"1', "p&lt;ss&amp;word&quot;1"),
        ('p<ss&word"1', 'p&lt;ss&amp;word"1'),
        ("it's-a-secret", "it'\\''s-a-secret"),
        ("wörd-4e1f93ab", "wÃ¶rd-4e1f93ab"),
    ],
)
def test_a_value_is_found_as_error_pages_shells_and_servers_write_it(value: str, shown: str) -> None:
    assert Hidden({"name": value}).mask(f"<p>{shown}</p>") == "<p>[secret name]</p>"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=8), below, max_size=4),
)


@given(JSON, st.sampled_from(["true", "null", "2026", '":[{', '},{"', "alse"]))
def test_what_was_json_is_json_without_values_too(told: Any, value: str) -> None:
    """PostgreSQL refuses anything else, and with it all that others tell at the same time."""
    json.loads(Hidden({"name": value}).mask_json(json.dumps(told)))


def test_a_value_that_is_a_number_or_a_word_is_hidden_in_json() -> None:
    hidden = Hidden({"pin": "2026", "word": "true"})
    told = {"year": 2026, "rows": 120269, "is_2026": True, "text": "in 2026", "left": 1}
    assert json.loads(hidden.mask_json(json.dumps(told))) == {
        "year": "[secret pin]",
        "rows": "1[secret pin]9",
        "is_[secret pin]": "[secret word]",
        "text": "in [secret pin]",
        "left": 1,
    }
