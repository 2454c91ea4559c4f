"""A job from command-line options: the options that create and edit share, and what they say to the API."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, Concatenate

import typer

from cronwell.cli.sources import read_json, read_object, read_pairs, read_schedule, read_text, usage


class Priority(StrEnum):
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Overlap(StrEnum):
    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    CANCEL_RUNNING = "cancel_running"


class CatchUp(StrEnum):
    NONE = "none"
    LAST = "last"
    ALL = "all"


class Backoff(StrEnum):
    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"


_KINDS = {"http": "http", "shell": "shell", "handler": "handler", "stream": "publish"}
"""The kind of target that each option gives."""
_GOES_WITH = {
    "method": ("http", "URL"),
    "header": ("http", "URL"),
    "callback": ("http", "URL"),
    "secret_header": ("http", "URL"),
    "broker": ("stream", "STREAM"),
    "maxlen": ("stream", "STREAM"),
}
"""Options that say more of a target, and the option that gives it."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What the options say about a job; None and empty where they say nothing."""

    schedule: Annotated[
        str | None,
        typer.Option(
            "--schedule",
            "-s",
            metavar="WHEN",
            help='Cron text, "@hourly", "every 15m", "in 5m" or "at 2027-01-01T10:00:00Z".',
        ),
    ] = None
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after",
            metavar="JOB[:HOW]",
            help="In place of a schedule: after this job has succeeded, failed or finished. Repeatable.",
        ),
    ] = None
    zone: Annotated[
        str | None, typer.Option("--zone", "-z", metavar="ZONE", help='IANA time zone, e.g. "Europe/Berlin".')
    ] = None
    window: Annotated[
        str | None,
        typer.Option(metavar="SPREAD", help='Spread the starts over a time, e.g. "5m" or "10%".'),
    ] = None
    http: Annotated[
        str | None, typer.Option("--http", metavar="URL", help="Target: call this URL with a signed request.")
    ] = None
    method: Annotated[
        str | None,
        typer.Option(metavar="METHOD", help="With --http: POST (default), PUT, PATCH, GET, DELETE."),
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="With --http: a header. Repeatable."),
    ] = None
    callback: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="With --http: an answer of 202 is followed by a callback, at the latest after so long.",
        ),
    ] = None
    secret_header: Annotated[
        list[str] | None,
        typer.Option(
            "--secret-header",
            metavar='NAME="[PREFIX ]SECRET"',
            help='With --http: a header whose value is a secret, e.g. Authorization="Bearer billing-token". Repeatable.',
        ),
    ] = None
    handler: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Target: call this Python function of the workers."),
    ] = None
    shell: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Target: run this command (the installation must allow it)."),
    ] = None
    stream: Annotated[
        str | None,
        typer.Option(metavar="STREAM", help="Target: publish to this stream of a Redis broker."),
    ] = None
    broker: Annotated[
        str | None,
        typer.Option(metavar="NAME", help='With --stream: the broker, if it is not the one named "default".'),
    ] = None
    maxlen: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With --stream: about how many entries the stream keeps."),
    ] = None
    payload: Annotated[
        str | None,
        typer.Option("--payload", "-p", metavar="JSON|@FILE|-", help="What the target is given."),
    ] = None
    retry: Annotated[
        int | None,
        typer.Option(
            min=0, max=99, metavar="N", help="Times that a failed attempt is tried again (default 3)."
        ),
    ] = None
    backoff: Annotated[Backoff | None, typer.Option(help="How the delay between attempts grows.")] = None
    retry_delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help='Delay before the first retry, e.g. "30s".')
    ] = None
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help='Longest time of one attempt, e.g. "10m".')
    ] = None
    priority: Annotated[Priority | None, typer.Option(help="Who goes first when workers are busy.")] = None
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="The pool of workers that runs it.")] = None
    overlap: Annotated[
        Overlap | None,
        typer.Option(help="What becomes of a slot that comes due while an earlier one is unfinished."),
    ] = None
    max_running: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many may be unfinished at once (default 1).")
    ] = None
    group: Annotated[
        str | None,
        typer.Option(metavar="NAME[:N]", help="A group of jobs of which N may run at once (default 1)."),
    ] = None
    catch_up: Annotated[
        CatchUp | None, typer.Option(help="Which missed slots are made up for after an outage.")
    ] = None
    tag: Annotated[
        list[str] | None, typer.Option("--tag", "-t", metavar="NAME=VALUE", help="A tag. Repeatable.")
    ] = None
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="What the job is for.")] = None
    from_file: Annotated[
        str | None,
        typer.Option(
            "--from-file", "-f", metavar="FILE|-", help="A definition in JSON; the other options change it."
        ),
    ] = None

    @property
    def is_empty(self) -> bool:
        """Whether no option was given."""
        return all(getattr(self, each.name) in (None, []) for each in fields(self))

    def definition(self, name: str | None) -> dict[str, Any]:
        """The whole job: the file's definition, if there is one, with the options on top."""
        if self.from_file == "-" and self.payload == "-":
            raise usage("--from-file and --payload cannot both read stdin")
        job: dict[str, Any] = {}
        if self.from_file is not None:
            source = "stdin" if self.from_file == "-" else self.from_file
            job = read_object(read_text(self.from_file, "--from-file"), source)
        if name is not None:
            job["name"] = name
        if isinstance(job.get("target"), str):
            job["target"] = {"http": {"url": job["target"]}}
        target = job.get("target")
        for field, value in self.changes(kind_of(target)).items():
            is_part = field in ("retry", "tags") and isinstance(job.get(field), dict)
            if field == "target":
                job[field] = _merged_target(target, value)
            else:
                job[field] = {**job[field], **value} if is_part else value
        return job

    def changes(self, present: str | None = None) -> dict[str, Any]:
        """The fields that options were given for. `present` is the kind of target the job has so far."""
        flat = {
            "schedule": None if self.schedule is None else read_schedule(self.schedule),
            "after": [_read_upstream(each) for each in self.after] if self.after else None,
            "timezone": self.zone,
            "window": self.window,
            "description": self.description,
            "target": self._target(present),
            "retry": self._retry(),
            "timeout": self.timeout,
            "priority": self.priority and self.priority.value,
            "pool": self.pool,
            "overlap": self.overlap and self.overlap.value,
            "max_running": self.max_running,
            "group": None if self.group is None else _read_group(self.group),
            "catch_up": self.catch_up and self.catch_up.value,
            "tags": read_pairs(self.tag, "--tag") if self.tag else None,
        }
        changes = {name: value for name, value in flat.items() if value is not None}
        if self.payload is not None:
            changes["payload"] = read_json(self.payload, "--payload")
        return changes

    def _target(self, present: str | None) -> dict[str, Any] | None:
        given = [option for option in _KINDS if getattr(self, option) is not None]
        if len(given) > 1:
            raise usage(f"give one target, not {' and '.join('--' + option for option in given)}")
        kind = _KINDS[given[0]] if given else present
        for option, (main, metavar) in _GOES_WITH.items():
            if getattr(self, option) and kind != _KINDS[main]:
                raise usage(f"--{option.replace('_', '-')} goes with --{main} {metavar}")
        if given == ["handler"]:
            return {"handler": {"name": self.handler}}
        if given == ["shell"]:
            return {"shell": {"command": self.shell}}
        return self._publish() if kind == "publish" else self._http()

    def _publish(self) -> dict[str, Any] | None:
        redis = {"stream": self.stream, "maxlen": self.maxlen}
        redis = {name: value for name, value in redis.items() if value is not None}
        broker = {} if self.broker is None else {"broker": self.broker}
        return {"publish": {**broker, **({"redis": redis} if redis else {})}} if broker or redis else None

    def _http(self) -> dict[str, Any] | None:
        http: dict[str, Any] = {} if self.http is None else {"url": self.http}
        if self.method:
            http["method"] = self.method.upper()
        if self.header or self.secret_header:
            headers = read_pairs(self.header or (), "--header", "=:")
            named = read_pairs(self.secret_header or (), "--secret-header", "=:")
            http["headers"] = {**headers, **{name: _named(value) for name, value in named.items()}}
        if self.callback:
            http["callback"] = {"deadline": self.callback}
        return {"http": http} if http else None

    def _retry(self) -> dict[str, Any] | None:
        policy = {
            "max_attempts": None if self.retry is None else self.retry + 1,
            "backoff": self.backoff and self.backoff.value,
            "initial_delay": self.retry_delay,
        }
        return {name: value for name, value in policy.items() if value is not None} or None


def _read_upstream(text: str) -> dict[str, str]:
    """A job that is followed, and how it must end."""
    name, _, how = text.rpartition(":")
    return {"job": name, "on": how} if name else {"job": text}


def kind_of(target: object) -> str | None:
    """The kind of a target as it stands in a definition."""
    if isinstance(target, str):
        return "http"
    if not isinstance(target, dict):
        return None
    return next((kind for kind in _KINDS.values() if target.get(kind) is not None), None)


def takes_job_options(
    command: Callable[Concatenate[JobOptions, ...], None],
) -> Callable[..., None]:
    """Give a command every field of JobOptions as an option of its own, after those it has.

    The command gets the options as its first argument. Typer reads options from a signature, so this writes one:
    else each command would list them all.
    """

    @wraps(command)
    def with_options(**given: Any) -> None:
        options = JobOptions(**{each.name: given.pop(each.name) for each in fields(JobOptions)})
        command(options, **given)

    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    hints = typing.get_type_hints(JobOptions, include_extras=True)
    added = [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hints[each.name]
        )
        for each in fields(JobOptions)
    ]
    own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    parameters = [*own, *added]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typeshed lacks it
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_options


def _named(text: str) -> dict[str, str]:
    """A secret by its name, with what stands before its value up to the last space."""
    prefix, space, name = text.rpartition(" ")
    return {"secret": name, "prefix": prefix + space} if space else {"secret": name}


def _merged_target(present: object, change: dict[str, Any]) -> dict[str, Any]:
    """What a change makes of a target of its kind: parts that it does not name stay. Another kind takes its place."""
    kind = kind_of(change)
    if kind in ("http", "publish") and isinstance(present, dict) and isinstance(present.get(kind), dict):
        return {kind: _merged(present[kind], change[kind])}
    return change


def _read_group(text: str) -> dict[str, Any]:
    """Read `NAME` or `NAME:N`."""
    key, colon, limit = text.partition(":")
    if not colon:
        return {"key": key}
    if not limit.isdecimal() or not limit.isascii():
        raise usage(f"--group {text!r}: write it as NAME or NAME:N, e.g. warehouse:3")
    return {"key": key, "limit": int(limit)}


def _merged(present: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    merged = {**present, **change}
    if isinstance(present.get("redis"), dict) and "redis" in change:
        merged["redis"] = {**present["redis"], **change["redis"]}
    return merged
