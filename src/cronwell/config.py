"""Every setting of Cronwell: one frozen tree, read once at start; unknown keys are refused.

A setting has one path (`scheduler.look_ahead`), from which its TOML key (`[scheduler] look_ahead`) and its
environment name (`CRONWELL_SCHEDULER_LOOK_AHEAD`) follow. The environment wins over the file, the file over
the default. `settings()` yields every one of them with its origin; `cronwell config show` prints that.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cronwell import addresses
from cronwell.errors import ConfigError
from cronwell.settings import (
    ETCD_PORT,
    ETCD_SCHEMES,
    AlertSettings,
    AuthSettings,
    DatabaseSettings,
    EtcdSettings,
    HttpSettings,
    LimitSettings,
    LogSettings,
    PublishSettings,
    RetentionSettings,
    SchedulerSettings,
    SecretSettings,
    Settings,
    ShellSettings,
    SmtpSettings,
    WorkerSettings,
)
from cronwell.values import CONVERTERS, write

__all__ = [
    "ETCD_PORT",
    "ETCD_SCHEMES",
    "NOT_SETTINGS",
    "PREFIX",
    "SECRET_PATHS",
    "AlertSettings",
    "AuthSettings",
    "DatabaseSettings",
    "EtcdSettings",
    "HttpSettings",
    "LimitSettings",
    "Line",
    "LogSettings",
    "PublishSettings",
    "RetentionSettings",
    "SchedulerSettings",
    "SecretSettings",
    "Settings",
    "ShellSettings",
    "SmtpSettings",
    "WorkerSettings",
    "as_environ",
    "describe",
    "env_name",
    "read",
    "write_value",
]

PREFIX = "CRONWELL_"
SECRET_PATHS = frozenset(
    {"api_key", "database.url", "etcd.password", "secrets.key", "secrets.key_command", "smtp.password"}
)
write_value = write
NOT_SETTINGS = frozenset(
    {
        "CRONWELL_CONFIG",
        # An option of `cronwell sentinel`: an address with a secret in it does not belong on a command line.
        "CRONWELL_SENTINEL_WEBHOOK",
        # What a shell target is told of its attempt: its command may well call `cronwell`.
        "CRONWELL_JOB",
        "CRONWELL_EXECUTION",
        "CRONWELL_SLOT",
        "CRONWELL_ATTEMPT",
        "CRONWELL_FENCE",
        "CRONWELL_CHECKPOINT_FILE",
        "CRONWELL_UPSTREAM",
    }
)


@dataclass(frozen=True, slots=True)
class Line:
    """One setting as `cronwell config show` prints it."""

    path: str
    env: str
    value: object
    origin: str
    doc: str


def read(
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Read the settings: overrides (command line), then environment, then file, then defaults."""
    settings, _ = _read(environ, file, overrides)
    return settings


def describe(
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> list[Line]:
    """Return every setting with its value and where it came from."""
    settings, origins = _read(environ, file, overrides)
    lines = []
    for path, leaf in _paths(settings):
        value = _value(settings, path)
        shown = "(set)" if path in SECRET_PATHS and value else value
        shown = addresses.without_password(shown) if isinstance(shown, str) else shown
        lines.append(Line(path, env_name(path), shown, origins.get(path, "default"), leaf.metadata["doc"]))
    return lines


def as_environ(settings: Settings) -> dict[str, str]:
    """Settings as environment variables, to hand them on to another process."""
    return {
        env_name(path): write_value(value)
        for path, leaf in _paths(settings)
        if (value := _value(settings, path)) or not _is_named(leaf)
    }


def env_name(path: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + path.replace(".", "_").upper()


def _read(
    environ: Mapping[str, str] | None, file: Path | None, overrides: Mapping[str, object] | None
) -> tuple[Settings, dict[str, str]]:
    environ = os.environ if environ is None else environ
    leaves = dict(_leaves(Settings))
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    file = file or (Path(environ["CRONWELL_CONFIG"]) if environ.get("CRONWELL_CONFIG") else None)
    for path, raw in _from_file(file, leaves):
        values[path], origins[path] = _convert(leaves, path, raw, str(file)), str(file)
    names = {env_name(path): path for path, leaf in leaves.items() if not _is_named(leaf)}
    groups = {f"{env_name(path)}_": path for path, leaf in leaves.items() if _is_named(leaf)}
    for name, text in environ.items():
        if not name.startswith(PREFIX) or name in NOT_SETTINGS:
            continue
        group = next((each for each in groups if name.startswith(each)), None)
        if group is not None and name != group:
            names[name] = f"{groups[group]}.{name.removeprefix(group).lower()}"
        if name not in names:
            known = [*names, *(f"{each}NAME" for each in groups)]
            raise ConfigError(f"{name} is not a setting{_nearest(name, known)}")
        values[names[name]], origins[names[name]] = _convert(leaves, names[name], text, name), name
    for path, raw in (overrides or {}).items():
        values[path], origins[path] = _convert(leaves, path, raw, "command line"), "command line"
    settings: Settings = _build(Settings, "", values)
    worker = settings.worker
    if worker.heartbeat >= worker.lease:
        raise ConfigError(
            f"worker.heartbeat (CRONWELL_WORKER_HEARTBEAT), {write_value(worker.heartbeat)}, must be shorter than "
            f"worker.lease (CRONWELL_WORKER_LEASE), {write_value(worker.lease)}: else every worker is taken for lost"
        )
    return settings, origins


def _from_file(file: Path | None, leaves: Mapping[str, Field[Any]]) -> Iterator[tuple[str, object]]:
    if file is None:
        return
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings file {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    for key, value in tree.items():
        pairs = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
        for path, raw in pairs.items():
            if _leaf(leaves, path) is None:
                raise ConfigError(f"{file}: {path} is not a setting{_nearest(path, list(leaves))}")
            yield path, raw


def _leaves(kind: type, prefix: str = "") -> Iterator[tuple[str, Field[Any]]]:
    hints = _hints(kind)
    for each in fields(kind):
        if is_dataclass(hints[each.name]):
            yield from _leaves(hints[each.name], f"{each.name}.")
        else:
            yield prefix + each.name, each


def _paths(settings: Settings) -> Iterator[tuple[str, Field[Any]]]:
    """Each setting that there is; of those that have names, each that was given, or else one as an example."""
    for path, leaf in _leaves(Settings):
        if _is_named(leaf):
            names = _value(settings, path) or [leaf.metadata["example"]]
            yield from ((f"{path}.{name}", leaf) for name in sorted(names))
        else:
            yield path, leaf


def _is_named(leaf: Field[Any]) -> bool:
    return "pattern" in leaf.metadata


def _leaf(leaves: Mapping[str, Field[Any]], path: str) -> Field[Any] | None:
    """The declaration of a setting; None where there is no such."""
    group, _, name = path.rpartition(".")
    if group in leaves and _is_named(leaves[group]):
        return leaves[group] if name else None
    leaf = leaves.get(path)
    return None if leaf is None or _is_named(leaf) else leaf


def _value(settings: Settings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = value.get(name, "") if isinstance(value, Mapping) else getattr(value, name)
    return value


def _build(kind: Any, prefix: str, values: Mapping[str, object]) -> Any:
    given: dict[str, Any] = {}
    hints = _hints(kind)
    for each in fields(kind):
        path = prefix + each.name
        if is_dataclass(hints[each.name]):
            given[each.name] = _build(hints[each.name], f"{path}.", values)
        elif _is_named(each):
            # One that is given as nothing is not there.
            given[each.name] = {
                name.removeprefix(f"{path}."): value
                for name, value in values.items()
                if name.startswith(f"{path}.") and value
            }
        elif path in values:
            given[each.name] = values[path]
        else:
            assert each.default is not MISSING
    return kind(**given)


def _convert(leaves: Mapping[str, Field[Any]], path: str, raw: object, origin: str) -> object:
    leaf = _leaf(leaves, path)
    assert leaf is not None
    try:
        if _is_named(leaf):
            _check_name(leaf, path)
            return _checked(leaf, str(raw))
        return _checked(leaf, CONVERTERS[_kind(path)](raw))
    except (ValueError, TypeError) as error:
        detail = str(error) or f"{raw!r} is not accepted"
        raise ConfigError(f"{origin}: {path} ({env_name(path)}): {detail}") from None


def _check_name(leaf: Field[Any], path: str) -> None:
    name = path.rpartition(".")[2]
    if not re.search(leaf.metadata["pattern"], name):
        raise ValueError(
            f"{name!r} is not a name: it has lower-case letters, digits and _, and begins with a letter"
        )


def _checked(leaf: Field[Any], value: Any) -> object:
    one_of, least, most, check = (leaf.metadata[name] for name in ("one_of", "least", "most", "check"))
    if check is not None:
        check(value)
    if one_of and value not in one_of:
        raise ValueError(f"{value!r} is not one of {', '.join(one_of)}")
    if least is not None and value < least:
        raise ValueError(f"{write_value(value)!r} is too little: it is at least {write_value(least)}")
    if most is not None and value > most:
        raise ValueError(f"{write_value(value)!r} is too much: it is at most {write_value(most)}")
    return value


def _kind(path: str) -> str:
    owner: type = Settings
    *parents, name = path.split(".")
    for parent in parents:
        owner = _hints(owner)[parent]
    hint = _hints(owner)[name]
    return str(getattr(hint, "__name__", hint))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {close[0]}?" if close else "; `cronwell config show` lists them all"
