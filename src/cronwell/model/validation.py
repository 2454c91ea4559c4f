"""From raw JSON to a checked model, with problems that name the field and say what is accepted."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from cronwell.errors import FieldProblem, Invalid
from cronwell.model.access import TENANT_PATTERN
from cronwell.model.part import NAME_PATTERN

MOST_TOLD = 50
LONGEST_NAME = 100
# Secrets are named like jobs, and pools like tenants: their patterns are the same.
PATTERNS_IN_WORDS = {
    NAME_PATTERN: "letters (A-Z, a-z), digits and . _ / -, beginning with a letter or digit, at most 200 characters",
    TENANT_PATTERN: "small letters (a-z), digits and _ -, beginning with a letter or digit, at most 63 characters",
}

M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], raw: Mapping[str, object]) -> M:
    """Check raw JSON against a model; raises Invalid with the problems found, up to MOST_TOLD of them."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        # Each takes its time to explain, and a body can hold tens of thousands.
        told = error.errors(include_url=False)[:MOST_TOLD]
        problems = {_problem(model, raw, details) for details in told}
        rest = error.error_count() - len(told)
        more = [FieldProblem("body", f"and {rest} more problems")] if rest else []
        raise Invalid(sorted(problems, key=lambda problem: problem.field) + more) from None


def unknown(field: str, message: str, name: str, known: Sequence[str]) -> FieldProblem:
    """Report a name that is none of those `known`, with the nearest of them or else with all."""
    if close := difflib.get_close_matches(name[:LONGEST_NAME], known, 1, cutoff=0.5):
        return FieldProblem(field, f"{message}; did you mean {close[0]!r}?", close[0])
    return FieldProblem(field, message, f"one of {', '.join(known)}")


def mismatch(field: str, pattern: str) -> FieldProblem | None:
    """Report a text that is not what `pattern` says, in words; None where the pattern has none."""
    words = PATTERNS_IN_WORDS.get(pattern)
    return None if words is None else FieldProblem(field, f"must be {words}", words)


def _problem(model: type[BaseModel], raw: Mapping[str, object], details: ErrorDetails) -> FieldProblem:
    place = _place(raw, details)
    field = ".".join(place) or "body"
    kind = details["type"]
    if kind == "extra_forbidden":
        return unknown(field, "unknown field", place[-1], sorted(_fields_at(model, place[:-1])))
    if kind == "missing":
        return FieldProblem(field, "is required")
    message = details["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    context = details.get("ctx", {})
    if problem := mismatch(field, context.get("pattern", "")):
        return problem
    accepted = context.get("expected") or context.get("pattern")
    if kind in ("string_type", "dict_type", "int_type", "list_type", "bool_type", "model_type"):
        message = f"{message} (given: {type(details['input']).__name__})"
    return FieldProblem(field, message[:1].lower() + message[1:], None if accepted is None else str(accepted))


def _place(raw: object, details: ErrorDetails) -> list[str]:
    """Where the problem is, in the user's own names.

    Pydantic puts the names of tried alternatives and validators among them. What the user wrote tells them apart; where
    that is a shorthand with nothing below it, only their look does.
    """
    place: list[str] = []
    value = raw
    last = len(details["loc"]) - 1
    for depth, part in enumerate(details["loc"]):
        if isinstance(value, Mapping):
            if part in value:
                value = value[part]
            elif details["type"] != "missing" or depth != last:
                continue
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        elif _is_marker(part):
            continue
        place.append(str(part)[:LONGEST_NAME])
    return place


def _is_marker(part: int | str) -> bool:
    return isinstance(part, str) and (
        part.startswith(("function-", "constrained-", "list[", "dict[", "union[")) or part in ("[key]", "str")
    )


def _fields_at(model: type[BaseModel], path: list[str]) -> set[str]:
    """The fields known at a path below a model."""
    models: set[type[BaseModel]] = {model}
    for name in path:
        below: set[type[BaseModel]] = set()
        for each in models:
            if name in each.model_fields:
                below |= set(_models_in(each.model_fields[name].annotation))
            else:
                # A key of a mapping, or an index of a list: its values' models were taken already.
                below.add(each)
        models = below or models
    return {name for each in models for name in each.model_fields}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, types.UnionType, Annotated, dict, list):
        for part in get_args(annotation):
            yield from _models_in(part)
