"""Redis' protocol: what was written is read, in whatever pieces it comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cronwell.targets.brokers.resp import Refused, decode, encode

LINES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)
ANSWERS = st.one_of(
    LINES.map(lambda text: (b"+%s\r\n" % text.encode(), text)),
    LINES.map(lambda text: (b"-%s\r\n" % text.encode(), Refused(text))),
    st.integers().map(lambda number: (b":%d\r\n" % number, str(number))),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(
        lambda text: (b"$%d\r\n%s\r\n" % (len(text.encode()), text.encode()), text)
    ),
    st.just((b"$-1\r\n", "")),
)


@given(st.lists(ANSWERS, max_size=8), st.data())
def test_answers_are_read_the_same_in_whatever_pieces_they_come(
    answers: list[tuple[bytes, str | Refused]], data: st.DataObject
) -> None:
    whole = b"".join(raw for raw, _ in answers)
    read: list[str | Refused] = []
    buffer = bytearray()
    while whole or buffer:
        size = data.draw(st.integers(1, max(1, len(whole))))
        buffer += whole[:size]
        whole = whole[size:]
        begin = 0
        while (found := decode(buffer, begin)) is not None:
            read.append(found[0])
            begin = found[1]
        del buffer[:begin]
        assert whole or not buffer
    assert list(map(_told, read)) == [_told(answer) for _, answer in answers]


@given(st.binary(max_size=60))
def test_what_is_no_answer_is_refused_and_never_read_beyond_its_end(raw: bytes) -> None:
    try:
        found = decode(bytearray(raw), 0)
    except ValueError:
        return
    assert found is None or 0 < found[1] <= len(raw)


def test_a_command_is_written_with_the_length_of_each_word() -> None:
    assert encode((b"XADD", "ü".encode(), b"")) == b"*3\r\n$4\r\nXADD\r\n$2\r\n\xc3\xbc\r\n$0\r\n\r\n"


def _told(answer: str | Refused) -> tuple[bool, str]:
    return isinstance(answer, Refused), str(answer)
