"""How many go through their gates: never more than any limit, and no place is left empty that one could have."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from cronwell.model.gates import Free, let_through


@dataclass(frozen=True)
class InLine:
    tenant_id: int
    gate: str
    limit: int | None


@st.composite
def crowds(
    draw: st.DrawFn,
) -> tuple[list[InLine], int, dict[tuple[int, str], int], dict[int, int], dict[int, int]]:
    names = draw(st.lists(st.sampled_from(["", "a", "b"]), max_size=6))
    lines = [
        InLine(draw(st.integers(1, 3)), name, draw(st.integers(1, 5)) if name else None) for name in names
    ]
    running = {(line.tenant_id, line.gate): draw(st.integers(0, 5)) for line in lines if line.gate}
    rooms = draw(st.dictionaries(st.integers(1, 3), st.integers(0, 6)))
    shares = draw(st.dictionaries(st.integers(1, 3), st.integers(0, 6)))
    return lines, draw(st.integers(0, 12)), running, rooms, shares


@given(crowds())
def test_no_limit_is_passed_and_no_place_is_wasted(
    crowd: tuple[list[InLine], int, dict[tuple[int, str], int], dict[int, int], dict[int, int]],
) -> None:
    lines, places, running, rooms, shares = crowd
    passages = let_through(lines, Free(places, running, rooms, shares))
    assert len(passages) == len(lines)
    assert sum(each.wanted for each in passages) <= places
    inside = dict(running)
    for line, each in zip(lines, passages, strict=True):
        assert each.wanted >= 0
        if line.gate:
            inside[line.tenant_id, line.gate] += each.wanted
    for tenant, room in rooms.items():
        assert (
            sum(e.wanted for line, e in zip(lines, passages, strict=True) if line.tenant_id == tenant) <= room
        )
    left = places - sum(each.wanted for each in passages)
    for line, each in zip(lines, passages, strict=True):
        group = (line.tenant_id, line.gate)
        if line.gate:
            most = max(other.limit or 0 for other in lines if (other.tenant_id, other.gate) == group)
            assert each.wanted == 0 or inside[group] <= most
            assert each.running == inside[group] - each.wanted
        taken = sum(
            e.wanted for other, e in zip(lines, passages, strict=True) if other.tenant_id == line.tenant_id
        )
        has_room = line.tenant_id not in rooms or taken < rooms[line.tenant_id]
        is_open = line.limit is None or inside[group] < line.limit
        assert not (left > 0 and has_room and is_open), "nobody who could have started is left"


def test_a_tenant_takes_more_than_its_share_only_where_nobody_else_wants_it() -> None:
    lines = [InLine(1, "", None), InLine(2, "", None)]
    both = let_through(lines, Free(10, {}, {}, {1: 5, 2: 5}))
    assert [each.wanted for each in both] == [5, 5]
    few = let_through(lines, Free(10, {}, {2: 2}, {1: 5, 2: 5}))
    assert [each.wanted for each in few] == [8, 2]


def test_a_group_whose_gate_another_has_is_not_looked_at() -> None:
    [passage] = let_through([InLine(1, "a", 3)], Free(5, {}, {}, {1: 5}))
    assert passage.wanted == 0
