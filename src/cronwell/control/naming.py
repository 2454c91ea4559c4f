"""Jobs that name secrets: those that there are not are refused, and who names which is noted."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from uuid import UUID

from cronwell import errors
from cronwell.control.definitions import Definition
from cronwell.model.job import JobSpec
from cronwell.model.naming import named_by
from cronwell.model.references import MARK, named_in
from cronwell.store.port import Transaction

KNOWN = 1000
"""So many secrets of a tenant are looked at for a name that is nearly right."""


async def unknown_secrets(
    transaction: Transaction, tenant_id: int, definitions: Sequence[Definition]
) -> dict[int, errors.Invalid]:
    """What is wrong with those definitions, by place, that name secrets which there are not."""
    wanted = {name for definition in definitions for name in definition.named.values()}
    if not wanted:
        return {}
    lacking = wanted - await transaction.hold_secrets(tenant_id, sorted(wanted))
    if not lacking:
        return {}
    known = await transaction.secret_names(tenant_id, KNOWN)
    return {
        place: errors.Invalid(
            [_unknown(field, name, known) for field, name in definition.named.items() if name in lacking]
        )
        for place, definition in enumerate(definitions)
        if not lacking.isdisjoint(definition.named.values())
    }


async def note_named(transaction: Transaction, tenant_id: int, jobs: Mapping[UUID, Definition]) -> None:
    """Note which secrets new jobs name."""
    uses = [(name, job_id) for job_id, definition in jobs.items() for name in set(definition.named.values())]
    if uses:
        await transaction.note_secret_uses(tenant_id, list(jobs), uses)


async def note_renamed(
    transaction: Transaction, tenant_id: int, job_id: UUID, definition: Definition, before: str
) -> None:
    """Note which secrets a job names by its new definition; raises Invalid where there is no such secret."""
    if not definition.named:
        await forget_named(transaction, tenant_id, job_id, before)
        return
    for refused in (await unknown_secrets(transaction, tenant_id, [definition])).values():
        raise refused
    uses = [(name, job_id) for name in set(definition.named.values())]
    await transaction.note_secret_uses(tenant_id, [job_id], uses)


async def forget_named(transaction: Transaction, tenant_id: int, job_id: UUID, before: str) -> None:
    """A job names no secret any more; `before` is the definition that it had."""
    if MARK in before:
        await transaction.note_secret_uses(tenant_id, [job_id], [])


async def note_channel(
    transaction: Transaction, tenant_id: int, job_id: UUID, named: Mapping[str, str]
) -> None:
    """Note which secrets a channel of alerts names, by place; raises Invalid where there is no such secret."""
    if lacking := set(named.values()) - await transaction.hold_secrets(
        tenant_id, sorted(set(named.values()))
    ):
        known = await transaction.secret_names(tenant_id, KNOWN)
        raise errors.Invalid(
            [_unknown(field, name, known) for field, name in named.items() if name in lacking]
        )
    await transaction.note_secret_uses(tenant_id, [job_id], [(name, job_id) for name in set(named.values())])


def check_given(payload: object, spec: str) -> None:
    """Refuse a payload, given for one run, that names secrets which the job's own definition does not.

    Whoever may run a job decides neither what it calls nor which secrets are sent there.
    """
    given = dict(named_in(payload))
    if not given:
        return
    own = set(named_by(JobSpec.model_validate_json(spec)).values())
    beyond = {field: name for field, name in given.items() if name not in own}
    if beyond:
        listed = ", ".join(sorted(own))
        raise errors.Invalid(
            [
                errors.FieldProblem(
                    field,
                    f"the job's own definition does not name the secret {name[:200]!r}",
                    f"one that it names: {listed}"
                    if own
                    else "none: it names no secret; change the job first",
                )
                for field, name in beyond.items()
            ]
        )


def _unknown(field: str, name: str, known: Sequence[str]) -> errors.FieldProblem:
    close = difflib.get_close_matches(name, known, 1, 0.5)
    said = f"there is no secret {name!r}"
    if close:
        return errors.FieldProblem(field, f"{said}; did you mean {close[0]!r}?", close[0])
    return errors.FieldProblem(
        field, said, f"the name of a secret; `cronwell secret set {name}` makes this one"
    )
