"""Checking raw JSON: every problem at once, each by the path of its field, with what is accepted."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell import errors
from cronwell.model.job import JobSpec
from cronwell.model.validation import validate

GOOD: dict[str, Any] = {"name": "nightly", "target": {"handler": {"name": "work"}}}


def problems(**fields: object) -> dict[str, errors.FieldProblem]:
    """What is wrong with a good job that has these fields, by path."""
    with pytest.raises(errors.Invalid) as caught:
        validate(JobSpec, {**GOOD, **fields})
    return {problem.field: problem for problem in caught.value.problems}


def test_a_good_job_is_taken() -> None:
    assert validate(JobSpec, GOOD).name == "nightly"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("shedule", "schedule"),
        ("time_out", "timeout"),
        ("retry.max_atempts", "max_attempts"),
        ("retry.initial-delay", "initial_delay"),
        ("retry.outcomes.failed.max_attempt", "max_attempts"),
        ("retry.outcomes.timed_out.retrying", "retry"),
        ("target.htp", "http"),
        ("target.http.heders", "headers"),
        ("target.http.uri", "url"),
        ("target.shell.comand", "command"),
        ("target.handler.nam", "name"),
    ],
)
def test_an_unknown_field_is_told_the_nearest_one_at_its_own_level(path: str, meant: str) -> None:
    *above, name = path.split(".")
    raw: dict[str, Any] = {name: "x"}
    for part in reversed(above):
        raw = {part: raw}
    problem = problems(**raw)[path]
    assert problem.accepted == meant
    assert str(problem) == f"{path}: unknown field; did you mean {meant!r}?"


def test_an_unknown_field_like_no_other_is_told_them_all() -> None:
    problem = problems(retry={"zzzzzz": 1})["retry.zzzzzz"]
    known = "one of backoff, initial_delay, jitter, max_attempts, max_delay, outcomes"
    assert str(problem) == f"retry.zzzzzz: unknown field; accepted: {known}"


def test_all_problems_are_told_at_once_and_in_order() -> None:
    with pytest.raises(errors.Invalid) as caught:
        validate(
            JobSpec,
            {
                "nam": "x",
                "target": {"http": {"url": "ftp://x.example", "method": "FETCH"}},
                "timeout": "soon",
                "retry": {"max_attempts": 0, "jitter": 2},
                "tags": {"team": 7},
            },
        )
    fields = [problem.field for problem in caught.value.problems]
    assert fields == sorted(
        [
            "nam",
            "name",
            "retry.jitter",
            "retry.max_attempts",
            "tags.team",
            "target.http.method",
            "target.http.url",
            "timeout",
        ]
    )
    assert all(field in str(caught.value) for field in fields)


def test_a_missing_field_is_required() -> None:
    with pytest.raises(errors.Invalid) as caught:
        validate(JobSpec, {})
    assert [(p.field, p.message) for p in caught.value.problems] == [
        ("name", "is required"),
        ("target", "is required"),
    ]


@pytest.mark.parametrize(
    ("fields", "path", "told"),
    [
        ({"priority": "urgent"}, "priority", "'high', 'normal' or 'low'"),
        ({"catch_up": 1}, "catch_up", "'none', 'last' or 'all'"),
        ({"pool": "My Pool"}, "pool", "small letters (a-z), digits"),
        ({"name": "-x"}, "name", "letters (A-Z, a-z), digits"),
    ],
)
def test_what_would_be_accepted_is_said(fields: dict[str, object], path: str, told: str) -> None:
    accepted = problems(**fields)[path].accepted
    assert accepted is not None
    assert told in accepted


def test_what_is_accepted_is_not_said_twice() -> None:
    problem = problems(priority="urgent")["priority"]
    assert str(problem) == "priority: input should be 'high', 'normal' or 'low'"


@pytest.mark.parametrize(
    ("fields", "path", "given_type"),
    [
        ({"name": 5}, "name", "int"),
        ({"tags": []}, "tags", "list"),
        ({"retry": "often"}, "retry", "str"),
        ({"max_running": "3"}, "max_running", "str"),
    ],
)
def test_a_wrong_type_is_told_what_was_given(fields: dict[str, object], path: str, given_type: str) -> None:
    assert f"(given: {given_type})" in problems(**fields)[path].message


def test_messages_carry_no_words_of_the_library() -> None:
    found = problems(
        timeout="8d", target={"http": {"url": "http://u:p@x.example/"}}, retry={"max_delay": "8d"}
    )
    messages = [problem.message for problem in found.values()]
    assert messages
    assert all("Value error" not in text and text[0] == text[0].lower() for text in messages)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"target": {"shell": {"command": 5}}}, "target.shell.command"),
        ({"target": {"shell": {"command": ["ls", 5]}}}, "target.shell.command.1"),
        ({"target": "ftp://x.example/"}, "target.http.url"),
        ({"schedule": 5}, "schedule"),
        ({"tags": {"no blanks": "x"}}, "tags.no blanks"),
        ({"retry": {"outcomes": {"exploded": {}}}}, "retry.outcomes.exploded"),
        ({"target": []}, "target"),
    ],
)
def test_a_path_holds_field_names_and_nothing_else(fields: dict[str, object], path: str) -> None:
    assert path in problems(**fields)
    assert not any("[" in each or "str" in each.split(".") for each in problems(**fields))


@pytest.mark.parametrize("name", ["str", "[key]", "list[x]", "function-wrap", "dict[", "union[a]"])
def test_a_field_named_like_an_alternative_is_still_named(name: str) -> None:
    assert problems(**{name: 1})[name].message.startswith("unknown field")
    below = problems(retry={name: 1})
    assert below[f"retry.{name}"].message.startswith("unknown field")


def test_a_tag_named_like_an_alternative_is_still_named() -> None:
    assert "tags.str" in problems(tags={"str": 5})


@given(
    st.dictionaries(
        st.sampled_from([*JobSpec.model_fields, "nme"]) | st.text(string.printable, max_size=8),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["http", "url", "retry", "x", "str", ""]), inner, max_size=3
                )
            ),
            max_leaves=8,
        ),
        max_size=6,
    )
)
def test_any_json_is_taken_or_refused_field_by_field(raw: dict[str, object]) -> None:
    found: tuple[errors.FieldProblem, ...] = ()
    try:
        validate(JobSpec, raw)
    except errors.Invalid as error:
        found = error.problems
    assert all(problem.message for problem in found)
    top_level = {problem.field.split(".")[0] for problem in found}
    assert top_level <= {*(name.split(".")[0] for name in raw), "name", "target", "body"}


@pytest.mark.parametrize("name", ["my job", "-nightly", "", "n" * 201, "nächtlich"])
def test_a_wrong_name_is_told_in_words_what_a_name_is_made_of(name: str) -> None:
    words = "letters (A-Z, a-z), digits and . _ / -, beginning with a letter or digit, at most 200 characters"
    assert str(problems(name=name)["name"]) == f"name: must be {words}"


def test_a_wrong_pool_is_told_in_words_what_its_name_is_made_of() -> None:
    words = "small letters (a-z), digits and _ -, beginning with a letter or digit, at most 63 characters"
    assert str(problems(pool="Billing")["pool"]) == f"pool: must be {words}"
