"""`cronwell execution tail`: follow executions as they start, retry and end.

The API is polled: each look reads the executions whose slots lie in the last minute, and one by one those that are
still open from before. A state that came and went between two looks is not seen; the last one always is. Where more
happens than one look may read, the newest are shown and a remark says that others were not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cronwell.cli import lists, times
from cronwell.cli.failures import Refused
from cronwell.cli.paths import execution_path, job_reference
from cronwell.cli.screen import STYLES, Screen
from cronwell.cli.session import Json, session

if TYPE_CHECKING:
    from cronwell.cli.client import Client

ENDED = frozenset({"succeeded", "failed", "cancelled", "skipped"})
BEHIND = timedelta(seconds=60)
AHEAD = timedelta(seconds=2)
OPEN_FOLLOWED = 100
MOST_READ = 2000


def tail(
    context: typer.Context,
    job: Annotated[
        str | None, typer.Option("--job", "-j", metavar="JOB", help="Only of this job: name or id.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, metavar="N", help="Stop after so many lines.")
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.05, metavar="SECONDS", help="How long to wait between two looks.")
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Follow executions until Ctrl-C: a line for each that starts, is retried or ends (--json: NDJSON)."""
    here = session(context)
    screen = here.screen(as_json)
    follower = Follower(here.client, None if job is None else job_reference(job))
    follower.begin()
    if not as_json:
        screen.remark("following executions; Ctrl-C ends it")
    written = 0
    has_remarked = False
    while True:
        changed = follower.look()
        if follower.is_overrun and not has_remarked and not as_json:
            screen.remark("more executions than can be followed, so some are left out: narrow it with --job")
            has_remarked = True
        for execution in changed:
            if as_json:
                screen.json_line(execution)
            else:
                _write(screen, execution)
            written += 1
            if written == count:
                return
        time.sleep(interval)


@dataclass(slots=True)
class Follower:
    """Remembers how each execution stood, and finds what has changed."""

    client: Client
    job: str | None
    is_overrun: bool = False
    """Whether the latest look may have missed something."""
    _known: dict[str, tuple[str, int]] = field(default_factory=dict)
    _slots: dict[str, datetime] = field(default_factory=dict)

    def begin(self) -> None:
        """Take in how things stand, so that only what happens from now on is new."""
        for execution in self._recent():
            self._note(execution)
        self.is_overrun = False

    def look(self) -> list[dict[str, Any]]:
        """Every execution that has changed since the last look, oldest slot first."""
        found = {execution["id"]: execution for execution in self._recent()}
        for execution_id in self._left_open(found):
            try:
                found[execution_id] = self.client.get(execution_path(execution_id))
            except Refused:
                # Retention took it.
                self._forget(execution_id)
        changed = [
            execution
            for execution in found.values()
            if self._known.get(execution["id"]) != _standing(execution) and execution["state"] != "pending"
        ]
        for execution in found.values():
            self._note(execution)
        self._forget_old()
        return sorted(changed, key=lambda each: (times.read_moment(each["slot"]), each["id"]))

    def _recent(self) -> list[dict[str, Any]]:
        if not self.client.has_answered:
            # The server's clock decides what is recent, and only an answer tells it.
            self.client.get("/v1/executions", {"limit": 1})
        now = self.client.server_at
        query = {
            "job": self.job,
            "from": times.write_moment(now - BEHIND),
            "to": times.write_moment(now + AHEAD),
        }
        found: list[dict[str, Any]] = []
        following: str | None = None
        for page in self.client.find("/v1/executions", query, limit=MOST_READ):
            found += page.items
            following = page.next_cursor
        # Newest first: what was not read is older than all of these. If one of them is known, so is what was not read.
        self.is_overrun = following is not None and not any(each["id"] in self._known for each in found)
        return found

    def _left_open(self, found: dict[str, dict[str, Any]]) -> list[str]:
        open_ids = [
            execution_id
            for execution_id, (state, _) in self._known.items()
            if state not in ENDED and execution_id not in found
        ]
        return open_ids[-OPEN_FOLLOWED:]

    def _note(self, execution: dict[str, Any]) -> None:
        self._known[execution["id"]] = _standing(execution)
        self._slots[execution["id"]] = times.read_moment(execution["slot"])

    def _forget_old(self) -> None:
        horizon = self.client.server_at - 2 * BEHIND
        for execution_id, (state, _) in list(self._known.items()):
            if state in ENDED and self._slots[execution_id] < horizon:
                self._forget(execution_id)

    def _forget(self, execution_id: str) -> None:
        self._known.pop(execution_id, None)
        self._slots.pop(execution_id, None)


def _standing(execution: dict[str, Any]) -> tuple[str, int]:
    return execution["state"], execution["fence"]


def _write(screen: Screen, execution: dict[str, Any]) -> None:
    late = execution.get("lateness_ms")
    at = execution.get("finished_at") or execution.get("started_at") or execution["slot"]
    parts = [
        times.local(times.read_moment(at)),
        f"{execution['state']:<9}",
        execution.get("job") or execution["job_id"],
        execution["id"],
    ]
    if execution["attempt"] > 1:
        parts.append(f"attempt {execution['attempt']}")
    if late is not None:
        parts.append(f"late {times.elapsed(late)}")
    if length := lists.took(execution):
        parts.append(f"took {length}")
    if reason := lists.why(execution):
        parts.append(reason)
    screen.line("  ".join(parts), style=STYLES.get(execution["state"]))
