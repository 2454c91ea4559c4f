"""Shards: fixed hash slices of the jobs, the unit of scheduler ownership."""

from __future__ import annotations

from uuid import UUID

SHARDS = 64


def shard_of(job_id: UUID) -> int:
    """The shard of a job. The low bits of a version 7 UUID are random, so jobs spread evenly."""
    return job_id.int % SHARDS
