"""Which jobs follow which, kept right when jobs are added, edited or deleted.

Upstreams are written by name or id and kept by id, so that a renamed one is still the same. Whoever changes what a job follows
holds the tenant's graph as it is, finds that no job would come to follow itself, and has the upstreams' executions followed:
those that have not ended, and by the upstreams' plans those to come, all in one transaction.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson

from cronwell import errors
from cronwell.control.definitions import Definition
from cronwell.control.drafts import read_id
from cronwell.model.alerts import is_own
from cronwell.model.dependencies import Rule, find_cycle
from cronwell.model.planning import load_plan
from cronwell.store.port import Edge, Job, Transaction

MOST_EDGES = 20_000
"""Edges above a job that are looked through for a cycle."""
NAMES_LOOKED_AT = 1000
NAMES_TOLD = 20
_AFTER_ANY = "\U0010ffff"


async def take_turn(transaction: Transaction, job: Job, wanted: Mapping[str, Any]) -> None:
    """Hold the graph, and lock a job and its coming upstreams in their order, before an edit that has to do with it.

    Whoever judges dependents locks several jobs as well, in the same order.
    """
    before, after = orjson.loads(job.spec).get("after"), wanted.get("after")
    if before is None and after is None:
        return
    await transaction.lock_graph(job.tenant_id)
    if before == after or not isinstance(after, (list, dict)):
        return
    texts = [text for text in map(_text_of, _listed(after)) if text is not None]
    found = await _resolve(transaction, job.tenant_id, texts)
    for job_id in sorted({job.id, *found.values()}):
        await transaction.lock_job(job.tenant_id, job_id)


async def relink(transaction: Transaction, job: Job, definition: Definition) -> None:
    """Note what an edited job follows from now on. What is written as it was before means the same jobs as before."""
    if orjson.loads(job.spec).get("after") == definition.raw.get("after"):
        return
    rule = definition.spec.rule
    if rule is None:
        await transaction.put_edges(job.tenant_id, [job.id], [])
        return
    found = await _resolve(transaction, job.tenant_id, [each.job for each in rule.upstreams])
    for place, each in enumerate(rule.upstreams):
        if each.job not in found:
            raise await _unknown(transaction, job.tenant_id, definition, place)
    if (twice := _listed_twice(definition, found)) is not None:
        raise twice
    edges = _edges(job.id, definition, found)
    await _check_cycle(transaction, job.tenant_id, {job.id: definition.spec.name}, edges)
    await transaction.put_edges(job.tenant_id, [job.id], edges)
    await follow_all(transaction, job.tenant_id, {edge.upstream_id for edge in edges})


async def keep_followed(transaction: Transaction, job: Job, definition: Definition) -> Definition:
    """The new definition of a job, whose executions go on to be followed where others follow it."""
    if definition.plan is None or not await transaction.followed_jobs(job.tenant_id, [job.id]):
        return definition
    return followed(definition)


def followed(definition: Definition) -> Definition:
    """A definition whose executions are followed."""
    if definition.plan is None:
        return definition
    return dataclasses.replace(definition, plan=dataclasses.replace(definition.plan, is_followed=True))


async def check_new(
    transaction: Transaction, tenant_id: int, definitions: Sequence[Definition]
) -> tuple[dict[int, errors.UserError], list[Definition]]:
    """Which of some new jobs cannot follow what they name, by their places; and all of them, followed where they are.

    They may follow each other, in any order.
    """
    rules = {place: rule for place, each in enumerate(definitions) if (rule := each.spec.rule) is not None}
    if not rules:
        return {}, list(definitions)
    await transaction.lock_graph(tenant_id)
    texts = sorted({each.job for rule in rules.values() for each in rule.upstreams})
    found = await _resolve(transaction, tenant_id, texts)
    refused: dict[int, errors.UserError] = {
        place: problem for place in rules if (problem := _listed_twice(definitions[place], found)) is not None
    }
    own = {each.spec.name: place for place, each in enumerate(definitions) if each.spec.name not in found}
    while True:
        for place, number in _missing(rules, own, found, refused):
            refused[place] = await _unknown(transaction, tenant_id, definitions[place], number)
        cycle = _own_cycle(rules, own, refused)
        if cycle is None:
            break
        refused[own[cycle[0]]] = _cycle_error(cycle)
    wanted = {each.job for place, rule in rules.items() if place not in refused for each in rule.upstreams}
    return refused, [followed(each) if each.spec.name in wanted else each for each in definitions]


async def link_new(transaction: Transaction, tenant_id: int, added: Mapping[UUID, Definition]) -> None:
    """Note what jobs that were just added follow."""
    following = {job_id: each for job_id, each in added.items() if each.spec.rule is not None}
    if not following:
        return
    texts = sorted(
        {each.job for d in following.values() if d.spec.rule is not None for each in d.spec.rule.upstreams}
    )
    found = await _resolve(transaction, tenant_id, texts)
    if gone := next((text for text in texts if text not in found), None):
        raise errors.Conflict(f"the job {gone!r} was deleted in this moment")
    edges = [edge for job_id, each in following.items() for edge in _edges(job_id, each, found)]
    await transaction.put_edges(tenant_id, list(following), edges)
    await follow_all(transaction, tenant_id, {edge.upstream_id for edge in edges} - added.keys())


async def leave_dependents(transaction: Transaction, job: Job, *, is_forced: bool) -> None:
    """Take a job that is deleted out of the graph; refuse where others follow it, unless that is meant.

    Those go on to name it: with `all` their slots are skipped as `upstream_missing` until they are edited, which is seen.
    """
    names = await transaction.dependents_named(job.tenant_id, job.id, NAMES_TOLD + 1)
    if names and not is_forced:
        more = ", …" if len(names) > NAMES_TOLD else ""
        raise errors.Conflict(
            f"other jobs follow {job.name!r}: {', '.join(names[:NAMES_TOLD])}{more}; edit or delete these first, or "
            "delete it with force=true (--force), after which they are skipped as upstream_missing"
        )
    await transaction.put_edges(job.tenant_id, [job.id], [])


async def follow_all(transaction: Transaction, tenant_id: int, upstreams: set[UUID]) -> None:
    """Have the executions of jobs followed, those that have not ended and those to come. They are locked in their order."""
    for upstream_id in sorted(upstreams):
        job = await transaction.lock_job(tenant_id, upstream_id)
        if job is None or job.state == "deleted":
            raise errors.Conflict("a job that it follows was deleted in this moment")
        plan = None if job.plan is None else load_plan(job.plan)
        if plan is None or not plan.is_followed:
            text = None if plan is None else dataclasses.replace(plan, is_followed=True).canonical()
            await transaction.follow(tenant_id, upstream_id, text)


async def _resolve(transaction: Transaction, tenant_id: int, texts: Sequence[str]) -> dict[str, UUID]:
    """The jobs that are meant by names or ids; those that are not there, and Cronwell's own, are left out."""
    ids = {text: job_id for text in texts if (job_id := read_id(text)) is not None}
    there = set()
    if ids:
        there = {
            each.id
            for each in await transaction.jobs_of_ids(tenant_id, list(ids.values()))
            if each.state != "deleted" and not is_own(each.name)
        }
    found = {text: job_id for text, job_id in ids.items() if job_id in there}
    names = [text for text in texts if text not in found and not is_own(text)]
    return await transaction.jobs_named(tenant_id, names) | found


def _edges(job_id: UUID, definition: Definition, found: Mapping[str, UUID]) -> list[Edge]:
    rule = definition.spec.rule
    assert rule is not None
    return [Edge(job_id, found[each.job], place, each.on) for place, each in enumerate(rule.upstreams)]


def _listed_twice(definition: Definition, found: Mapping[str, UUID]) -> errors.Invalid | None:
    """What to say where a job is listed by its name and by its id."""
    rule = definition.spec.rule
    assert rule is not None
    seen: set[UUID] = set()
    for place, each in enumerate(rule.upstreams):
        if (job_id := found.get(each.job)) is not None:
            if job_id in seen:
                return errors.Invalid.field(
                    _field(definition, place), f"{each.job!r} is listed already; list each job once"
                )
            seen.add(job_id)
    return None


async def _check_cycle(
    transaction: Transaction, tenant_id: int, names: Mapping[UUID, str], edges: Sequence[Edge]
) -> None:
    """Refuse edges by which a job would come to follow itself, and name the way."""
    above = await transaction.edges_above(tenant_id, [edge.upstream_id for edge in edges], MOST_EDGES)
    if len(above) == MOST_EDGES:
        raise errors.Invalid.field(
            "after", f"more than {MOST_EDGES} dependencies lie above it; follow fewer jobs"
        )
    upstreams: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for edge in (*(each for each in above if each.dependent_id not in names), *edges):
        upstreams[edge.dependent_id].append(edge.upstream_id)
    cycle = find_cycle(upstreams, names)
    if cycle is not None:
        known = {each.id: each.name for each in await transaction.jobs_of_ids(tenant_id, cycle)}
        raise _cycle_error([names.get(each) or known.get(each, str(each)) for each in cycle])


def _missing(
    rules: Mapping[int, Rule],
    own: Mapping[str, int],
    found: Mapping[str, UUID],
    refused: Mapping[int, errors.UserError],
) -> list[tuple[int, int]]:
    """New jobs that name one which is neither there nor among them, and where in their lists; those that follow such a one
    with it."""
    missing: dict[int, int] = {}
    count = -1
    while count < len(missing):
        count = len(missing)
        gone = {name for name, place in own.items() if place in refused or place in missing}
        for place, rule in rules.items():
            if place in refused or place in missing:
                continue
            for number, each in enumerate(rule.upstreams):
                if each.job not in found and (each.job not in own or each.job in gone):
                    missing[place] = number
                    break
    return list(missing.items())


def _own_cycle(
    rules: Mapping[int, Rule], own: Mapping[str, int], refused: Mapping[int, errors.UserError]
) -> list[str] | None:
    """How a new job would follow itself by way of others that are new."""
    upstreams = {
        name: [above.job for above in rules[place].upstreams if above.job in own]
        for name, place in own.items()
        if place in rules and place not in refused
    }
    return find_cycle(upstreams, upstreams)


def _cycle_error(path: Sequence[str]) -> errors.Invalid:
    return errors.Invalid.field(
        "after",
        f"the job would follow itself: {' → '.join(path)}",
        accepted="jobs that do not follow this one, directly or by way of others",
    )


async def _unknown(
    transaction: Transaction, tenant_id: int, definition: Definition, place: int
) -> errors.Invalid:
    rule = definition.spec.rule
    assert rule is not None
    text = rule.upstreams[place].job
    start = text[:1].replace("\0", "")
    names = await transaction.names_between(tenant_id, start, start + _AFTER_ANY, NAMES_LOOKED_AT)
    near = difflib.get_close_matches(text, [each for each in names if not is_own(each)], 1, cutoff=0.5)
    advice = f"; did you mean {near[0]!r}?" if near else ""
    return errors.Invalid.field(
        _field(definition, place), f"there is no job {text!r}{advice}", accepted="the name or id of a job"
    )


def _field(definition: Definition, place: int) -> str:
    """Where the user wrote an upstream."""
    after = definition.raw["after"]
    below = "" if isinstance(after, list) else ("all." if after.get("all") is not None else "any.")
    return f"after.{below}{place}" + (".job" if isinstance(_listed(after)[place], dict) else "")


def _listed(after: Any) -> list[Any]:
    listed = after if isinstance(after, list) else after.get("all") or after.get("any")
    return listed if isinstance(listed, list) else []


def _text_of(upstream: object) -> str | None:
    text = upstream.get("job") if isinstance(upstream, dict) else upstream
    return text if isinstance(text, str) and 0 < len(text) <= 200 and "\0" not in text else None
