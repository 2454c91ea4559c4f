"""One run of the command: where its settings come from, and the server that it talks to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cronwell.cli.failures import ExitCode, Failure
from cronwell.cli.screen import Screen
from cronwell.errors import ConfigError

if TYPE_CHECKING:
    from cronwell import config
    from cronwell.cli.client import Client

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - recognised, not bound


@dataclass(slots=True)
class Session:
    """What the options before the command said. Settings, client and screen are made when first asked for."""

    config_file: Path | None = None
    url: str | None = None
    as_json: bool = False
    _client: Client | None = field(default=None, repr=False)

    def settings(self, overrides: Mapping[str, object] | None = None) -> config.Settings:
        """The settings with the command line's own on top. Raises Failure where one is wrong."""
        from cronwell import config

        try:
            return config.read(file=self.config_file, overrides=self._all(overrides))
        except ConfigError as error:
            raise Failure(str(error), ExitCode.USAGE) from None

    def describe(self) -> list[config.Line]:
        """Every setting with its origin."""
        from cronwell import config

        try:
            return config.describe(file=self.config_file, overrides=self._all(None))
        except ConfigError as error:
            raise Failure(str(error), ExitCode.USAGE) from None

    @property
    def client(self) -> Client:
        """The server that client commands talk to."""
        if self._client is None:
            from cronwell.cli.client import Client

            settings = self.settings()
            address = settings.url or address_of(settings.host, settings.port)
            self._client = Client(address, key=settings.api_key)
        return self._client

    def close(self) -> None:
        """Let go of the connection, if there is one."""
        if self._client is not None:
            self._client.close()

    def screen(self, as_json: bool = False) -> Screen:
        """Where the command writes. Failures after this are written as JSON too, if JSON is asked for."""
        self.as_json = as_json
        return Screen(as_json=as_json)

    def _all(self, overrides: Mapping[str, object] | None) -> dict[str, object]:
        given: dict[str, object] = dict(overrides or {})
        if self.url is not None:
            given["url"] = self.url
        return given


def address_of(host: str, port: int) -> str:
    """The URL at which a server that listens on `host` and `port` is reached from here."""
    host = _ANY_ADDRESS.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def session(context: typer.Context) -> Session:
    """The session that a command runs in."""
    found = context.find_object(Session)
    assert found is not None, "the front door makes one before any command runs"
    return found


Json = Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
