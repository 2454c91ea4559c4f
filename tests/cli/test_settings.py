"""`config show`: every setting with its origin."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_every_setting_is_shown_with_its_environment_variable(run: Run) -> None:
    result = run("config", "show")
    head, *lines = result.stdout.splitlines()
    assert head.split()[:4] == ["SETTING", "VALUE", "FROM", "ENVIRONMENT"]
    lease = next(line for line in lines if line.startswith("worker.lease "))
    assert lease.split()[1:4] == ["30s", "default", "CRONWELL_WORKER_LEASE"]


def test_origins_are_told(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "cronwell.toml"
    file.write_text('port = 9000\n[worker]\npools = ["a", "b"]\n')
    shown = json.loads(
        run(
            "config", "show", "--json", "--config", str(file), "--url", "http://x", CRONWELL_HOST="::1"
        ).stdout
    )
    assert shown["port"]["origin"] == str(file)
    assert shown["worker.pools"]["value"] == "a,b"
    assert shown["host"]["origin"] == "CRONWELL_HOST"
    assert (shown["url"]["value"], shown["url"]["origin"]) == ("http://x", "command line")


def test_a_secret_is_not_shown(run: Run) -> None:
    assert "hunter2" not in run("config", "show", CRONWELL_DATABASE_URL="postgresql://u:hunter2@h/d").stdout


def test_a_wrong_setting_is_a_usage_error_that_names_it(run: Run) -> None:
    for arguments in (("config", "show"), ("job", "list"), ("worker",)):
        result = run(*arguments, CRONWELL_PORTT="1")
        assert result.exit_code == 2
        assert "CRONWELL_PORTT is not a setting; did you mean CRONWELL_PORT?" in result.stderr


def test_a_file_that_is_not_there_is_a_usage_error(run: Run) -> None:
    result = run("config", "show", "--config", "/no/such.toml")
    assert (result.exit_code, "cannot read the settings file" in result.stderr) == (2, True)
