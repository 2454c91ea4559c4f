"""A hierarchical timing wheel: holds what must start at an instant, and hands it over no earlier.

Time is cut into ticks, and a tick's number is read as digits of base 256. The highest digit in which a deadline's tick
differs from the present one is its level, and the digit's value is its slot there. So level 0 holds the ticks of the
present block of 256, level 1 the blocks of 256 ticks after it in the block of 65,536, and so on; there is no top level,
one is added when a deadline needs it. Everything on a level is due before anything on the next, which is what makes
each operation cheap:

- `add` and `remove` touch one slot: O(1), whatever the wheel holds.
- `advance` finds the highest digit that changed. What lies below it is due as a whole; one slot on that level holds
  the new present, and is dealt out to the levels below; what lies above is not looked at. An item moves down at most
  once per level in its life.

A tick only sorts items into slots; it does not round them. Within the present tick each deadline is compared exactly, so
an item is never early, and as late only as the call that asks.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Generic, TypeVar

T = TypeVar("T")

_DIGIT_BITS = 8
_DIGIT_MASK = (1 << _DIGIT_BITS) - 1
_DEADLINE = attrgetter("deadline")


class Timer(Generic[T]):
    """An item on the wheel, and the handle by which to remove it."""

    __slots__ = ("_number", "_slot", "deadline", "item")

    def __init__(self, deadline: float, item: T, number: int) -> None:
        self.deadline = deadline
        self.item = item
        self._number = number
        self._slot: _Slot[T] | None = None

    @property
    def is_held(self) -> bool:
        """Whether the item is still on the wheel: neither handed over nor removed."""
        return self._slot is not None


class Wheel(Generic[T]):
    """Items by deadline. Times are seconds on any clock, the same for all calls."""

    def __init__(self, now: float, tick: float = 0.001) -> None:
        if not tick > 0:
            raise ValueError("a tick takes time")
        self._origin = now
        self._tick = tick
        self._present = 0
        self._levels: list[dict[int, _Slot[T]]] = [{}]
        self._count = 0
        self._added = 0

    def __len__(self) -> int:
        return self._count

    def add(self, deadline: float, item: T) -> Timer[T]:
        """Hold an item until its deadline; one that has passed is due at the next `advance`."""
        if not math.isfinite(deadline):
            raise ValueError("a deadline is a finite number")
        self._added += 1
        timer = Timer(deadline, item, self._added)
        self._place(timer)
        self._count += 1
        return timer

    def remove(self, timer: Timer[T]) -> bool:
        """Take an item off the wheel; False where it was handed over or removed before."""
        slot = timer._slot
        if slot is None:
            return False
        timer._slot = None
        del slot.timers[timer._number]
        if not slot.timers:
            del self._levels[slot.level][slot.digit]
        self._count -= 1
        return True

    def advance(self, now: float) -> list[T]:
        """Hand over every item whose deadline is at or before `now`: earliest first, equal ones in order of `add`.

        Time does not run backwards here: an earlier `now` than before finds only what is due by it.
        """
        expired = self._move_to(max(self._tick_of(now), self._present))
        due = [timer for slot in expired for timer in slot.timers.values()]
        # The present tick is not over, so here each deadline counts. After a `now` in the past, none may be due.
        slot = self._levels[0].get(self._present & _DIGIT_MASK)
        if slot is not None and slot.earliest <= now:
            ripe = [timer for timer in slot.timers.values() if timer.deadline <= now]
            due += ripe
            for timer in ripe:
                del slot.timers[timer._number]
            if slot.timers:
                slot.earliest = min(timer.deadline for timer in slot.timers.values())
            else:
                del self._levels[0][slot.digit]
        # Stable, and equal deadlines share their slots throughout, where they keep the order of `add`.
        due.sort(key=_DEADLINE)
        for timer in due:
            timer._slot = None
        self._count -= len(due)
        return [timer.item for timer in due]

    def next_deadline(self) -> float | None:
        """When to `advance` next, or None for an empty wheel.

        No item is due before it. After a `remove` it may be early: advancing then finds nothing and a later time.
        """
        for level in self._levels:
            if level:
                return level[min(level)].earliest
        return None

    def clear(self) -> list[T]:
        """Take everything off, in order of deadline."""
        timers = [
            timer for level in self._levels for slot in level.values() for timer in slot.timers.values()
        ]
        timers.sort(key=_DEADLINE)
        for timer in timers:
            timer._slot = None
        self._levels = [{}]
        self._count = 0
        return [timer.item for timer in timers]

    def _tick_of(self, time: float) -> int:
        # Subtraction, division and floor keep the order of their arguments also where they round: a later time
        # never gets an earlier tick, so a tick that is over holds no deadline that is not.
        return math.floor((time - self._origin) / self._tick)

    def _place(self, timer: Timer[T]) -> None:
        tick = max(self._tick_of(timer.deadline), self._present)
        level = max(((tick ^ self._present).bit_length() - 1) // _DIGIT_BITS, 0)
        while level >= len(self._levels):
            self._levels.append({})
        digit = (tick >> (level * _DIGIT_BITS)) & _DIGIT_MASK
        slot = self._levels[level].get(digit)
        if slot is None:
            slot = self._levels[level][digit] = _Slot(level, digit)
        slot.timers[timer._number] = timer
        slot.earliest = min(slot.earliest, timer.deadline)
        timer._slot = slot

    def _move_to(self, tick: int) -> list[_Slot[T]]:
        """Make `tick` the present, deal out what is near it, and return the slots that are over as a whole."""
        changed = (tick ^ self._present).bit_length()
        self._present = tick
        if changed == 0:
            return []
        top = (changed - 1) // _DIGIT_BITS
        expired: list[_Slot[T]] = []
        for level in self._levels[:top]:
            expired += level.values()
            level.clear()
        if top < len(self._levels):
            level = self._levels[top]
            reached = (tick >> (top * _DIGIT_BITS)) & _DIGIT_MASK
            expired += [level.pop(digit) for digit in [digit for digit in level if digit < reached]]
            if top > 0 and (here := level.pop(reached, None)) is not None:
                for timer in here.timers.values():
                    self._place(timer)
        return expired


class _Slot(Generic[T]):
    """The timers of one digit on one level."""

    __slots__ = ("digit", "earliest", "level", "timers")

    def __init__(self, level: int, digit: int) -> None:
        self.level = level
        self.digit = digit
        self.timers: dict[int, Timer[T]] = {}
        self.earliest = math.inf
        """No timer here is due before it; a removed one may have been."""
