"""`cronwell alert`: rules that watch jobs, the channels by which they tell, and what they found."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from cronwell.cli import lists
from cronwell.cli.failures import ExitCode
from cronwell.cli.jobs import ending, wait_for
from cronwell.cli.lists import After, All, Limit
from cronwell.cli.paths import channel_path, rule_path
from cronwell.cli.screen import Column, Screen
from cronwell.cli.session import Json, session
from cronwell.cli.sources import read_json, usage

app = typer.Typer(no_args_is_help=True, help="Rules that watch jobs, who is told, and what was found.")
rules = typer.Typer(no_args_is_help=True, help="What is watched for, and who is told.")
channels = typer.Typer(no_args_is_help=True, help="Ways to tell people, or programs.")
app.add_typer(rules, name="rule")
app.add_typer(channels, name="channel")

Rule = Annotated[str, typer.Argument(metavar="NAME", help="The rule's name.")]
Channel = Annotated[str, typer.Argument(metavar="NAME", help="The channel's name.")]
Content = Annotated[str, typer.Argument(metavar="CONTENT", help="JSON as it is, @file, or - for stdin.")]

_RULES = (
    Column("NAME"),
    Column("ON"),
    Column("WHEN"),
    Column("CHANNELS", rank=1),
    Column("SEVERITY", rank=2),
)
_CHANNELS = (Column("NAME"), Column("KIND"), Column("TO"), Column("DESCRIPTION", rank=2, is_prose=True))
_INCIDENTS = (
    Column("SINCE"),
    Column("STATE"),
    Column("SEVERITY", rank=2),
    Column("RULE", rank=1),
    Column("SUMMARY", is_prose=True),
    Column("TOLD", rank=3),
    Column("UNTIL", rank=2),
)


class State(StrEnum):
    OPEN = "open"
    RESOLVED = "resolved"


@app.command("list")
def list_incidents(
    context: typer.Context,
    state: Annotated[State | None, typer.Option(help="Only those that go on, or that are over.")] = None,
    rule: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this rule.")] = None,
    limit: Limit = 50,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List what rules have found, newest first."""
    here = session(context)
    part = lists.Part(limit, is_all, cursor)
    query = {"state": state, "rule": rule}
    lists.show_list(
        here.client, here.screen(as_json), "/v1/alerts/incidents", query, part, _INCIDENTS, _incident_row
    )


@app.command("test")
def try_channel(context: typer.Context, name: Channel, as_json: Json = False) -> None:
    """Have a channel say that this is a test, and wait until it has arrived; exit 1 if it does not."""
    here = session(context)
    screen = here.screen(as_json)
    execution = here.client.post(f"{channel_path(name)}/test")["execution"]
    ended = wait_for(here.client, screen, execution, "retrying")
    screen.answer(ended, f"{name}: {ending(ended)}")
    if ended["state"] != "succeeded":
        raise typer.Exit(ExitCode.FAILED)


@rules.command("list")
def list_rules(
    context: typer.Context,
    limit: Limit = 50,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List rules by name."""
    here = session(context)
    part = lists.Part(limit, is_all, cursor)
    lists.show_list(here.client, here.screen(as_json), "/v1/alerts/rules", {}, part, _RULES, _rule_row)


@rules.command("show")
def show_rule(context: typer.Context, name: Rule) -> None:
    """Show a rule, as JSON."""
    here = session(context)
    here.screen(as_json=True).json(here.client.get(rule_path(name)))


@rules.command("set")
def set_rule(context: typer.Context, name: Rule, content: Content, as_json: Json = False) -> None:
    """Make a rule, or change it; it is judged every few seconds from then on."""
    here = session(context)
    kept = here.client.put(rule_path(name), _object(content, '{"on": …, "when": …, "channels": […]}'))
    here.screen(as_json).answer(kept, f"rule {kept['name']} is at revision {kept['revision']}")


@rules.command("delete")
def delete_rule(context: typer.Context, name: Rule, as_json: Json = False) -> None:
    """Delete a rule; its incidents are over, and who was told of them is told that."""
    here = session(context)
    here.screen(as_json).answer(here.client.delete(rule_path(name)), f"rule {name} is deleted")


@channels.command("list")
def list_channels(
    context: typer.Context,
    limit: Limit = 50,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List channels by name."""
    here = session(context)
    part = lists.Part(limit, is_all, cursor)
    lists.show_list(
        here.client, here.screen(as_json), "/v1/alerts/channels", {}, part, _CHANNELS, _channel_row
    )


@channels.command("show")
def show_channel(context: typer.Context, name: Channel) -> None:
    """Show a channel, as JSON; what is secret in it is not shown."""
    here = session(context)
    here.screen(as_json=True).json(here.client.get(channel_path(name)))


@channels.command("set")
def set_channel(context: typer.Context, name: Channel, content: Content, as_json: Json = False) -> None:
    """Make a channel, or change it."""
    here = session(context)
    kept = here.client.put(channel_path(name), _object(content, '{"webhook": {"url": "https://…"}}'))
    here.screen(as_json).answer(kept, f"channel {kept['name']} is at revision {kept['revision']}")


@channels.command("delete")
def delete_channel(context: typer.Context, name: Channel, as_json: Json = False) -> None:
    """Delete a channel by which no rule speaks."""
    here = session(context)
    here.screen(as_json).answer(here.client.delete(channel_path(name)), f"channel {name} is deleted")


def _object(content: str, example: str) -> dict[str, Any]:
    given = read_json(content, "CONTENT")
    if not isinstance(given, dict):
        raise usage(f"CONTENT is not an object such as {example}")
    return given


def _incident_row(screen: Screen, incident: dict[str, Any]) -> Sequence[object]:
    return (
        screen.moment(incident["opened_at"]),
        incident["state"],
        incident["severity"],
        incident["rule"],
        incident["summary"],
        ", ".join(incident["told"]),
        screen.moment(incident["resolved_at"]),
    )


def _rule_row(_: Screen, rule: dict[str, Any]) -> Sequence[object]:
    content = rule["content"]
    return (
        rule["name"],
        _words(content["on"]),
        _words(content["when"]),
        ", ".join(content["channels"]),
        content.get("severity", "critical"),
    )


def _channel_row(_: Screen, channel: dict[str, Any]) -> Sequence[object]:
    content = channel["content"]
    given = content[channel["kind"]]
    to = ", ".join(given["to"]) if channel["kind"] == "email" else given["url"]
    return channel["name"], channel["kind"], to, content.get("description", "")


def _words(given: object) -> str:
    """A small object on one line: `job nightly`, `missed 26h`, `failure_rate above 0.5 over 1h`."""
    if not isinstance(given, dict):
        return "" if given is True else str(given)
    return " ".join(f"{name} {_words(value)}".rstrip() for name, value in given.items())
