"""`cronwell job edit`: change a job by options, by a file, or in an editor, and never over somebody else's change."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cronwell.cli.create import warn
from cronwell.cli.definitions import JobOptions, kind_of, takes_job_options
from cronwell.cli.failures import ExitCode, Failure, Refused
from cronwell.cli.paths import job_path
from cronwell.cli.screen import Screen
from cronwell.cli.session import Json, session
from cronwell.cli.sources import read_object, usage

if TYPE_CHECKING:
    from cronwell.cli.client import Client

_CARRIED = ("timezone", "window")
"""What a schedule object holds that a schedule text can have beside it."""


@takes_job_options
def edit(
    options: JobOptions,
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name or id.")],
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="Give the job another name.")] = None,
    untag: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Remove a tag. Repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Change a job: what the options say, or its whole definition in $EDITOR when there are none.

    An empty text removes what may be missing, e.g. --schedule "" or --description "". Tags and headers are added to
    those that the job has; everything else is replaced. With --from-file the file is the whole new definition.
    """
    here = session(context)
    screen = here.screen(as_json)
    path = job_path(job)
    if options.is_empty and not rename and not untag:
        _edit_by_hand(here.client, screen, path, job)
        return
    present = here.client.get(path)
    if options.from_file is not None:
        definition = options.definition(rename)
        definition.setdefault("name", present["name"])
        _replace(here.client, screen, path, definition, present["revision"])
        return
    changes = _changes(options, present)
    if rename:
        changes["name"] = rename
    if untag:
        changes["tags"] = {**changes.get("tags", {}), **dict.fromkeys(untag)}
    if isinstance(changes.get("payload"), dict) and isinstance(present.get("payload"), dict):
        # A PATCH would merge the two payloads; whoever gives one means all of it.
        _replace(here.client, screen, path, _applied(present, changes), present["revision"])
        return
    try:
        answer = here.client.patch(path, changes, revision=present["revision"])
    except Refused as refused:
        raise _overtaken(refused, "Nothing was changed; run the command again.") from None
    _show(screen, answer)


def definition_of(job: dict[str, Any]) -> dict[str, Any]:
    """The definition within what the API answers about a job, without fields that say nothing."""
    from cronwell.control.views import JobDetail
    from cronwell.model.job import JobSpec

    told = JobDetail.model_fields.keys() - JobSpec.model_fields.keys()
    definition = {name: value for name, value in job.items() if name not in told and value is not None}
    if isinstance(definition.get("target"), dict):
        kinds = definition["target"].items()
        definition["target"] = {kind: value for kind, value in kinds if value is not None}
    return definition


def _changes(options: JobOptions, present: dict[str, Any]) -> dict[str, Any]:
    """The options as a merge patch of the job as it stands."""
    kind = kind_of(present.get("target"))
    changes = {
        name: None if value == "" and name != "payload" else value
        for name, value in options.changes(kind).items()
    }
    target = changes.get("target")
    if target is not None and kind is not None and kind not in target:
        target[kind] = None
    schedule = present.get("schedule")
    if not isinstance(schedule, dict):
        return changes
    if changes.get("schedule") is None and "schedule" not in changes:
        inner = {name: changes.pop(name) for name in _CARRIED if name in changes}
        if inner:
            changes["schedule"] = inner
        return changes
    lost = sorted(schedule.keys() & {"start", "end"})
    if lost and changes["schedule"] is not None:
        raise usage(
            f"the job's schedule has {' and '.join(lost)}, which --schedule would drop; "
            "edit the definition instead: cronwell job edit NAME"
        )
    for name in _CARRIED:
        if schedule.get(name) is not None and changes["schedule"] is not None:
            changes.setdefault(name, schedule[name])
    return changes


def _applied(present: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    from cronwell.control.drafts import merge

    others = {name: value for name, value in changes.items() if name != "payload"}
    return {**merge(definition_of(present), others), "payload": changes["payload"]}


def _replace(client: Client, screen: Screen, path: str, definition: dict[str, Any], revision: int) -> None:
    try:
        answer = client.put(path, definition, revision=revision)
    except Refused as refused:
        raise _overtaken(refused, "Nothing was changed; run the command again.") from None
    _show(screen, answer)


def _edit_by_hand(client: Client, screen: Screen, path: str, job: str) -> None:
    present = client.get(path)
    before = json.dumps(definition_of(present), indent=2, ensure_ascii=False) + "\n"
    descriptor, name = tempfile.mkstemp(prefix="cronwell-job-", suffix=".json")
    file = Path(name)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(before)
    _open_editor(file)
    after = file.read_text(encoding="utf-8")
    if after.strip() in ("", before.strip()):
        file.unlink()
        screen.remark("nothing changed")
        return
    again = f"Your text is kept; mend it and send it with: cronwell job edit {shlex.quote(job)} --from-file {name}"
    try:
        definition = read_object(after, "the definition")
        answer = client.put(path, definition, revision=present["revision"])
    except Refused as refused:
        raise _overtaken(refused, again) from None
    except Failure as failure:
        raise Failure(f"{failure}\n{again}", failure.code) from None
    file.unlink()
    _show(screen, answer)


def _open_editor(file: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        status = subprocess.call([*shlex.split(editor), str(file)])  # noqa: S603 - the user's own choice
    except (OSError, ValueError) as error:
        file.unlink()
        raise usage(f"cannot start the editor {editor!r}: {error}; set EDITOR, or give options") from None
    if status != 0:
        raise Failure(f"the editor ended with status {status}; nothing was changed (your text: {file})")


def _overtaken(refused: Refused, advice: str) -> Failure:
    """Say what to do after a refusal; a changed revision needs more words than the server has."""
    if refused.status != 412:
        return Failure(f"{refused}\n{advice}", refused.code) if "kept" in advice else refused
    return Failure(f"{refused}\nSomebody changed the job after it was read. {advice}", ExitCode.CONFLICT)


def _show(screen: Screen, answer: dict[str, Any]) -> None:
    if screen.as_json:
        screen.json(answer)
        return
    following = answer.get("next_fire_at")
    when = f"; fires next at {screen.moment(following)}" if following else ""
    screen.line(f"changed {answer['name']}: now revision {answer['revision']}{when}")
    warn(screen, answer)
