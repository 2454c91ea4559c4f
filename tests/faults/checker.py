"""Joins the three witnesses against the oracle and says which promises were broken, by what evidence.

It is pure: a history goes in, violations come out. A promise is a function of `tests/faults/checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.faults import oracle
from tests.faults.checks import attempts, chain, cluster, messages, slots, writes
from tests.faults.checks.facts import Facts, Violation
from tests.faults.history import History

PROMISES: tuple[Callable[[Facts], Iterator[Violation]], ...] = (
    slots.at_most_once,
    slots.no_phantom,
    slots.nothing_missed,
    slots.never_early,
    chain.one_chain,
    chain.epochs_fence,
    attempts.one_at_a_time,
    attempts.terminal_is_final,
    attempts.zombies_are_bounded,
    writes.nothing_lost,
    writes.what_is_stopped_stays_so,
    attempts.success_is_real,
    attempts.ids_are_functions,
    attempts.overlap_holds,
    messages.at_least_once,
    messages.never_for_nothing,
    slots.books_balance,
    cluster.healed,
    cluster.late_for_a_reason,
)


def check(history: History) -> list[Violation]:
    """Every violation that the history shows; none for a history that keeps every promise."""
    oracle.go_by(history.zones)
    facts = Facts(history)
    return [violation for promise in PROMISES for violation in promise(facts)]
