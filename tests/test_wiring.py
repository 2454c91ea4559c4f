"""What commands ask of the store itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cronwell import errors, wiring
from cronwell.config import Settings
from cronwell.runtime.embedded import EmbeddedPostgres


def _bootstrap(settings: Settings, tenant: str) -> str:
    return wiring.bootstrap(settings, tenant, "first", ["read"])


@pytest.mark.parametrize("ask", [wiring.signing_secret, _bootstrap])
def test_what_is_asked_of_a_database_that_is_not_there_makes_none(
    ask: Callable[[Settings, str], str], tmp_path: Path
) -> None:
    settings = Settings(data_dir=tmp_path)
    with pytest.raises(errors.ConfigError, match=r"there is no database in .* CRONWELL_DATA_DIR"):
        ask(settings, "default")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_was_started_to_ask_something_is_stopped_whatever_the_answer(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    server.start()
    server.stop()
    with pytest.raises(errors.ConfigError, match="lacks migration 0001"):
        wiring.signing_secret(Settings(data_dir=tmp_path), "default")
    assert not server.is_running
