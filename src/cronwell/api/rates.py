"""How fast each tenant may send requests to this process."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from cronwell import errors
from cronwell.model.access import Caller
from cronwell.model.bucket import Bucket


class Rates:
    """The buckets of tenants that are limited. One instance serves a process."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[int, bool], Bucket] = {}

    def admit(self, caller: Caller, *, is_callback: bool) -> dict[str, str]:
        """Let a request in and say how many more may come; raises TooManyRequests.

        Callbacks have a bucket of their own: an address opens nothing once its attempt is over, but whoever was given one
        can send requests to it for ever, and would keep the tenant itself out.
        """
        rate, drawn = caller.quotas.requests_per_second, (caller.tenant_id, is_callback)
        if rate is None:
            self._buckets.pop(drawn, None)
            return {}
        now = time.monotonic()
        bucket = self._buckets.get(drawn)
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[drawn] = Bucket(rate, now)
        wait = bucket.take(now)
        if wait:
            raise errors.TooManyRequests(limit=rate, retry_after=wait)
        return told(rate, bucket.left, bucket.full_in)


def told(limit: float, left: int, reset: float) -> dict[str, str]:
    """The headers that tell of a limit."""
    return {
        "RateLimit-Limit": f"{limit:g}",
        "RateLimit-Remaining": str(left),
        "RateLimit-Reset": str(math.ceil(reset)),
    }


def refused(error: errors.TooManyRequests) -> Mapping[str, str]:
    """The headers of a refusal."""
    wait = math.ceil(error.retry_after)
    return {**told(error.limit, 0, wait), "Retry-After": str(wait)}
