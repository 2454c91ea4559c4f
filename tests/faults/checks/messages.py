"""Messages: at least one for what succeeded, and none but of an attempt that somebody had claimed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from tests.faults.checks.facts import Facts, Violation
from tests.faults.history import Key, Message, execution_id

CUT = 0.001
"""The broker's moments are cut to a millisecond."""


def at_least_once(facts: Facts) -> Iterator[Violation]:
    """S16: what succeeded is in the stream, under the fence that succeeded, since before it was written down."""
    for key, changes in facts.changes.items():
        done = next((c for c in changes if c.state == "succeeded" and c.old_state != "succeeded"), None)
        if done is None or not _publishes(facts, key):
            continue
        of_fence = [m for m in facts.messages.get(execution_id(key), []) if m.fence == done.fence]
        if not of_fence:
            yield facts.tell("S16", key, f"succeeded, but nothing was published under fence {done.fence}")
        elif min(m.at for m in of_fence) > done.at + facts.terms.answer_slack:
            yield facts.tell("S16", key, "was written down as done before it was published")


def never_for_nothing(facts: Facts) -> Iterator[Violation]:
    """S16: each message is of an execution that there is, of a claim that was committed before it, and not early."""
    for execution, messages in facts.messages.items():
        key = facts.key(execution)
        if key is None or key not in facts.changes:
            # What was rolled back has left nothing in the log.
            said = "published, but there never was such an execution"
            yield Violation("S16", f"{messages[0].job} {execution}", said, receiver=tuple(map(str, messages)))
            continue
        for fence, count in Counter(message.fence for message in messages).items():
            if count > 1:
                yield facts.tell("S16", key, f"fence {fence} was published {count} times")
        for message in messages:
            if said := _unfounded(facts, key, message):
                yield facts.tell("S16", key, said)


def _unfounded(facts: Facts, key: Key, message: Message) -> str:
    """Why there should be no such message; nothing where all is well."""
    error = facts.terms.clock_error + CUT
    if facts.name(key[0]) != message.job or key[2] != datetime.fromisoformat(message.slot):
        return f"published as {message.job} of {message.slot}, which its id does not say"
    early = key[2].timestamp() - message.at
    if early > error:
        return f"published {early * 1000:.0f} ms before its slot"
    claims = [
        c for c in facts.changes[key] if c.state == "running" != c.old_state and c.fence == message.fence
    ]
    if not claims:
        return f"fence {message.fence} was published, and nobody had claimed it"
    if (ahead := min(c.committed for c in claims) - message.at) > error:
        return f"fence {message.fence} was published {ahead * 1000:.0f} ms before its claim was committed"
    return ""


def _publishes(facts: Facts, key: Key) -> bool:
    target = facts.jobs[key[0]][0].spec.get("target") if key[0] in facts.jobs else None
    return isinstance(target, dict) and "publish" in target
