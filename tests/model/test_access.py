"""Keys and scopes: what is shown, what is kept, and what nobody is given."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell import errors
from cronwell.model.access import (
    ALL_SCOPES,
    KEY_PREFIX_BYTES,
    KEY_SECRET_BYTES,
    Caller,
    Scope,
    first_scopes,
    is_key,
    new_secret,
    read_scopes,
    read_secret,
    write_scopes,
)

LENGTH = KEY_PREFIX_BYTES + KEY_SECRET_BYTES


@given(st.binary(min_size=LENGTH, max_size=LENGTH))
def test_a_key_is_read_back_and_matches_its_own_digest(random: bytes) -> None:
    secret = new_secret(random)
    again = read_secret(secret.text)
    assert again == secret
    assert secret.text.startswith(f"{secret.prefix}_")
    assert is_key(secret.text)
    assert secret.matches(secret.digest)


@given(st.binary(min_size=LENGTH, max_size=LENGTH), st.integers(0, 8 * KEY_SECRET_BYTES - 1))
def test_another_bit_is_another_key(random: bytes, place: int) -> None:
    number = int.from_bytes(random, "big") ^ (1 << place)
    other = new_secret(number.to_bytes(LENGTH, "big"))
    secret = new_secret(random)
    assert other.prefix == secret.prefix
    assert not other.matches(secret.digest)


@given(st.text())
def test_any_text_is_a_key_or_none(text: str) -> None:
    read_secret(text)
    read_secret(f"cw_{text}")


def test_the_secret_is_not_in_what_is_kept() -> None:
    secret = new_secret(os.urandom(LENGTH))
    assert secret.text.rpartition("_")[2].encode() not in secret.digest
    with pytest.raises(ValueError, match="random bytes"):
        new_secret(b"short")


@pytest.mark.parametrize("scope", Scope)
def test_a_caller_may_do_what_it_has_the_scope_for(scope: Scope) -> None:
    Caller(1, frozenset({scope}), "key").require(scope)
    with pytest.raises(errors.Forbidden, match=f"`{scope}`"):
        Caller(1, ALL_SCOPES - {scope}, "key").require(scope)


@pytest.mark.parametrize("kind", ["shell", "container"])
def test_commands_take_a_scope_of_their_own(kind: str) -> None:
    Caller(1, ALL_SCOPES, "key").check_target(kind)
    with pytest.raises(errors.Forbidden, match="commands"):
        Caller(1, ALL_SCOPES - {Scope.COMMANDS}, "key").check_target(kind)
    Caller(1, frozenset(), "key").check_target("http")


def test_the_first_key_of_a_team_does_not_run_the_installation() -> None:
    assert set(first_scopes("default")) == ALL_SCOPES
    assert ALL_SCOPES - set(first_scopes("billing")) == {Scope.OPERATOR, Scope.COMMANDS}


def test_scopes_are_named_in_one_order() -> None:
    assert read_scopes(["run", "read"]) == {Scope.READ, Scope.RUN}
    assert write_scopes([Scope.RUN, Scope.READ]) == "read, run"
    assert write_scopes([]) == "none"
    with pytest.raises(errors.Invalid, match="'root' is not a scope"):
        read_scopes(["root"])
