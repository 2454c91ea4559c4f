"""What channels say of an incident: as data, as a message to a chat, as mail."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from cronwell.model.alerts import ChannelKind, Severity
from cronwell.model.instants import write as write_instant

Event = Literal["opened", "repeated", "resolved", "test"]

_COLOURS = {"critical": "#c0392b", "warning": "#e67e22", "info": "#2980b9"}
_RESOLVED = "#27ae60"
_LONGEST_SUBJECT = 200
_MARKS = {"opened": "", "repeated": "still: ", "resolved": "resolved: ", "test": "test: "}


@dataclass(frozen=True, slots=True)
class Alert:
    """Something to tell."""

    event: Event
    incident: str | None
    rule: str | None
    severity: Severity
    summary: str
    """In words, with the name of the job that it is about."""
    opened_at: datetime
    job: str | None = None
    """The job's name."""
    job_id: str | None = None
    resolved_at: datetime | None = None
    outcome: str | None = None
    """How it stood when it was resolved."""
    facts: dict[str, Any] = field(default_factory=dict)


def payload_for(kind: ChannelKind, alert: Alert) -> dict[str, Any]:
    """What a channel's job is given to send."""
    if kind == "webhook":
        return as_data(alert)
    return as_message(alert) if kind == "slack" else as_mail(alert)


def as_data(alert: Alert) -> dict[str, Any]:
    """For programs."""
    return {
        "event": alert.event,
        "incident": alert.incident,
        "rule": alert.rule,
        "severity": alert.severity,
        "summary": alert.summary,
        "job": None if alert.job is None else {"id": alert.job_id, "name": alert.job},
        "facts": alert.facts,
        "opened_at": write_instant(alert.opened_at),
        "resolved_at": None if alert.resolved_at is None else write_instant(alert.resolved_at),
        "outcome": alert.outcome,
    }


def as_message(alert: Alert) -> dict[str, Any]:
    """For a chat that takes what Slack takes."""
    fields = [{"title": title, "value": _escaped(value), "short": True} for title, value in _lines(alert)]
    text = f"{_heading(alert)}{alert.summary}"
    return {
        "text": _escaped(text),
        "attachments": [
            {
                "fallback": _escaped(text),
                "color": _RESOLVED if alert.event == "resolved" else _COLOURS[alert.severity],
                "fields": fields,
            }
        ],
    }


def as_mail(alert: Alert) -> dict[str, Any]:
    """For people: a subject of one line, and a text."""
    subject = f"{_heading(alert)}{alert.summary}"
    subject = "".join(character if character.isprintable() else " " for character in subject)
    if len(subject) > _LONGEST_SUBJECT:
        subject = subject[: _LONGEST_SUBJECT - 1] + "…"
    lines = [alert.summary, "", *(f"{title}: {value}" for title, value in _lines(alert))]
    return {"subject": subject, "text": "\n".join(lines) + "\n"}


def _heading(alert: Alert) -> str:
    return f"[{alert.severity}] {_MARKS[alert.event]}"


def _lines(alert: Alert) -> list[tuple[str, str]]:
    found = [("Rule", alert.rule), ("Job", alert.job), ("Since", write_instant(alert.opened_at))]
    found += [("Execution", alert.facts.get("execution")), ("Error", alert.facts.get("error"))]
    if alert.resolved_at is not None:
        found += [("Until", write_instant(alert.resolved_at)), ("Now", alert.outcome)]
    found.append(("Incident", alert.incident))
    return [(title, value) for title, value in found if value]


def _escaped(text: str) -> str:
    """Text in which a chat finds no mark-up, and nobody to call."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
