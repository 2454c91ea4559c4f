"""What every part of a definition is made of: names, durations, and models that refuse what they do not know."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema

from cronwell import durations

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$"
DURATION_EXAMPLES = ["30s", "1h30m", "PT15M"]


def _read_duration(value: object) -> object:
    return durations.parse(value) if isinstance(value, str) else value


Duration = Annotated[
    timedelta,
    BeforeValidator(_read_duration),
    PlainSerializer(durations.write, return_type=str),
    WithJsonSchema({"type": "string", "description": durations.ACCEPTED, "examples": DURATION_EXAMPLES}),
]


def _refuse_booleans_and_numbers(value: object) -> object:
    if isinstance(value, (int, float)):
        raise ValueError(f"write {durations.ACCEPTED}")
    return value


StrictDuration = Annotated[Duration, BeforeValidator(_refuse_booleans_and_numbers)]


class Part(BaseModel):
    """What every part of a job shares: it cannot be changed, and it refuses fields it does not know."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", str_max_length=100_000, use_attribute_docstrings=True
    )
