"""A job that its calendars leave without a further slot waits for them to change, and is not finished.

A calendar is changed by somebody else than the job's owner: an `only` list comes to its end before the next year is entered,
or a slip closes every day. So a job is finished for good only by what its own schedule says: its last time, its end, its
`max_runs`. A job that waits is looked at again now and then, as its schedule may come to an end meanwhile.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

from cronwell.model.filters import Filter
from cronwell.model.schedule import Schedule

LOOK_AGAIN = timedelta(days=1)
"""A job that waits is looked at again after so long, at the earliest."""


def waits_until(schedule: Schedule, after: datetime) -> datetime | None:
    """When to look again at a job without a slot after a time; None where not its calendars are why."""
    if schedule.filter is None or schedule.delay is not None:
        return None
    left_out = dataclasses.replace(schedule, filter=None).next_after(after)
    return None if left_out is None else max(left_out, after + LOOK_AGAIN)


def why_waiting(schedule: Schedule, until: datetime) -> str:
    """Name the calendars that leave no slot to a job which is looked at again at a time that `waits_until` gave."""
    names = _to_blame(schedule, until - LOOK_AGAIN)
    if len(names) == 1:
        return f"the calendar {names[0]} leaves no slot; the job goes on when it changes"
    return f"the calendars {', '.join(names[:-1])} and {names[-1]} leave no slot; the job goes on when they change"


def _to_blame(schedule: Schedule, after: datetime) -> list[str]:
    """Those calendars without any one of which there would be slots; where there is none such, all of them."""
    assert schedule.filter is not None, "only a job with calendars waits"
    names = schedule.filter.names
    if len(names) == 1:
        return names
    alone = [
        name
        for name in names
        if dataclasses.replace(schedule, filter=_without(schedule.filter, name)).next_after(after) is not None
    ]
    return alone or names


def _without(filter_: Filter, name: str) -> Filter:
    exclude, only = (
        tuple(each for each in named if each.name != name) for named in (filter_.exclude, filter_.only)
    )
    return dataclasses.replace(filter_, exclude=exclude, only=only)
