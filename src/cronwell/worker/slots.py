"""A worker's places: attempts held on the wheel until their instant, then running, until their result is kept."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from uuid import UUID

from cronwell import errors, telemetry
from cronwell.config import WorkerSettings
from cronwell.control.scheduling import START_WITHIN
from cronwell.model.execution import Result, State
from cronwell.model.wheel import Wheel
from cronwell.runtime.clock import Clock
from cronwell.runtime.deadlines import Deadlines
from cronwell.store.port import Claimed, Confirmed, Ended, Report, Store
from cronwell.targets.port import END, Call, Done, Outcome, Signals, TargetRunner
from cronwell.worker.attempt import STOPPED, Attempt, AttemptKey, Claim
from cronwell.worker.catalog import KnownJob
from cronwell.worker.completion import Completion
from cronwell.worker.holding import Holding
from cronwell.worker.latecomers import Latecomers
from cronwell.worker.starting import Starting
from cronwell.worker.tally import Tally
from cronwell.worker.valves import Valves
from cronwell.worker.vault import SecretKey, Vault

# Beyond its deadline and grace a target has this long to keep its promise to return; then its task is cancelled.
BACKSTOP = timedelta(seconds=5)
REPORTED_AFTER = timedelta(seconds=1)
# Of so many claims at once, those whose instants lie in the same millisecond start together, at its end.
DENSE = 256
TOGETHER = 0.001


@dataclass(frozen=True, slots=True)
class Means:
    """What attempts are carried out with."""

    runners: Mapping[str, TargetRunner]
    vault: Vault


class Slots:
    """Every attempt that this worker owns. All methods are called from the event loop's thread."""

    def __init__(  # noqa: PLR0913  # what a worker's places stand between
        self,
        means: Means,
        completion: Completion,
        store: Store,
        clock: Clock,
        settings: WorkerSettings,
        valves: Valves,
        *,
        on_free: Callable[[Claimed], None],
        on_gone: Callable[[Claimed], None],
    ) -> None:
        self._runners = means.runners
        self._vault = means.vault
        self._completion = completion
        self._store = store
        self._clock = clock
        self._settings = settings
        self._on_free = on_free
        self._on_gone = on_gone
        self._tally = Tally()
        self._deadlines = Deadlines()
        self._valves = valves
        self._latecomers = Latecomers(store, clock, self._start_late)
        self._holding = Holding(store, self._held_back)
        self._starting = Starting(self._run)
        self._wheel: Wheel[list[Attempt]] = Wheel(time.monotonic())
        self._attempts: set[Attempt] = set()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self.save: Callable[[Call, str], Awaitable[None]] = lambda call, checkpoint: Done()
        """How attempts leave checkpoints. One for all of them: each would keep one of its own in memory."""

    def __len__(self) -> int:
        """Places taken: held, running, or waiting for their result to be kept."""
        return len(self._attempts)

    @property
    def free(self) -> int:
        return self._settings.concurrency - len(self._attempts)

    def hold(self, claims: Sequence[tuple[Claimed, KnownJob]], asked: float) -> None:
        """Keep executions until their instant; `asked` is the monotonic time from before the request that claimed them."""
        now = time.monotonic()
        held: defaultdict[float, list[Attempt]] = defaultdict(list)
        needed: set[SecretKey] = set()
        is_dense = len(claims) >= DENSE
        patience = START_WITHIN.total_seconds()
        for claimed, job in claims:
            instant = self._clock.monotonic_at(claimed.ready_at)
            attempt = Attempt(claimed, job, (max(asked, instant)) + patience)
            self._attempts.add(attempt)
            if job.named:
                needed.update((claimed.tenant_id, name) for name in job.named)
            if instant <= now:
                self._start(attempt, is_late=True)
            else:
                held[ceil(instant / TOGETHER) * TOGETHER if is_dense else instant].append(attempt)
        if needed:
            # So that none waits for them at its instant.
            self._vault.warm(needed)
        for instant, together in held.items():
            self._wheel.add(instant, together)
        if self._attempts:
            self._is_empty.clear()
        self._start_due()

    def unknown(self, claims: Iterable[Claim]) -> list[Claim]:
        """Those of some claims that are not here."""
        here = {attempt.key for attempt in self._attempts}
        return [claim for claim in claims if (claim[1], claim[2]) not in here]

    def reports(self) -> list[Report]:
        """What attempts that have run for a while have to tell; a short one tells it all with its result."""
        begun_by = self._clock.now() - REPORTED_AFTER
        news = [a for a in self._attempts if a.has_news and a.started_at and a.started_at < begun_by]
        # In the order of the primary key, like results: no two writers wait for each other.
        news.sort(key=lambda attempt: (attempt.claimed.key.job_id, attempt.claimed.key.slot))
        return [report for attempt in news if (report := attempt.report()) is not None]

    def report_again(self, reports: Collection[Report]) -> None:
        """These could not be written: they are told with the next ones."""
        again = {(report.key, report.fence) for report in reports}
        for attempt in self._attempts:
            if attempt.key in again:
                attempt.has_news = True

    def cancel(self, keys: Collection[AttemptKey]) -> None:
        """Stop attempts that a user cancelled: one that is held at once, one that runs when it can."""
        if not keys:
            return
        wanted = set(keys)
        # By their jobs first: of 20,000 attempts they are found in 8 ms, by their keys in 15 (November 2026).
        jobs = {key.job_id for key, _ in wanted}
        likely = [each for each in self._attempts if each.claimed.key.job_id in jobs]
        for attempt in [each for each in likely if each.key in wanted and not each.is_cancelled]:
            attempt.is_cancelled = True
            if attempt.is_held:
                attempt.is_held = False
                self._finish(attempt, Outcome(Result.CANCELLED, error="cancelled before it started"))
            elif attempt.signals is not None:
                attempt.signals.cancelled.set()

    def take_held(self) -> list[Attempt]:
        """Take every attempt that has not started off the wheel, to hand them back."""
        held = [attempt for together in self._wheel.clear() for attempt in together if attempt.is_held]
        for attempt in held:
            attempt.is_held = False
            self._forget(attempt)
        return held

    def ask_to_stop(self) -> None:
        """Let running attempts know that they should end, and those that are about to take their first step."""
        self._is_stopping = True
        for attempt in self._attempts:
            if attempt.signals is not None:
                attempt.signals.cancelled.set()

    def force(self) -> None:
        """Cancel the tasks of attempts that still run; they are recorded as stopped with the worker."""
        for attempt in self._attempts:
            if attempt.task is not None:
                attempt.task.cancel(END)

    def has_any_of(self, worker: UUID) -> bool:
        """Whether anything that was claimed under this name is still here."""
        return any(attempt.claimed.worker == worker for attempt in self._attempts)

    def lose(self, kept: Collection[AttemptKey] = ()) -> int:
        """The lease has ended, but for what is kept: drop everything else, record nothing; how many they were."""
        lost = [attempt for attempt in self._attempts if attempt.key not in kept]
        for attempt in lost:
            attempt.is_lost = True
            attempt.is_held = False
            if attempt.signals is not None:
                attempt.signals.cancelled.set()
            if attempt.task is not None:
                attempt.task.cancel(END)
            self._forget(attempt)
        return len(lost)

    def sweep(self) -> None:
        """Cancel the tasks of targets that broke their promise to return after their deadline."""
        latest = time.monotonic() - (self._settings.cancel_grace + BACKSTOP).total_seconds()
        for attempt in self._attempts:
            if attempt.signals is not None and attempt.signals.deadline < latest and attempt.task is not None:
                attempt.task.cancel(END)

    async def wait_until_empty(self, timeout: timedelta) -> bool:
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._is_empty.wait()
        except TimeoutError:
            return False
        return True

    def _start_due(self) -> None:
        """Start what is due and set the timer for the next instant."""
        try:
            for together in self._wheel.advance(time.monotonic()):
                for attempt in together:
                    if attempt.is_held:
                        self._start(attempt)
        finally:
            self._set_timer()

    def _set_timer(self) -> None:
        following = self._wheel.next_deadline()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if following is not None:
            wait = max(0.0, following - time.monotonic())
            self._timer = self._loop.call_later(wait, self._start_due)

    def _start(self, attempt: Attempt, *, is_late: bool = False) -> None:
        if attempt.entry is None and not self._may_start(attempt):
            return
        attempt.is_held = False
        self._starting.add(attempt, is_late=is_late)

    def _may_start(self, attempt: Attempt) -> bool:
        """Whether its target can take it now. If not, it waits: for a moment in its place, or where it takes none."""
        now = time.monotonic()
        verdict = self._valves.ask(attempt, now)
        if verdict.is_held:
            attempt.is_held = False
            self._holding.add(attempt, self._clock.now() + timedelta(seconds=verdict.wait))
        elif verdict.wait > 0:
            attempt.is_held = True
            self._wheel.add(now + verdict.wait, [attempt])
            self._set_timer()
        else:
            return True
        return False

    def _held_back(self, attempt: Attempt, is_written: bool) -> None:
        """It is for others to claim again, unless something became of it meanwhile."""
        if is_written:
            self._forget(attempt)
        else:
            self._latecomers.add(attempt)

    def _start_late(self, attempt: Attempt, confirmed: Confirmed | None) -> None:
        """The store was asked anew: start, or do what became of it meanwhile."""
        if confirmed is None:
            attempt.is_lost = True
            self._forget(attempt)
        elif confirmed.is_cancelled or attempt.is_cancelled:
            attempt.is_cancelled = True
            self._finish(attempt, Outcome(Result.CANCELLED, error="cancelled before it started"))
        elif confirmed.state is State.RUNNING:
            self._start(attempt, is_late=True)
        else:
            self._forget(attempt)

    async def _run(self, attempt: Attempt) -> None:
        claimed, terms = attempt.claimed, attempt.job.terms
        began = time.monotonic()
        if began > attempt.start_by:
            attempt.task = None
            self._latecomers.add(attempt)
            return
        attempt.started_at = self._clock.now()
        self._tally.started(
            claimed.priority, max((attempt.started_at - claimed.ready_at).total_seconds(), 0.0)
        )
        attempt.signals = self._signals(attempt, began)
        attempt.has_news = True
        kind = terms.target.kind
        try:
            call = attempt.call()
            if attempt.names_secrets:
                call = await self._vault.fill(call, attempt.job.named)
            attempt.hidden = call.hidden
            outcome = await self._runners[kind].run(call, attempt.signals)
        except asyncio.CancelledError:
            if attempt.is_lost:
                raise
            outcome = _overdue(attempt) if time.monotonic() > attempt.signals.deadline else STOPPED
        except errors.SecretUnavailable as error:
            outcome = Outcome(Result.FAILED, error=str(error), error_kind="secret")
        except Exception as error:  # noqa: BLE001  # a target's own mistake is the attempt's failure, not the worker's
            outcome = Outcome(Result.FAILED, error=f"{type(error).__name__}: {error}", error_kind="internal")
        if attempt.is_lost:
            return
        if attempt.hidden is not None:
            # Before anything tells of it: what is logged here is as public as what is kept.
            outcome = outcome.concealed(attempt.hidden)
        took = time.monotonic() - began
        self._valves.ended(attempt, outcome, took)
        if outcome.awaits_callback:
            self._finish(attempt, outcome)
            return
        self._tally.ended(kind, outcome.result, took)
        if outcome.result is not Result.SUCCEEDED:
            telemetry.attempt_failed(
                execution=claimed.key,
                job=attempt.job.name,
                result=outcome.result.value,
                attempt=claimed.attempt,
                took=timedelta(seconds=took),
                error=outcome.error,
            )
        self._finish(attempt, outcome)
        if outcome.pauses_job:
            self._on_gone(claimed)

    def _signals(self, attempt: Attempt, began: float) -> Signals:
        signals = Signals(
            deadline=began + attempt.job.terms.timeout.total_seconds(),
            report=attempt.take_progress,
            save=self.save,
            cancel_grace=self._settings.cancel_grace,
            deadlines=self._deadlines,
        )
        if attempt.is_cancelled or self._is_stopping:
            # In the moment between its instant and its first step.
            signals.cancelled.set()
        return signals

    def _finish(self, attempt: Attempt, outcome: Outcome) -> None:
        ended = attempt.conclude(outcome, self._clock.now())
        attempt.task = None
        attempt.signals = None
        self._completion.add(ended, lambda state: self._kept(attempt, ended, state))

    def _kept(self, attempt: Attempt, ended: Ended, state: State | None) -> None:
        """The commit has answered: the place is free."""
        self._forget(attempt)
        if state is State.FAILED and ended.awaits is None:
            telemetry.died(
                execution=str(ended.key),
                job=attempt.job.name,
                attempts=attempt.claimed.attempt,
                error=ended.error,
            )

    def _forget(self, attempt: Attempt) -> None:
        if attempt in self._attempts:
            self._attempts.remove(attempt)
            self._valves.ended(attempt, None)
            self._on_free(attempt.claimed)
            if not self._attempts:
                self._is_empty.set()


def _overdue(attempt: Attempt) -> Outcome:
    seconds = attempt.job.terms.timeout.total_seconds()
    return Outcome(
        Result.TIMED_OUT,
        error=f"not ended {seconds:g} s after its start; stopped by force",
        error_kind="timeout",
    )
