"""Write the generated halves of docs/reference from the code: settings, metrics, the command line, HTTP.

`python tools/reference.py` writes them, with `--check` it only says which are stale. In each page everything above the
mark is written by hand and kept; everything below it comes from here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import Counter, Histogram
from prometheus_client.metrics import MetricWrapperBase
from typer.main import get_command

from cronwell import config, durations, meters
from cronwell.api import openapi
from cronwell.api.app import ROUTERS, assemble
from cronwell.cli.main import app
from cronwell.model.part import DURATION_EXAMPLES

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
MARK = "<!-- Below this line: written by tools/reference.py. -->"
WIDTH = 100

EXTENDS = {"JobView": "JobSpec", "JobDetail": "JobView", "ExecutionDetail": "ExecutionView"}
"""Schemas of which only what they add to another is shown."""


def main(arguments: Sequence[str]) -> int:
    """Write every page, or with `--check` answer 1 where one is stale."""
    stale = [path for path, text in pages() if path.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.name} is stale; run `python tools/reference.py`")
        return 1 if stale else 0
    for path, text in pages():
        path.write_text(text, encoding="utf-8")
    print(f"wrote {', '.join(path.name for path in stale)}" if stale else "all pages are up to date")
    return 0


def pages() -> Iterator[tuple[Path, str]]:
    """Each page with the text that it should have."""
    for name, write in PAGES.items():
        path = FOLDER / f"{name}.md"
        by_hand = path.read_text(encoding="utf-8").partition(MARK)[0].rstrip()
        yield path, "\n".join([by_hand, "", MARK, "", *write()]).rstrip() + "\n"


def settings() -> Iterator[str]:
    """Every setting in a table for each group, then a settings file that holds all defaults."""
    lines = config.describe(environ={})
    groups: dict[str, list[config.Line]] = {}
    for line in lines:
        groups.setdefault(line.path.rpartition(".")[0], []).append(line)
    for group, members in groups.items():
        yield f"## {group or 'At the top'}"
        yield ""
        yield from _table(
            ("setting", "environment", "default", "what it is"),
            (
                (f"`{line.path}`", f"`{line.env}`", _code(config.write_value(line.value)), line.doc)
                for line in members
            ),
        )
    yield "## A settings file with every default"
    yield ""
    yield "```toml"
    for group, members in groups.items():
        if group:
            yield ""
            yield f"[{group}]"
        for line in members:
            yield f"{line.path.rpartition('.')[2]} = {_toml(line.value)}"
    yield "```"


def metrics() -> Iterator[str]:
    """Every metric in a table."""
    found = [each for each in vars(meters).values() if isinstance(each, MetricWrapperBase)]
    rows = []
    for metric in found:
        [described] = metric.describe()
        name = described.name + ("_total" if isinstance(metric, Counter) else "")
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)
        rows.append((f"`{name}`", described.type, labels or "-", described.documentation))
    yield from _table(("metric", "type", "labels", "what it says"), rows)
    yield "Buckets of the histograms, in seconds or executions:"
    yield ""
    by_buckets: dict[str, list[str]] = {}
    for metric in found:
        if isinstance(metric, Histogram):
            bounds = ", ".join(f"{bound:g}" for bound in metric._upper_bounds[:-1])
            by_buckets.setdefault(bounds, []).extend(each.name for each in metric.describe())
    yield from _table(
        ("metrics", "buckets"),
        ((", ".join(f"`{name}`" for name in names), bounds) for bounds, names in by_buckets.items()),
    )


def commands() -> Iterator[str]:
    """The `--help` of every command."""
    front = get_command(app)
    context = front.context_class(
        front, info_name="cronwell", **{**front.context_settings, "terminal_width": WIDTH}
    )
    yield from _command(front, context, 2)


def http() -> Iterator[str]:
    """Every route by its tag, then the fields of every body."""
    document = openapi.document(assemble(ROUTERS, None), largest_page=config.Settings().limits.page)
    tags: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tags.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    for tag, routes in tags.items():
        yield f"## {tag[0].upper()}{tag[1:]}"
        yield ""
        for method, path, operation in routes:
            yield from _route(method, path, operation)
    yield "## Bodies"
    yield ""
    for name, schema in document["components"]["schemas"].items():
        yield from _schema(name, schema, document["components"]["schemas"])


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "settings": settings,
    "metrics": metrics,
    "cli": commands,
    "http": http,
}


def _command(command: Any, context: Any, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {context.command_path}"
    yield ""
    yield "```text"
    yield from (line.rstrip() for line in command.get_help(context).splitlines())
    yield "```"
    yield ""
    for name, below in getattr(command, "commands", {}).items():
        inner = below.context_class(below, info_name=name, parent=context, terminal_width=WIDTH)
        yield from _command(below, inner, min(depth + 1, 4))


def _route(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### {method} {path}"
    yield ""
    yield " ".join(f"{operation['summary']} {operation.get('description', '')}".split())
    yield ""
    parameters = operation.get("parameters", [])
    if parameters:
        yield from _table(
            ("parameter", "in", "type", "default", "what it is"),
            (
                (
                    f"`{each['name']}`",
                    each["in"],
                    _type(each["schema"]),
                    _default(each["schema"], is_required=each["required"]),
                    str(each["schema"].get("description", "")),
                )
                for each in parameters
            ),
        )
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        need = "" if operation["requestBody"]["required"] else ", may be left out"
        yield f"- takes {_type(content['schema'])} as `{media}`{need}"
    for status, answer in operation["responses"].items():
        content = answer.get("content", {})
        if "application/problem+json" in content:
            continue
        shown = ", ".join(f"{_type(each['schema'])} as `{media}`" for media, each in content.items())
        headers = ", ".join(f"`{name}`" for name in answer.get("headers", {}))
        yield f"- answers {status} with {shown}{f'; headers {headers}' if headers else ''}"
    refusals = [
        status
        for status, answer in operation["responses"].items()
        if "application/problem+json" in answer.get("content", {}) and status not in ("500", "503")
    ]
    yield f"- refuses with {', '.join(refusals)}"
    yield ""


def _schema(name: str, schema: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if "description" in schema:
        yield " ".join(schema["description"].split())
        yield ""
    if "enum" in schema:
        yield _type(schema)
        yield ""
        return
    known: dict[str, Any] = {}
    if name in EXTENDS:
        known = schemas[EXTENDS[name]]["properties"]
        yield f"The fields of {_link(EXTENDS[name])}, and:"
        yield ""
    required = schema.get("required", [])
    rows = [
        (
            f"`{field}`",
            _type(each),
            _default(each, is_required=field in required),
            str(each.get("description", "")),
        )
        for field, each in schema["properties"].items()
        if field not in known
    ]
    if schema.get("additionalProperties", True):
        # Only answers let further fields pass, and an answer has no defaults.
        yield from _table(
            ("field", "type", "what it is"), [(name, kind, said) for name, kind, _, said in rows]
        )
    else:
        yield from _table(("field", "type", "default", "what it is"), rows)


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{str(schema['const']).lower()}`"
    if _is_duration(schema):
        return "duration"
    kind = schema.get("format") or schema.get("type", "any JSON")
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    bounds = [f"{schema[key]}" for key in ("minimum", "maximum") if key in schema]
    return f"{kind} {' to '.join(bounds)}" if len(bounds) == 2 else str(kind)


def _default(schema: dict[str, Any], *, is_required: bool) -> str:
    if is_required:
        return "required"
    value = schema.get("default")
    if _is_duration(schema) and isinstance(value, str):
        value = durations.write(durations.parse(value))
    return "-" if value is None else _code(str(value).lower() if isinstance(value, bool) else str(value))


def _is_duration(schema: dict[str, Any]) -> bool:
    """Whether it is our own form of duration, for which JSON Schema has no format."""
    return schema.get("examples") == DURATION_EXAMPLES


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _toml(value: object) -> str:
    if isinstance(value, bool | int):
        return config.write_value(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_quoted(str(item)) for item in value)}]"
    return _quoted(config.write_value(value))


def _quoted(text: str) -> str:
    return f'"{text}"'


def _code(text: str) -> str:
    return f"`{text}`" if text else "empty"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        cells = [" ".join(cell.split()).replace("|", "\\|") for cell in row]
        yield f"| {' | '.join(cells)} |"
    yield ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
