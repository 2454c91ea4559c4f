"""Texts that are given on the command line, in a file or on stdin."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cronwell.cli.failures import ExitCode, Failure


def read_text(path: str, option: str) -> str:
    """Read a file, or stdin for `-`."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise usage(f"{option}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise usage(f"{option}: {path} is not UTF-8 text") from None


def read_json(given: str, option: str) -> Any:
    """Read JSON that is given as it is, as `@file`, or as `-` for stdin."""
    text, name = given, option
    if given == "-":
        text, name = read_text("-", option), f"{option} (stdin)"
    elif given.startswith("@"):
        text, name = read_text(given[1:], option), f"{option} ({given[1:]})"
    return parse_json(text, name)


def parse_json(text: str, name: str) -> Any:
    """Read JSON strictly, or say where it goes wrong."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise usage(f"{name} is not JSON: {error.msg[:1].lower()}{error.msg[1:]} at {at}") from None
    except ValueError as error:
        raise usage(f"{name} is not JSON: {error}") from None
    except RecursionError:
        raise usage(f"{name} is nested too deeply") from None


def read_object(text: str, name: str) -> dict[str, Any]:
    """Read a JSON object."""
    found = parse_json(text, name)
    if not isinstance(found, dict):
        raise usage(
            f'{name} is not an object; a job is one such as {{"name": …, "schedule": …, "target": …}}'
        )
    return found


def read_schedule(given: str) -> str | dict[str, Any]:
    """A schedule's text, or the object that it spells as JSON."""
    if not given.lstrip().startswith("{"):
        return given
    read: dict[str, Any] = parse_json(given, "the schedule")
    return read


def read_pairs(given: Sequence[str], option: str, separators: str = "=") -> dict[str, str]:
    """Read `name=value` options; the first separator splits."""
    pairs: dict[str, str] = {}
    for each in given:
        place = min((at for mark in separators if (at := each.find(mark)) > 0), default=0)
        if not place:
            raise usage(f"{option} {each!r}: write it as name{separators[0]}value")
        pairs[each[:place].strip()] = each[place + 1 :].strip()
    return pairs


def check_key(key: str) -> str:
    """Refuse an Idempotency-Key that no header can carry."""
    if not key or not key.isascii() or not key.isprintable():
        raise usage("--idempotency-key: write it in printable ASCII characters")
    return key


def usage(message: str) -> Failure:
    return Failure(message, ExitCode.USAGE)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
