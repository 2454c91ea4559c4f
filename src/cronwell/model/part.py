"""What every part of a job's definition shares."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """What every part of a job shares: it cannot be changed, and it refuses fields it does not know."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", str_max_length=100_000, use_attribute_docstrings=True
    )
