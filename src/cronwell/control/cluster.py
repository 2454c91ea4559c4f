"""What a user can see of the cluster, and ask of its processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from cronwell import __version__, errors, telemetry
from cronwell.config import Settings
from cronwell.control.presence import LOST_AFTER
from cronwell.control.views import Moment, View
from cronwell.control.workers import WorkerView, worker_view
from cronwell.runtime.clock import Clock
from cronwell.store.port import Backlog, Finding, Node, Shard, Store, Worker

REMEMBERED = timedelta(hours=1)
"""Processes that ended longer ago are not shown."""
UNMARKED_AFTER = timedelta(seconds=15)
"""A shard whose watermark was not written for longer has no owner that works."""
SHORTEST_PREFIX = 4


class NodeView(View):
    """A process of Cronwell."""

    id: UUID
    """Random, made at its start. A scheduler owns shards by it."""
    role: str
    """`api`, `scheduler` or `worker`."""
    name: str
    """Its host and process number."""
    state: str
    """`active`, `draining`, `stopped` (it ended in order) or `lost` (it was not seen for 15 s)."""
    version: str
    started_at: Moment
    seen_at: Moment
    stopped_at: Moment | None
    drain_requested_at: Moment | None


class ShardView(View):
    """A slice of the jobs: who stages it, and how far that has come."""

    shard: int
    state: str
    """`owned`; or `unowned`, where its owner has gone or has not written its watermark for 15 s."""
    owner: UUID | None
    """The process that stages it, or was the last to."""
    owner_name: str | None
    epoch: int
    """Grows with each owner; what an earlier one still stages is refused."""
    since: Moment | None
    """When this epoch began."""
    watermark: Moment | None
    """All slots up to here have their verdict or are staged."""
    ahead_s: float | None
    """Seconds by which the watermark stands ahead of the clock; below 0 slots are late."""
    marked_at: Moment | None


class PoolView(View):
    name: str
    workers: int
    """Living workers that serve it."""
    depth: int
    """Executions that are due and wait."""
    oldest_due_at: Moment | None
    """Since when the oldest of them waits."""


class FindingView(View):
    """Something that should not be, as the scanner found it."""

    kind: str
    found: int
    """How many there were in the last whole walk."""
    mended: int
    """How many of them it has mended."""
    examples: list[str]
    """Some of them: ids of jobs, or names of pools."""


class ClusterSummary(View):
    """How things stand, in a few figures."""

    oldest_watermark: Moment | None
    """Up to here the slots of every shard are accounted for; null while a shard was never staged."""
    ahead_s: float | None
    """Seconds by which it stands ahead of the clock; below 0 slots are late."""
    unowned_shards: int
    overdue: int
    """Executions that could start and have not, past their time."""
    oldest_overdue_s: float | None
    """For how long the oldest of them waits."""


class ClusterView(View):
    version: str
    """Of the process that answers."""
    now: Moment
    """The time by which due-ness is judged: the database's."""
    coordination: str
    """How schedulers share the shards, as the process that answers is set: `postgres` or `etcd`."""
    incarnation: str
    """The database's system identifier and timeline: another one after a failover."""
    versions: dict[str, int]
    """How many living processes have each version."""
    summary: ClusterSummary
    nodes: list[NodeView]
    workers: list[WorkerView]
    pools: list[PoolView]
    shards: list[ShardView]
    findings: list[FindingView]
    """What the scanner's last whole walk found, where that is not as it should be."""
    scanned_at: Moment | None
    """When that walk ended."""


class Cluster:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._coordination = settings.coordination.partition("://")[0]

    async def show(self) -> ClusterView:
        """The processes, the shards, and what waits."""
        now = self._clock.now()
        nodes = await self._store.list_nodes(now - REMEMBERED)
        workers = await self._store.list_workers(now)
        backlog = await self._store.backlog(now)
        found = await self._store.list_findings()
        states = {node.id: node_state(node, now) for node in nodes}
        living = [node for node in nodes if is_living(states[node.id])]
        names = {node.id: node.name for node in nodes}
        shards = [_shard_view(each, states, names, now) for each in await self._store.list_shards()]
        return ClusterView(
            version=__version__,
            now=now,
            coordination=self._coordination,
            incarnation=await self._store.incarnation(),
            versions=dict(sorted(Counter(node.version for node in living).items())),
            summary=_summary(shards, backlog, now),
            nodes=[node_view(node, now) for node in nodes],
            workers=[worker_view(each, now) for each in workers],
            pools=_pools(workers, backlog),
            shards=shards,
            findings=[_finding_view(each) for each in found if each.found],
            scanned_at=max((each.walked_at for each in found), default=None),
        )

    async def drain(self, reference: str) -> NodeView:
        """Ask a process to drain: it stops as by SIGTERM, within seconds. Asking again changes nothing."""
        now = self._clock.now()
        node = find_node(await self._store.list_nodes(now - timedelta(days=1)), reference, now)
        if await self._store.ask_to_drain(node.id, now) is None:
            raise errors.IllegalState(f"{node.role} {node.name} has ended in this moment")
        telemetry.node_changed("is asked to drain", node=str(node.id), name=node.name)
        [asked] = [each for each in await self._store.list_nodes(node.seen_at) if each.id == node.id]
        return node_view(asked, self._clock.now())


def node_state(node: Node, now: datetime) -> str:
    """`active`, `draining`, `stopped` or `lost`."""
    if node.stopped_at is not None:
        return "stopped"
    if node.seen_at < now - LOST_AFTER:
        return "lost"
    return "active" if node.drain_requested_at is None else "draining"


def is_living(state: str) -> bool:
    return state in ("active", "draining")


def find_node(nodes: Sequence[Node], reference: str, now: datetime) -> Node:
    """The living process that an id, the beginning of one, or `host:pid` means; raises what is wrong with it."""
    wanted = reference.strip().lower()
    digits = wanted.replace("-", "")
    by_id = [node for node in nodes if len(digits) >= SHORTEST_PREFIX and node.id.hex.startswith(digits)]
    matches = by_id or [node for node in nodes if node.name.lower() == wanted]
    living = [node for node in matches if is_living(node_state(node, now))]
    if len(living) > 1:
        told = ", ".join(f"{node.id} ({node.role} {node.name})" for node in living[:5])
        raise errors.Conflict(f"{reference!r} is ambiguous: it means {told}; give more of the id")
    if living:
        return living[0]
    if matches:
        last = max(matches, key=lambda node: node.seen_at)
        how = "stopped" if last.stopped_at is not None else "was last seen"
        raise errors.IllegalState(
            f"{last.role} {last.name} is gone: it {how} at {last.seen_at.isoformat(timespec='seconds')}"
        )
    raise errors.NotFound(
        f"there is no process {reference!r}; give its id, at least {SHORTEST_PREFIX} digits of it, or host:pid, "
        "as `cronwell cluster` shows them"
    )


def node_view(node: Node, now: datetime) -> NodeView:
    return NodeView(
        id=node.id,
        role=node.role,
        name=node.name,
        state=node_state(node, now),
        version=node.version,
        started_at=node.started_at,
        seen_at=node.seen_at,
        stopped_at=node.stopped_at,
        drain_requested_at=node.drain_requested_at,
    )


def _shard_view(
    shard: Shard, states: Mapping[UUID, str], names: Mapping[UUID, str], now: datetime
) -> ShardView:
    # An owner that is not among the processes may be one whose row could not be written: its marks speak for it.
    is_owned = (
        shard.owner is not None
        and is_living(states.get(shard.owner, "active"))
        and shard.marked_at is not None
        and shard.marked_at >= now - UNMARKED_AFTER
    )
    return ShardView(
        shard=shard.shard,
        state="owned" if is_owned else "unowned",
        owner=shard.owner,
        owner_name=None if shard.owner is None else names.get(shard.owner),
        epoch=shard.epoch,
        since=shard.entered_at,
        watermark=shard.watermark,
        ahead_s=_seconds(shard.watermark, now),
        marked_at=shard.marked_at,
    )


def _summary(shards: Sequence[ShardView], backlog: Sequence[Backlog], now: datetime) -> ClusterSummary:
    marks = [each.watermark for each in shards]
    oldest = min((each for each in marks if each is not None), default=None)
    if None in marks:
        oldest = None
    waits = [now - each.oldest for each in backlog]
    return ClusterSummary(
        oldest_watermark=oldest,
        ahead_s=_seconds(oldest, now),
        unowned_shards=sum(each.state == "unowned" for each in shards),
        overdue=sum(each.depth for each in backlog),
        oldest_overdue_s=max((round(wait.total_seconds(), 3) for wait in waits), default=None),
    )


def _pools(workers: Sequence[Worker], backlog: Sequence[Backlog]) -> list[PoolView]:
    serving = Counter(pool for worker in workers if worker.state == "active" for pool in worker.pools)
    waiting = {each.pool: each for each in backlog}
    return [
        PoolView(
            name=pool,
            workers=serving[pool],
            depth=waiting[pool].depth if pool in waiting else 0,
            oldest_due_at=waiting[pool].oldest if pool in waiting else None,
        )
        for pool in sorted(serving.keys() | waiting.keys())
    ]


def _finding_view(finding: Finding) -> FindingView:
    return FindingView(
        kind=finding.kind, found=finding.found, mended=finding.mended, examples=list(finding.examples)
    )


def _seconds(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else round((at - now).total_seconds(), 3)
