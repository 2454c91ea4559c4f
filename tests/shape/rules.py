"""The house rules as functions from a text to the lines that break them, so that each rule is itself tested."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

WAITING_MODULES = frozenset({"anyio", "asyncio", "time", "trio"})

# Written in halves: this file must not break its own rule.
MACHINE_PATH = re.compile(
    "|".join(["/wor" + "k/(?:main|shared)", "/roo" + "t/", "/hom" + r"e/\w+/", "/User" + r"s/\w+/"])
)
REGISTRY_HOST = re.compile(
    "|".join(
        [
            "pypi" + r"\.org",
            "pythonhosted" + r"\.org",
            "npmjs" + r"\.(?:org|com)",
            "--(?:extra-)?index" + "-url[ =]+h",
        ]
    )
)

IGNORE = re.compile(r"#\s*type:\s*ignore")
REASONED_IGNORE = re.compile(r"#\s*type:\s*ignore\[[a-z-]+(?:,\s*[a-z-]+)*\]\s+#\s*\w+.*\w")
LATER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")

SQL_QUIET = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\"[^\"]*\"|/\*.*?\*/", re.DOTALL)
SQL_SHOUT = re.compile(r"\b[A-Z]{2,}\b")
SQL_NAME = re.compile(r"^-- (?:name|part): (.*)$", re.MULTILINE)
SQL_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")


def lacks_docstring(source: str) -> bool:
    """Tell whether a module has code but no docstring; an empty one promises nothing."""
    tree = ast.parse(source)
    return bool(tree.body) and ast.get_docstring(tree) is None


def waits_for_a_while(source: str, *, exempt: frozenset[str] = frozenset()) -> list[int]:
    """Find calls of sleep outside the exempt functions; `sleep(0)` gives way and does not wait."""
    return sorted(call.lineno for call in _calls(ast.parse(source), exempt) if _is_sleep(call))


def unreasoned_ignores(source: str) -> list[int]:
    """Find `type: ignore` without a code in brackets and a reason in a comment of its own after it."""
    return _lines(source, lambda line: bool(IGNORE.search(line)) and not REASONED_IGNORE.search(line))


def postponed_work(source: str) -> list[int]:
    """Find marks that put work off: it belongs in an issue."""
    return _lines(source, lambda line: bool(LATER.search(line)))


def places_of_one_machine(text: str) -> list[int]:
    """Find paths of one person's machine, and hosts of package registries."""
    return _lines(text, lambda line: bool(MACHINE_PATH.search(line) or REGISTRY_HOST.search(line)))


def shouted_sql(sql: str) -> list[str]:
    """Find words in capitals outside comments, strings and quoted identifiers."""
    return SQL_SHOUT.findall(SQL_QUIET.sub(" ", sql))


def unnamed_statements(sql: str) -> list[str]:
    """Say what is wrong with a file of named statements: each has its own name, a purpose and one statement."""
    head, *rest = SQL_NAME.split(sql)
    wrong = [] if not _without_comments(head) else ["a statement stands before the first name"]
    names = rest[0::2]
    if not names:
        return [*wrong, "no statement is named"]
    wrong += [f"{name} is there twice" for name in sorted({name for name in names if names.count(name) > 1})]
    for name, body in zip(names, rest[1::2], strict=True):
        if not SQL_IDENTIFIER.fullmatch(name):
            wrong.append(f"{name!r} is no name in lower case")
        if not re.match(r"\n-- \w+.*\w", body):
            wrong.append(f"{name} has no purpose in the line below its name")
        if ";" in _without_comments(body).rstrip().removesuffix(";"):
            wrong.append(f"{name} holds more than one statement")
        if not _without_comments(body):
            wrong.append(f"{name} holds no statement")
    return wrong


def _calls(node: ast.AST, exempt: frozenset[str]) -> Iterator[ast.Call]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in exempt:
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, exempt)


def _is_sleep(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id=module), attr="sleep") if module in WAITING_MODULES:
            pass
        case ast.Name(id="sleep"):
            pass
        case _:
            return False
    return not (len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)


def _lines(text: str, is_wrong: Callable[[str], bool]) -> list[int]:
    return [number for number, line in enumerate(text.splitlines(), start=1) if is_wrong(line)]


def _without_comments(sql: str) -> str:
    return SQL_QUIET.sub(lambda found: "" if found[0].startswith(("--", "/*")) else "''", sql).strip()
