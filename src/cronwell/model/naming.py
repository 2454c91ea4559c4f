"""Which secrets a job names, and its target with their values in their places."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from cronwell.model.job import JobSpec, Target, fits_header
from cronwell.model.references import SecretRef, named_in

_FIELDS = {"http": "headers", "shell": "env"}
"""Where a target may name secrets in place of texts, by its kind."""
_LONG_PATH, _LONG_SEGMENT = 8, 12
"""A shorter path, or part of one, lets nobody in, and is a word that is found everywhere."""


def named_by(spec: JobSpec) -> dict[str, str]:
    """The secrets that a definition names, by place."""
    found = {f"{place}.{key}": value.secret for place, key, value in _references(spec.target)}
    found.update(named_in(spec.payload))
    return found


def named_by_target(target: Target) -> set[str]:
    """The secrets that a target names."""
    return {value.secret for _, _, value in _references(target)}


def filled_target(target: Target, values: Mapping[str, str]) -> Target:
    """A target with values in place of the secrets that it names; raises ValueError where one cannot stand there."""
    changes: dict[str, dict[str, str]] = {}
    part = getattr(target, target.kind)
    for place, key, value in _references(target):
        field = place.rpartition(".")[2]
        text = value.prefix + values[value.secret]
        if field == "headers" and not fits_header(text):
            raise ValueError(
                f"the value of the secret {value.secret!r} has characters that a header cannot carry, such as a line end; "
                "set it anew without them"
            )
        changes.setdefault(field, dict(getattr(part, field)))[key] = text
    return target.model_copy(update={target.kind: part.model_copy(update=changes)}) if changes else target


def unshown(target: Target) -> dict[str, str]:
    """What in the target of a channel of alerts is never shown again, by what to call it in its place."""
    http = target.http
    if http is None:
        return {}
    parts = urlsplit(http.url)
    given = {f"header {name}": value for name, value in http.headers.items() if isinstance(value, str)}
    given |= {f"query {name}": value for name, value in parse_qsl(parts.query)}
    given["query"] = parts.query
    if len(parts.path) >= _LONG_PATH:
        given["path"] = parts.path
    segments = [each for each in parts.path.split("/") if len(each) >= _LONG_SEGMENT]
    return given | {f"path {place}": each for place, each in enumerate(segments, 1)}


def _references(target: Target) -> list[tuple[str, str, SecretRef]]:
    kind = target.kind
    if (field := _FIELDS.get(kind)) is None or not (given := getattr(getattr(target, kind), field)):
        return []
    return [
        (f"target.{kind}.{field}", key, value) for key, value in given.items() if isinstance(value, SecretRef)
    ]
