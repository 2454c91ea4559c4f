"""`cronwell job graph` and `cronwell execution rerun`: what follows what, and running it again from a node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from cronwell.cli.lists import moment_option
from cronwell.cli.paths import execution_path, job_path
from cronwell.cli.screen import Screen, one_line
from cronwell.cli.session import Json, session

Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's name or id.")]


def graph(
    context: typer.Context,
    job: Job,
    slot: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How the jobs stand at this slot; else at their newest."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw the jobs that a job has to do with by what follows what."""
    here = session(context)
    screen = here.screen(as_json)
    at = moment_option(slot, "--slot", screen)
    found = here.client.get(f"{job_path(job)}/graph", {"slot": at} if at else {})
    if as_json:
        screen.json(found)
        return
    for line in draw(screen, found):
        screen.line(line)
    if found.get("is_cut"):
        screen.remark(f"there are more jobs than the {len(found['nodes'])} that are shown")


def rerun(
    context: typer.Context,
    execution: Annotated[str, typer.Argument(metavar="EXECUTION", help="The execution's id.")],
    downstream: Annotated[
        bool, typer.Option("--downstream", help="Also what follows it, each when its rule says so.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run an execution that has ended once more, whatever came of it."""
    here = session(context)
    screen = here.screen(as_json)
    answer = here.client.post(f"{execution_path(execution)}/rerun", {"downstream": downstream})
    if as_json:
        screen.json(answer)
    else:
        what = "and what follows it " if downstream else ""
        screen.line(f"running {execution} {what}again")


def draw(screen: Screen, found: Mapping[str, Any]) -> Iterator[str]:
    """The graph as a tree: each job below the first that it follows, which names the others."""
    nodes = {node["id"]: node for node in found["nodes"]}
    above: defaultdict[str, list[str]] = defaultdict(list)
    below: defaultdict[str, list[str]] = defaultdict(list)
    for edge in found["edges"]:
        above[edge["dependent"]].append(edge["upstream"])
        # Below the first that it follows, so that it is drawn once.
        if len(above[edge["dependent"]]) == 1:
            below[edge["upstream"]].append(edge["dependent"])
    conditions = {(edge["upstream"], edge["dependent"]): edge["on"] for edge in found["edges"]}

    def words(job: str) -> str:
        node = nodes[job]
        first, *others = above[job] or [""]
        told = [node["name"], *_conditions(conditions, first, job)]
        if others:
            link = "or after" if node["mode"] == "any" else "and after"
            named = (" ".join((nodes[each]["name"], *_conditions(conditions, each, job))) for each in others)
            told.append(f"({link} {', '.join(named)})")
        if node.get("schedule"):
            told.append(f"[{one_line(node['schedule'], 40)}]")
        told.append(_standing(screen, node))
        return "  ".join(filter(None, told)) + ("  ←" if job == found["job_id"] else "")

    def branch(jobs: Sequence[str], margin: str) -> Iterator[str]:
        for place, job in enumerate(jobs):
            is_last = place == len(jobs) - 1
            yield f"{margin}{'└─ ' if is_last else '├─ '}{words(job)}"
            yield from branch(below[job], margin + ("   " if is_last else "│  "))

    for root in sorted((job for job in nodes if not above[job]), key=lambda each: str(nodes[each]["name"])):
        yield words(root)
        yield from branch(below[root], "")


def _conditions(conditions: Mapping[tuple[str, str], str], upstream: str, job: str) -> list[str]:
    """How an upstream must end, where that is not the usual."""
    on = conditions.get((upstream, job), "succeeded")
    return [] if on == "succeeded" else [f"on {on}"]


def _standing(screen: Screen, node: Mapping[str, Any]) -> str:
    told = [] if node["state"] == "active" else [str(node["state"])]
    last = node.get("last")
    if last is not None:
        why = f": {last['reason']}" if last["state"] == "skipped" and last.get("reason") else ""
        told.append(f"{last['state']}{why} {screen.moment(last['slot'])}")
    if node.get("waiting"):
        told.append(f"waits since {screen.moment(node['waiting'][0]['since'])}")
    return ", ".join(told)
