"""The canonical form of a schedule: compact, stable JSON that is kept with each job and read back to the same schedule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cronwell.model import calendars, cron, instants, recurrence
from cronwell.model import window as windows
from cronwell.model.dst import DstRule
from cronwell.model.filters import Filter, Named
from cronwell.model.kinds import CronTimes, FixedDelay, FixedRate, Instants, Kind, RuleTimes

if TYPE_CHECKING:
    from cronwell.model.schedule import Schedule

_MICROSECOND = timedelta(microseconds=1)


def write(schedule: Schedule) -> str:
    """Write a schedule; whatever is at its default is left out."""
    kinds = [_write_kind(kind, schedule.timezone) for kind in schedule.kinds]
    is_plain = len(kinds) == 1 and "timezone" not in kinds[0]
    members: dict[str, Any] = kinds[0] if is_plain else {"any": kinds}
    members["timezone"] = schedule.timezone
    if schedule.excepts:
        members["except"] = [_write_kind(kind, schedule.timezone) for kind in schedule.excepts]
    if schedule.window is not None:
        members["window"] = windows.write(schedule.window)
    for name, moment in (("start", schedule.start), ("end", schedule.end)):
        if moment is not None:
            members[name] = instants.write(moment)
    if schedule.max_runs is not None:
        members["max_runs"] = schedule.max_runs
    if schedule.filter is not None:
        members |= _write_filter(schedule.filter)
    return as_text(members)


def read(members: Mapping[str, Any]) -> dict[str, Any]:
    """Read the fields of a schedule back from what `write` wrote."""
    timezone = members["timezone"]
    kinds = members.get("any", [members])
    return {
        "kinds": tuple(_read_kind(each, timezone) for each in kinds),
        "timezone": timezone,
        "excepts": tuple(_read_kind(each, timezone) for each in members.get("except", ())),
        "window": windows.parse(members["window"]) if "window" in members else None,
        "start": instants.parse(members["start"]) if "start" in members else None,
        "end": instants.parse(members["end"]) if "end" in members else None,
        "max_runs": members.get("max_runs"),
        "filter": _read_filter(members),
    }


def as_text(members: Mapping[str, Any]) -> str:
    """One text for one meaning."""
    return json.dumps(members, separators=(",", ":"), sort_keys=True)


def _write_kind(kind: Kind, timezone: str) -> dict[str, Any]:
    members: dict[str, Any]
    if isinstance(kind, FixedRate):
        return {"every": kind.every // _MICROSECOND, "anchor": instants.write(kind.anchor)}
    if isinstance(kind, FixedDelay):
        return {"every": kind.every // _MICROSECOND, "after": "finish", "anchor": instants.write(kind.first)}
    if isinstance(kind, Instants):
        moments = [instants.write(at) for at in kind.at]
        return {"at": moments[0] if len(moments) == 1 else moments}
    if isinstance(kind, CronTimes):
        members = {"cron": kind.expression.text}
        if kind.expression.day_rule != "or":
            members["days"] = kind.expression.day_rule
    else:
        members = {"rrule": kind.faces.text, "anchor": kind.faces.start.isoformat()}
    if kind.timezone != timezone:
        members["timezone"] = kind.timezone
    if kind.rule != kind.default_rule:
        members["dst"] = {"gap": kind.rule.gap, "fold": kind.rule.fold}
    return members


def _read_kind(members: Mapping[str, Any], timezone: str) -> Kind:
    if "every" in members:
        every, anchor = members["every"] * _MICROSECOND, instants.parse(members["anchor"])
        return FixedDelay(every, anchor) if "after" in members else FixedRate(every, anchor)
    if "at" in members:
        at = members["at"]
        return Instants(tuple(instants.parse(each) for each in ([at] if isinstance(at, str) else at)))
    timezone = members.get("timezone", timezone)
    rule = DstRule(**members["dst"]) if "dst" in members else None
    if "cron" in members:
        return CronTimes.of(cron.parse(members["cron"], days=members.get("days", "or")), timezone, rule)
    faces = recurrence.parse(members["rrule"], datetime.fromisoformat(members["anchor"]))
    return RuleTimes.of(faces, timezone, rule)


def _write_filter(filter_: Filter) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, named in (("exclude", filter_.exclude), ("only", filter_.only)):
        if named:
            members[name] = [[each.name, json.loads(each.calendar.canonical())] for each in named]
    if filter_.shift is not None:
        members["shift"] = filter_.shift
    return members


def _read_filter(members: Mapping[str, Any]) -> Filter | None:
    if "exclude" not in members and "only" not in members:
        return None
    exclude, only = (
        tuple(Named(name, calendars.load(as_text(content))) for name, content in members.get(key, ()))
        for key in ("exclude", "only")
    )
    return Filter(exclude, only, members.get("shift"))
