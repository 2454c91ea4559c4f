"""What is kept of an output fits its limit and can be stored."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cronwell.targets.output import Kept, clip, tail

anything = st.text(st.characters(codec=None)) | st.text("aé€😀\0\ud800")


@given(st.binary() | anything, st.integers(0, 40))
def test_kept_text_fits_its_limit_and_can_be_stored(raw: bytes | str, limit: int) -> None:
    text, _ = clip(raw, limit)
    assert len(text.encode()) <= limit
    assert "\0" not in text


@given(st.text(), st.integers(0, 40))
def test_text_is_marked_as_cut_exactly_when_something_is_missing(text: str, limit: int) -> None:
    clean = text.replace("\0", "")
    kept, was_cut = clip(clean, limit)
    assert was_cut == (kept != clean)
    assert clean.startswith(kept)


@given(st.lists(st.binary(max_size=8)), st.integers(0, 40))
def test_a_stream_keeps_its_beginning_however_it_is_chopped(chunks: list[bytes], limit: int) -> None:
    kept = Kept(limit)
    for chunk in chunks:
        kept.add(chunk)
    whole = b"".join(chunks)
    assert kept.size == len(whole)
    assert kept.text() == clip(whole, limit)
    assert kept.text()[1] or len(whole) <= limit


def test_a_character_that_does_not_fit_is_left_out_whole() -> None:
    assert clip("aé", 2) == ("a", True)
    assert clip("aé".encode(), 2) == ("a", True)
    assert clip("aé", 3) == ("aé", False)
    assert clip(b"\xffab", 5) == ("�ab", False)


@given(anything, st.integers(1, 40))
def test_a_tail_is_the_end_of_the_text(text: str, limit: int) -> None:
    end = tail(text, limit)
    assert len(end.encode()) <= limit
    assert text.replace("\0", "").encode("utf-8", "replace").decode().endswith(end)
