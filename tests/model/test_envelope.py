"""Secrets at rest: opened only in the place that they were written for, by the key that they were written with."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell.model.envelope import (
    KEY_BYTES,
    NONCE_BYTES,
    RANDOM_BYTES,
    CannotOpen,
    Key,
    Place,
    Sealed,
    rewrap,
    seal,
    unseal,
)

KEY, OTHER = Key(b"k" * KEY_BYTES), Key(b"o" * KEY_BYTES)
RANDOM = bytes(range(RANDOM_BYTES))
HERE = Place(1, "token", 3)
NAMES = st.text(alphabet="abc/.-_09", min_size=1, max_size=8)
PLACES = st.builds(Place, st.integers(1, 2**31), NAMES, st.integers(1, 2**31))


@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    PLACES,
    st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES),
)
def test_a_value_comes_back_as_it_was(value: str, place: Place, random: bytes) -> None:
    sealed = seal(value, place, KEY, random)
    assert unseal(sealed, place, KEY) == value
    assert sealed.key_id == KEY.id


@given(PLACES, PLACES)
def test_nothing_opens_in_another_place(place: Place, other: Place) -> None:
    sealed = seal("value", place, KEY, RANDOM)
    if other == place:
        return
    with pytest.raises(CannotOpen):
        unseal(sealed, other, KEY)
    with pytest.raises(CannotOpen):
        rewrap(sealed.wrapped_key, other, KEY, OTHER, bytes(NONCE_BYTES))


@pytest.mark.parametrize("other", [Place(2, "token", 3), Place(1, "tokem", 3), Place(1, "token", 4)])
def test_a_ciphertext_moved_to_another_tenant_name_or_revision_is_refused(other: Place) -> None:
    """Whole, or its parts beside the parts that belong there."""
    sealed, theirs = seal("ours", HERE, KEY, RANDOM), seal("theirs", other, KEY, RANDOM[::-1])
    for moved in (
        sealed,
        dataclasses.replace(theirs, ciphertext=sealed.ciphertext),
        dataclasses.replace(theirs, wrapped_key=sealed.wrapped_key),
    ):
        with pytest.raises(CannotOpen):
            unseal(moved, other, KEY)


def test_no_two_places_are_written_alike() -> None:
    places = [Place(1, "1a", 1), Place(11, "a", 1), Place(1, "a", 11), Place(1, "a", 1), Place(1, "\0a", 1)]
    for one, two in combinations(places, 2):
        assert one.bound(b"key ") != two.bound(b"key ")
    assert HERE.bound(b"key ") != HERE.bound(b"value ")


def test_whatever_is_changed_in_a_ciphertext_it_does_not_open() -> None:
    sealed = seal("value", HERE, KEY, RANDOM)
    for part in ("wrapped_key", "ciphertext"):
        kept: bytes = getattr(sealed, part)
        broken = [kept[:n] + bytes([kept[n] ^ 1]) + kept[n + 1 :] for n in range(len(kept))]
        for wrong in (*broken, b"", kept[:-1], kept[: NONCE_BYTES - 1]):
            with pytest.raises(CannotOpen):
                unseal(
                    Sealed(
                        sealed.key_id,
                        wrong if part == "wrapped_key" else sealed.wrapped_key,
                        wrong if part == "ciphertext" else sealed.ciphertext,
                    ),
                    HERE,
                    KEY,
                )
    with pytest.raises(CannotOpen):
        unseal(sealed, HERE, OTHER)


def test_a_rewrapped_secret_opens_with_the_new_key_alone() -> None:
    sealed = seal("value", HERE, KEY, RANDOM)
    wrapped = rewrap(sealed.wrapped_key, HERE, KEY, OTHER, b"n" * NONCE_BYTES)
    again = dataclasses.replace(sealed, wrapped_key=wrapped, key_id=OTHER.id)
    assert unseal(again, HERE, OTHER) == "value"
    with pytest.raises(CannotOpen):
        unseal(again, HERE, KEY)


def test_neither_a_key_nor_a_value_is_shown() -> None:
    sealed = seal("a-value-to-hide", HERE, KEY, RANDOM)
    assert "kkkk" not in repr(KEY) + KEY.id
    assert KEY.raw.hex() not in KEY.id
    assert b"a-value-to-hide" not in sealed.ciphertext + sealed.wrapped_key
    assert "ciphertext" not in repr(sealed)
    with pytest.raises(ValueError, match="random"):
        seal("x", HERE, KEY, b"too few")
