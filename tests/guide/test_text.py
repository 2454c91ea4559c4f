"""What the pages say is there: links, settings, routes, tests, events, defaults, tables and jobs."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from uuid import UUID

import pytest
from pydantic import BaseModel
from starlette.routing import Match, Route

from cronwell import config, durations, errors, meters, telemetry
from cronwell.api import docs
from cronwell.api.app import ROUTERS, assemble
from cronwell.control.definitions import judge
from cronwell.model.execution import Result, State
from cronwell.model.job import HttpTarget, JobSpec, RetryPolicy, ShellTarget
from cronwell.model.planning import plan_of, plan_slots
from cronwell.model.publishing import PublishTarget, RedisStream
from cronwell.model.retry import next_delay
from cronwell.model.schedule import parse, slots
from cronwell.targets.registry import Context
from tests.guide import pages
from tests.guide.pages import PAGES, ROOT

GUIDE = ROOT / "docs" / "guide"
OPERATIONS = ROOT / "docs" / "operations"
ROLES = {"cronwell_service", "cronwell_tenant"}
SETTINGS = {line.env: line for line in config.describe(environ={})}
UNITS: dict[str, timedelta | int] = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "h": timedelta(hours=1),
    "days": timedelta(days=1),
    "day": timedelta(days=1),
    "KiB": 1024,
    "MiB": 1024**2,
}
TOLD = re.compile(
    rf"(\d[\d,]*)(?:\s+({'|'.join(UNITS)})\b)?(?:(?![.;:] )[^\d`(])*\(`(CRONWELL_[A-Z_]+)`\)", re.DOTALL
)
METHODS = "GET|POST|PUT|PATCH|DELETE"
PATH = re.compile(
    rf"(?:\b({METHODS}) |127\.0\.0\.1:8420|`)(/(?:v1|healthz|readyz|metrics|docs|openapi\.json)\b[\w{{}}:/.%-]*)"
)


def each_page() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", PAGES, ids=[path.relative_to(ROOT).as_posix() for path in PAGES])


@each_page()
def test_every_link_leads_to_a_file_and_to_a_part_of_it(page: Path) -> None:
    lost = [
        written
        for written, path, anchor in pages.links(page)
        if not path.exists() or (anchor and anchor not in pages.anchors(path))
    ]
    assert lost == []


def test_every_page_is_found_from_the_readme() -> None:
    linked = {path for _, path, _ in pages.links(ROOT / "README.md")}
    assert [path for path in PAGES if path not in linked and path.name != "README.md"] == []


@each_page()
def test_every_setting_that_is_named_exists(page: Path) -> None:
    found = re.findall(r"\bCRONWELL_[A-Z_]+[A-Z]\b", page.read_text())
    # Brokers have the names that their installation gives them.
    named = {re.sub(r"^(CRONWELL_BROKERS)_.*", r"\1_DEFAULT", name) for name in found}
    assert named - SETTINGS.keys() - config.NOT_SETTINGS == set()


@each_page()
def test_every_default_that_is_told_beside_a_setting_holds(page: Path) -> None:
    defaults = config.Settings()
    wrong = []
    for count, unit, name in TOLD.findall(page.read_text()):
        told = int(count.replace(",", "")) * UNITS.get(unit, 1)
        value: object = defaults
        for part in SETTINGS[name].path.split("."):
            value = getattr(value, part)
        if told != value:
            wrong.append(f"{name} is {config.write_value(value)}, not {count} {unit}")
    assert wrong == []


def test_defaults_that_are_told_are_found() -> None:
    told = [name for page in PAGES for _, _, name in TOLD.findall(page.read_text())]
    assert len(told) >= 15


@each_page()
def test_every_route_that_is_named_exists(page: Path) -> None:
    app = assemble(ROUTERS, None)
    routes = [each for each in (*app.routes, *docs.routes({})) if isinstance(each, Route)]
    missing = [
        f"{method} {path}"
        for method, path in PATH.findall(page.read_text())
        if not any(_takes(route, method, path) for route in routes)
    ]
    assert missing == []


def _takes(route: Route, method: str, path: str) -> bool:
    scope = {"type": "http", "method": method or "GET", "path": path, "root_path": "", "path_params": {}}
    match, _ = route.matches(scope)
    return match is Match.FULL or (not method and match is Match.PARTIAL)


def test_every_route_of_the_api_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "http.md").read_text()
    titles = set(re.findall(rf"^### ((?:{METHODS}) \S+)$", text, re.MULTILINE))
    served = {
        f"{method} {route.path_format}"
        for route in assemble(ROUTERS, None).routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert titles == served


@each_page()
def test_every_problem_type_that_is_named_exists(page: Path) -> None:
    kinds = {re.sub(r"(?<=[a-z])(?=[A-Z])", "-", each.__name__).lower() for each in _tree(errors.UserError)}
    kinds |= {status.phrase.lower().replace(" ", "-") for status in HTTPStatus}
    kinds |= {"cross-site", "unavailable", "internal-error"}
    assert set(re.findall(r"urn:cronwell:([a-z-]+)", page.read_text())) - kinds == set()


def _tree(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for below in kind.__subclasses__():
        yield below
        yield from _tree(below)


@each_page()
def test_every_metric_that_is_named_exists(page: Path) -> None:
    source = Path(meters.__file__).read_text()
    named = set(re.findall(r"\b(cronwell_[a-z_]+?)(?:_total|_bucket)?\b", page.read_text()))
    assert [name for name in named - ROLES if f'"{name}"' not in source] == []


def test_every_event_of_the_log_that_is_named_exists() -> None:
    table = (OPERATIONS / "running.md").read_text().partition("| event | level |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `([^`]+)` \| (\w+) \|", table, re.MULTILINE)
    assert len(named) == 10
    source = " ".join(
        " ".join(each.read_text() for each in Path(telemetry.__file__).parent.glob("*.py")).split()
    )
    wrong = [
        event for event, level in named if not re.search(rf'_log\.{level}\( ?"{re.escape(event)}"', source)
    ]
    assert wrong == []


@each_page()
def test_every_test_that_is_named_exists(page: Path) -> None:
    missing = []
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text()):
        tree = ast.parse((ROOT / file).read_text())
        functions = [each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        if name not in {each.name for each in functions}:
            missing.append(f"{file}::{name}")
    assert missing == []


def test_every_promise_names_a_test() -> None:
    rows = re.findall(r"^\| (.*) \| (.*) \|$", (OPERATIONS / "promises.md").read_text(), re.MULTILINE)
    assert [promise for promise, test in rows[1:] if "::test_" not in test] == []


def _jobs() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for block in pages.blocks(page, "json"):
            parsed = json.loads(block.text)
            if "target" in parsed:
                found.append((f"{page.stem}: {parsed['name']}", block.text))
    return found


@pytest.mark.parametrize("text", [text for _, text in _jobs()], ids=[name for name, _ in _jobs()])
def test_every_job_that_is_shown_is_accepted(text: str) -> None:
    settings = config.read(
        {"CRONWELL_SHELL_ENABLED": "true", "CRONWELL_BROKERS_DEFAULT": "redis://127.0.0.1:6379"}
    )
    definition = judge(json.loads(text), now=datetime.now(UTC), settings=settings)
    assert definition.raw == json.loads(text)


def test_jobs_are_shown() -> None:
    assert len(_jobs()) >= 5


@pytest.mark.parametrize(
    ("page", "title", "model"),
    [
        ("jobs", "## The definition", JobSpec),
        ("targets", "## http", HttpTarget),
        ("targets", "## shell", ShellTarget),
        ("publishing", "## The target", PublishTarget),
        ("publishing", "### Redis Streams", RedisStream),
        ("failures", "## Retries", RetryPolicy),
    ],
)
def test_every_field_is_explained(page: str, title: str, model: type[BaseModel]) -> None:
    rows = _table(GUIDE / f"{page}.md", title, "field")
    assert {row[0].strip("`") for row in rows} == set(model.model_fields)
    for name, default, *_ in rows:
        field = model.model_fields[name.strip("`")]
        assert (default == "required") == field.is_required(), name
        if re.fullmatch(r"`[^`]+`|[\d.]+", default) and field.default is not None:
            assert default.strip("`") == _written(field.default), name


def _written(value: object) -> str:
    return durations.write(value) if isinstance(value, timedelta) else str(value)


def test_every_part_of_a_handlers_context_is_explained() -> None:
    rows = _table(GUIDE / "targets.md", "## handler", "of the context")
    told = {name for row in rows for name in re.findall(r"\b[a-z_]+(?=\(|`)", row[0])}
    assert told == {name for name in vars(Context) if not name.startswith("_")} - {"stop", "was_told"}


def test_the_backoff_table_is_what_the_policy_does() -> None:
    rows = _table(GUIDE / "failures.md", "## Retries", "before attempt")
    for attempt, *told in rows:
        delays = [
            next_delay(RetryPolicy(backoff=backoff, max_attempts=100), Result.FAILED, int(attempt) - 1)
            for backoff in ("exponential", "linear", "fixed")
        ]
        assert told == [durations.write(delay) for delay in delays if delay is not None]
    assert len(rows) == 10


def test_the_catch_up_table_is_what_planning_does() -> None:
    rows = _table(GUIDE / "schedules.md", "## Catching up", "schedule")
    for schedule, policy, window, limit, first, back, runs in rows:
        fields = {"schedule": schedule.strip("`"), "catch_up": policy.strip("`")}
        fields |= {"catch_up_window": window.strip("`")} if window else {}
        given = {**fields, "catch_up_limit": int(limit)} if limit else fields
        spec = JobSpec.model_validate({"name": "job", "target": "https://example.com", **given})
        now = _clock(back)
        plan = plan_of(
            spec, parse(fields["schedule"], timezone=None, window=None, now=now - timedelta(days=1))
        )
        staged = plan_slots(plan, UUID(int=1), _clock(first), now=now, until=now, grace=timedelta(seconds=10))
        run = [f"{each.slot:%H:%M}" for each in staged.planned if each.state is State.PENDING]
        assert run == ([] if runs == "-" else runs.split())
    assert len(rows) == 8


def test_the_rules_that_are_told_for_other_schedulers_do_what_those_do() -> None:
    rows = _table(GUIDE / "schedules.md", "### Choosing the rule", "scheduler")
    for scheduler, gap, fold, _, rule in rows:
        chosen = dict(zip(("gap", "fold"), re.findall(r"`(\w+)`", rule), strict=False))
        assert bool(chosen) == (rule != "default"), scheduler
        fires = [] if gap == "skipped" else [f"{gap} -0400"]
        assert _slots_of_a_night("30 2 * * *", "2026-03-08", chosen) == fires, scheduler
        first, second = "01:30 -0400", "01:30 -0500"
        fires = {"first": [first], "second": [second], "twice": [first, second], "once": [first]}[fold]
        assert _slots_of_a_night("30 1 * * *", "2026-11-01", chosen) == fires, scheduler
    assert len(rows) == 6


def _slots_of_a_night(cron: str, day: str, rule: dict[str, str]) -> list[str]:
    """The slots of the first six hours of a day in New York, as its clock shows them."""
    begin = datetime.fromisoformat(f"{day}T04:00:00+00:00")
    given = {"cron": cron, "timezone": "America/New_York", **({"dst": rule} if rule else {})}
    schedule = parse(given, timezone=None, window=None, now=begin)
    found = slots(schedule, begin, begin + timedelta(hours=6), 10)
    return [f"{slot.astimezone(schedule.zone):%H:%M %z}" for slot in found]


def _clock(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-05-05T{text}:00+00:00")


def _table(page: Path, title: str, first: str) -> list[list[str]]:
    """The rows of the first table below a title whose first column is called so."""
    section = page.read_text().partition(f"\n{title}\n")[2]
    lines = section.partition(f"\n| {first} |")[2].partition("\n\n")[0].splitlines()[2:]
    assert lines, f"there is no such table in {page.name}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
