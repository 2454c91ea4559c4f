"""What `cronwell up` tells the roles that it starts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cronwell import config, errors, up
from cronwell.config import Settings
from cronwell.runtime.supervisor import Child
from cronwell.targets.egress import Egress
from cronwell.up import role_settings


def told(host: str, *allowed: str) -> Egress:
    """The guard of a worker that was told its settings through its environment."""
    settings = role_settings(dataclasses.replace(Settings(), host=host, egress_allow=allowed))
    return Egress(config.read(config.as_environ(settings)).egress_allow)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.9", "::1", "localhost"])
@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1"])
def test_where_only_this_machine_reaches_the_api_targets_may_call_it(host: str, address: str) -> None:
    told(host).check(address)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "cronwell.example.com"])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_where_others_reach_the_api_targets_may_not_call_this_machine(host: str, address: str) -> None:
    with pytest.raises(errors.EgressRefused):
        told(host).check(address)


def test_the_loopback_comes_on_top_of_what_the_operator_allows_and_brings_nothing_else() -> None:
    guard = told("127.0.0.1", "10.1.0.0/16")
    guard.check("10.1.2.3")
    guard.check("127.0.0.1")
    with pytest.raises(errors.EgressRefused):
        guard.check("10.2.0.1")


@pytest.mark.parametrize(
    ("host", "public_url", "told"),
    [
        ("127.0.0.1", "", "http://127.0.0.1:8420"),
        ("::1", "", "http://[::1]:8420"),
        ("10.1.2.3", "", "http://10.1.2.3:8420"),
        ("0.0.0.0", "", ""),
        ("127.0.0.1", "https://cronwell.example.com", "https://cronwell.example.com"),
    ],
)
def test_receivers_reach_the_api_where_it_listens_unless_a_setting_says_otherwise(
    host: str, public_url: str, told: str
) -> None:
    settings = dataclasses.replace(Settings(), host=host, public_url=public_url)
    assert config.read(config.as_environ(role_settings(settings))).public_url == told


def test_metrics_are_kept_in_memory_or_else_beside_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    settings = dataclasses.replace(Settings(), data_dir=data)
    memory = tmp_path / "memory"
    monkeypatch.setattr(up, "SHARED_MEMORY", memory)
    assert up.metrics_place(settings) == data / "metrics", "there is no such memory here"
    memory.mkdir()
    found = up.metrics_place(settings)
    assert found.parent == memory
    assert found.stat().st_mode & 0o777 == 0o700
    (found / "left over").touch()
    assert up.metrics_place(settings) == found
    assert list(found.iterdir()) == []


@pytest.mark.parametrize(
    ("host", "is_open", "called"),
    [("127.0.0.1", False, "http://127.0.0.1:8420/healthz"), ("0.0.0.0", True, "https://example.com/")],
)
def test_the_first_job_that_is_proposed_calls_what_it_may_call(host: str, is_open: bool, called: str) -> None:
    children = cast(
        "list[Child]", [SimpleNamespace(name=name, pid=1) for name in ("api", "scheduler", "worker")]
    )
    said = "\n".join(up._banner(Settings(host=host), "127.0.0.1", children, None))
    assert ("every address" in said) is is_open
    assert f'"url": "{called}"' in said
