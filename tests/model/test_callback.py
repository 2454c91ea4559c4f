"""The token of a callback: what was written is read back, and nothing that was altered passes for it."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cronwell.model.callback import Token, read
from cronwell.model.execution import ExecutionKey, Kind

KEY = b"k" * 32
TOKENS = st.builds(
    Token,
    tenant_id=st.integers(-(2**31), 2**31 - 1),
    key=st.builds(
        ExecutionKey,
        job_id=st.uuids(),
        kind=st.sampled_from(Kind),
        slot=st.datetimes(timezones=st.just(UTC)),
    ),
    fence=st.integers(0, 2**63 - 1),
    worker=st.uuids(),
)


@given(TOKENS, st.binary(min_size=1, max_size=64))
def test_a_token_is_read_as_it_was_written(token: Token, key: bytes) -> None:
    text = token.write(key)
    found = read(text)
    assert found is not None
    assert found.token == token
    assert found.is_signed_with(key)
    assert not found.is_signed_with(key + b"x")
    assert text.isascii()
    assert not set(text) & set("/+=?#%. ")


@given(
    TOKENS,
    st.integers(0, 114),
    st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=.+/ \0"),
)
def test_an_altered_token_is_not_ours(token: Token, place: int, letter: str) -> None:
    text = token.write(KEY)
    altered = text[:place] + letter + text[place + 1 :]
    found = read(altered)
    assert altered == text or found is None or not found.is_signed_with(KEY)


@given(st.text(max_size=200) | st.binary(max_size=100).map(lambda raw: raw.decode("latin-1")))
def test_any_text_can_be_read(text: str) -> None:
    found = read(text)
    assert found is None or not found.is_signed_with(KEY)


def test_tokens_of_two_attempts_differ() -> None:
    key = ExecutionKey(UUID(int=1), Kind.MANUAL, datetime(2026, 5, 5, tzinfo=UTC))
    one = Token(1, key, 1, UUID(int=2))
    others = [
        Token(2, key, 1, UUID(int=2)),
        Token(1, key, 2, UUID(int=2)),
        Token(1, key, 1, UUID(int=3)),
    ]
    assert one.write(KEY) not in [other.write(KEY) for other in others]
