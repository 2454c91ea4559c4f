"""The embedded server's settings follow from the memory that there is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell.runtime.tuning import GIB, MIB, memory_limit, server_settings, write_settings


def settings_for(memory: int, *, has_statement_statistics: bool = False) -> dict[str, str]:
    return server_settings(
        socket_dir=Path("/run"), memory=memory, has_statement_statistics=has_statement_statistics
    )


@pytest.mark.parametrize(
    ("memory", "buffers"),
    [(256 * MIB, "128MB"), (GIB, "128MB"), (4 * GIB, "512MB"), (16 * GIB, "2048MB"), (256 * GIB, "4096MB")],
)
def test_buffers_are_an_eighth_of_memory_within_bounds(memory: int, buffers: str) -> None:
    assert settings_for(memory)["shared_buffers"] == buffers


@pytest.mark.parametrize(
    ("memory", "log"),
    [(256 * MIB, "4096MB"), (8 * GIB, "4096MB"), (12 * GIB, "6144MB"), (256 * GIB, "8192MB")],
)
def test_a_larger_machine_has_room_for_a_longer_log(memory: int, log: str) -> None:
    assert settings_for(memory)["max_wal_size"] == log


def test_statement_statistics_are_kept_only_where_they_can_be() -> None:
    assert "shared_preload_libraries" not in settings_for(GIB)
    loaded = settings_for(GIB, has_statement_statistics=True)
    assert loaded["shared_preload_libraries"] == "pg_stat_statements"


@given(st.text(alphabet="a' \\/=", max_size=20))
def test_any_value_is_quoted(value: str) -> None:
    *_, line, last = write_settings({"cluster_name": value}).split("\n")
    assert last == ""
    quoted = line.removeprefix("cluster_name = '").removesuffix("'")
    assert quoted.replace("''", "") == value.replace("'", "")
    assert quoted.count("'") == 2 * value.count("'")


MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def limit(tmp_path: Path, membership: str, files: dict[str, str]) -> int:
    for name, text in files.items():
        file = tmp_path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "membership").write_text(membership)
    return memory_limit(tmp_path / "cgroup", tmp_path / "membership")


def test_without_a_limit_it_is_the_machine_s_memory(tmp_path: Path) -> None:
    assert limit(tmp_path, "0::/\n", {"memory.max": "max\n"}) == MACHINE
    assert memory_limit(tmp_path / "none", tmp_path / "none") == MACHINE


def test_a_container_s_limit_counts(tmp_path: Path) -> None:
    assert limit(tmp_path, "0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "104857600\n"}) == 100 * MIB


def test_a_limit_counts_also_where_the_path_is_the_host_s(tmp_path: Path) -> None:
    assert limit(tmp_path, "0::/../../elsewhere\n", {"memory.max": "104857600"}) == 100 * MIB


def test_the_older_control_groups_count_too(tmp_path: Path) -> None:
    files = {"memory/docker/x/memory.limit_in_bytes": "104857600"}
    assert limit(tmp_path, "5:cpu:/docker/x\n4:memory:/docker/x\n", files) == 100 * MIB
