"""What dependents are told of the jobs that they follow: how these ended, and what they said, bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from cronwell.model.execution import Kind
from cronwell.store.port import Claimed, Store, UpstreamResult

LIMIT = 64 * 1024
"""Bytes of all outputs of one execution's upstreams together, as JSON."""


async def tell_upstreams(store: Store, claims: Sequence[Claimed]) -> None:
    """Give those claims that follow others what these ended with; asks the store only where there are such."""
    following = [claim for claim in claims if claim.key.kind is Kind.DEPENDENCY]
    if not following:
        return
    places = {(claim.tenant_id, claim.key.job_id, claim.key.slot): claim for claim in following}
    found = await store.upstream_results(list(places), LIMIT)
    for place, claim in places.items():
        claim.upstream = gather(found.get(place, ()))


def gather(results: Sequence[UpstreamResult], limit: int = LIMIT) -> dict[str, Any]:
    """The results by the upstreams' names. Where outputs are too long together, the longest of them are cut, to the same
    length."""
    sizes = {each.name: 0 if each.output is None else len(orjson.dumps(each.output)) for each in results}
    share = _share(sorted(sizes.values()), limit)
    return {
        each.name: {
            "state": each.state.value,
            "execution": str(each.key),
            "output": each.output if sizes[each.name] <= share else _cut(each.output or "", share),
            "output_truncated": each.is_cut or sizes[each.name] > share,
        }
        for each in results
    }


def _share(sizes: Sequence[int], limit: int) -> int:
    """The most that one may take so that all together take no more than the limit; `sizes` ascend."""
    left = limit
    for place, size in enumerate(sizes):
        even = left // (len(sizes) - place)
        if size > even:
            return even
        left -= size
    return limit


def _cut(text: str, most: int) -> str:
    """The longest beginning of a text that takes no more than so many bytes as JSON."""
    short, long = 0, len(text)
    while short < long:
        middle = (short + long + 1) // 2
        if len(orjson.dumps(text[:middle])) <= most:
            short = middle
        else:
            long = middle - 1
    return text[:short]
