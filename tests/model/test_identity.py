"""Ids of jobs: version 7 UUIDs made of a time and of bits that the caller drew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import RFC_4122

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell.model.identity import RANDOM_BITS, RANDOM_BYTES, new_job_id, new_job_ids
from cronwell.model.shards import SHARDS, shard_of

moments = st.datetimes(
    datetime(1970, 1, 1),  # noqa: DTZ001  # Hypothesis adds the zone
    datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
bits = st.integers(0, (1 << RANDOM_BITS) - 1)


@given(moments, bits)
def test_an_id_is_a_uuid_of_version_7(now: datetime, drawn: int) -> None:
    made = new_job_id(now, drawn)
    assert (made.version, made.variant) == (7, RFC_4122)


@given(moments, bits)
def test_time_and_random_bits_can_be_read_back(now: datetime, drawn: int) -> None:
    made = new_job_id(now, drawn).int
    assert timedelta(milliseconds=made >> 80) == (now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        milliseconds=1
    ) * timedelta(milliseconds=1)
    assert (made >> 64 & 0xFFF) << 62 | made & (1 << 62) - 1 == drawn


@given(moments, moments, bits, bits)
def test_an_id_made_a_millisecond_later_sorts_later(
    one: datetime, other: datetime, drawn: int, drawn_too: int
) -> None:
    earlier, later = sorted((one, other))
    later += timedelta(milliseconds=1)
    assert new_job_id(earlier, drawn) < new_job_id(later, drawn_too)
    assert str(new_job_id(earlier, drawn)) < str(new_job_id(later, drawn_too))


@pytest.mark.parametrize("drawn", [-1, 1 << RANDOM_BITS])
def test_other_than_the_agreed_random_bits_are_refused(drawn: int) -> None:
    with pytest.raises(ValueError, match="bits"):
        new_job_id(datetime(2026, 1, 1, tzinfo=UTC), drawn)


@pytest.mark.parametrize("year", [1969, 9999])
def test_a_time_that_ids_can_carry_or_a_refusal(year: int) -> None:
    now = datetime(year, 6, 1, tzinfo=UTC)
    if year < 1970:
        with pytest.raises(ValueError, match="fit"):
            new_job_id(now, 0)
    else:
        assert new_job_id(now, 0).int >> 80 == now.timestamp() * 1000


def test_jobs_made_in_one_millisecond_spread_over_all_shards() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert {shard_of(new_job_id(now, drawn)) for drawn in range(SHARDS)} == set(range(SHARDS))


@given(st.binary(min_size=3 * RANDOM_BYTES, max_size=3 * RANDOM_BYTES))
def test_ids_made_together_are_as_those_made_alone(random: bytes) -> None:
    now = datetime(2026, 1, 1, 12, 0, 0, 123_456, tzinfo=UTC)
    made = new_job_ids(now, random)
    kept = (0xFFF << 64) | (1 << 62) - 1
    drawn = [int.from_bytes(random[place : place + RANDOM_BYTES]) & kept for place in (0, 10, 20)]
    alone = [new_job_id(now, (each >> 64) << 62 | each & (1 << 62) - 1) for each in drawn]
    assert made == alone
    assert {each.version for each in made} == {7}


def test_random_bytes_that_are_no_whole_number_of_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="10 random bytes"):
        new_job_ids(datetime(2026, 1, 1, tzinfo=UTC), bytes(RANDOM_BYTES + 1))
