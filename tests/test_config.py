"""Settings: one path each, three ways in, an order between them, and refusals that name what is wrong."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell import config, durations
from cronwell.config import Settings
from cronwell.errors import ConfigError
from tests.support import postgres

# One value, other than the default, for each kind of setting; a bool is an int too, so it comes first.
OTHERS: dict[type, Any] = {
    str: "elsewhere",
    bool: True,
    int: 77,
    timedelta: timedelta(minutes=7),
    Path: Path("/somewhere"),
    tuple: ("one", "two"),
}
CHOICES: dict[str, Any] = {
    "auth.algorithms": ("ES256", "EdDSA"),
    "brokers.default": "rediss://ann:secret@one:6380/3",
    "bus": "postgres",
    "coordination": "etcd://one:2379,two",
    "log.level": "debug",
    "public_url": "https://cronwell.example.com/base",
    "smtp.tls": "none",
    "log.format": "json",
    "scheduler.tzdata": "hold",
    "secrets.key": "ab" * 32,
}


def leaves(kind: type = Settings, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting's path and default, found without config's own list of them."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        if is_dataclass(hints[each.name]):
            yield from leaves(hints[each.name], f"{each.name}.")
        elif get_origin(hints[each.name]) is Mapping:
            # To which the installation gives names: one of them stands for all.
            yield f"{prefix}{each.name}.default", ""
        else:
            yield prefix + each.name, each.default


PATHS = dict(leaves())


def at(settings: Settings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = value[name] if isinstance(value, Mapping) else getattr(value, name)
    return value


def other_than_default(path: str) -> Any:
    if path in CHOICES:
        return CHOICES[path]
    if path == "worker.heartbeat":
        return timedelta(seconds=3)
    if path == "worker.pre_claim":
        return timedelta(milliseconds=250)
    return OTHERS[next(kind for kind in OTHERS if isinstance(PATHS[path], kind))]


def toml_line(path: str, value: Any) -> str:
    shown = json.dumps(config.write_value(value) if isinstance(value, timedelta | Path) else value)
    section, _, key = path.rpartition(".")
    return f"[{section}]\n{key} = {shown}\n" if section else f"{key} = {shown}\n"


def test_every_setting_has_a_line_that_describes_it() -> None:
    lines = {line.path: line for line in config.describe(environ={})}
    assert set(lines) == set(PATHS)
    assert all(re.fullmatch(r"\S.{5,}\S", line.doc) for line in lines.values())
    assert all(line.env == "CRONWELL_" + path.upper().replace(".", "_") for path, line in lines.items())
    assert all((line.value, line.origin) == (PATHS[path], "default") for path, line in lines.items())


def test_no_two_settings_share_an_environment_name() -> None:
    assert len({config.env_name(path) for path in PATHS}) == len(PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_every_setting_can_be_given_by_environment_and_by_file(path: str, tmp_path: Path) -> None:
    wanted = other_than_default(path)
    file = tmp_path / "cronwell.toml"
    file.write_text(toml_line(path, wanted))
    assert at(config.read({config.env_name(path): config.write_value(wanted)}), path) == wanted
    assert at(config.read({}, file), path) == wanted
    assert at(config.read({}, overrides={path: wanted}), path) == wanted


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "cronwell.toml"
    file.write_text('host = "file"\nport = 1\nurl = "http://file"\n')
    environ = {"CRONWELL_HOST": "environment", "CRONWELL_PORT": "2", "CRONWELL_CONFIG": str(file)}
    settings = config.read(environ, overrides={"host": "command"})
    assert (settings.host, settings.port, settings.url) == ("command", 2, "http://file")
    origins = {line.path: line.origin for line in config.describe(environ, overrides={"host": "command"})}
    assert (origins["host"], origins["port"], origins["url"], origins["bus"]) == (
        "command line",
        "CRONWELL_PORT",
        str(file),
        "default",
    )


def test_a_file_named_outright_wins_over_the_one_in_the_environment(tmp_path: Path) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text("port = 1\n")
    other.write_text("port = 2\n")
    assert config.read({"CRONWELL_CONFIG": str(other)}, one).port == 1


def test_without_anything_the_defaults_hold() -> None:
    assert config.read({}) == Settings()


def test_what_does_not_begin_with_our_name_is_nobodys_business() -> None:
    assert config.read({"PORT": "1", "XCRONWELL_PORT": "2", "cronwell_port": "3"}) == Settings()


def refusal(environ: dict[str, str] | None = None, file: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        config.read(environ or {}, file)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CRONWELL_DATABASE_ULR", "CRONWELL_DATABASE_URL"),
        ("CRONWELL_LOOK_AHEAD", "CRONWELL_SCHEDULER_LOOK_AHEAD"),
        ("CRONWELL_PORTT", "CRONWELL_PORT"),
        ("CRONWELL_BROKERS", "CRONWELL_BROKERS_NAME"),
        ("CRONWELL_BROKERS_", "CRONWELL_BROKERS_NAME"),
    ],
)
def test_an_unknown_environment_variable_is_refused_with_the_nearest(name: str, meant: str) -> None:
    assert refusal({name: "1"}) == f"{name} is not a setting; did you mean {meant}?"


def test_an_unknown_name_like_no_other_is_told_where_all_are_listed() -> None:
    assert "`cronwell config show` lists them all" in refusal({"CRONWELL_ZZZZZZZZZZZZZZZ": "1"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prt = 1\n", "prt is not a setting; did you mean port?"),
        (
            "[worker]\nconcurency = 1\n",
            "worker.concurency is not a setting; did you mean worker.concurrency?",
        ),
        ("[wrker]\nconcurrency = 1\n", "did you mean worker.concurrency?"),
        ("[worker.deeper]\nx = 1\n", "worker.deeper is not a setting"),
        ("database = 5\n", "database is not a setting"),
        ('brokers = "redis://one"\n', "brokers is not a setting"),
        ("[brokers.default]\nx = 1\n", "is no address of a broker"),
        ("port = = 1\n", "is not TOML"),
    ],
)
def test_what_a_file_says_wrong_is_refused(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "cronwell.toml"
    file.write_text(text)
    message = refusal(file=file)
    assert told in message
    assert str(file) in message


def test_a_file_is_utf_8_and_another_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cronwell.toml"
    file.write_bytes(b"\xff\xfe")
    assert f"{file} is not TOML" in refusal(file=file)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "none.toml") in refusal(file=tmp_path / "none.toml")
    assert str(tmp_path / "none.toml") in refusal({"CRONWELL_CONFIG": str(tmp_path / "none.toml")})


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        ("port", "eighty", "'eighty' is not a whole number"),
        ("port", "1.5", "not a whole number"),
        ("port", "-1", "'-1' is negative"),
        ("port", "65536", "at most 65535"),
        ("shell.enabled", "perhaps", "neither true nor false"),
        ("worker.lease", "soon", 'a duration such as "30s"'),
        ("worker.lease", "0s", "at least 1ms"),
        ("worker.concurrency", "0", "at least 1"),
        ("database.pool_size", "0", "at least 1"),
        ("scheduler.tick", "0s", "at least 1ms"),
        ("log.level", "loud", "'loud' is not one of debug, info, warning, error"),
        ("log.format", "xml", "'xml' is not one of json, text, auto"),
        ("scheduler.tzdata", "maybe", "'maybe' is not one of apply, hold, ask"),
        ("bus", "redis://localhost", "is not one of postgres"),
        ("auth.algorithms", "RS256,HS256", "'HS256' is not an algorithm by which only the provider can sign"),
        ("auth.algorithms", "none", "'none' is not an algorithm"),
        ("coordination", "zookeeper", "is neither postgres nor etcd://HOST:PORT,… nor etcds://HOST:PORT,…"),
        ("coordination", "zk://localhost", "does not start with etcd:// or etcds://"),
        ("coordination", "etcd://", "is not a host and a port"),
        ("coordination", "etcd://one:2379,two:x", "'two:x' is not a host and a port"),
        ("coordination", "etcd://one:70000", "is not a host and a port"),
        ("coordination", "etcd://one/prefix", "is not a host and a port"),
        ("coordination", "etcd://@one", "no user before it"),
        ("etcd.timeout", "0s", "at least 1ms"),
        ("brokers.default", "kafka://one", "it is redis://USER:PASSWORD@HOST:PORT/DATABASE"),
        ("brokers.default", "one:6379", "is no address of a broker"),
        ("brokers.default", "redis://", "is not a host and a port"),
        ("brokers.default", "redis://one,two", "names several hosts"),
        ("brokers.default", "redis://one/x", "'x' is not the number of a database"),
        ("brokers.default", "redis://one/1000000", "is not the number of a database"),
        ("brokers.default", "redis://@one", "no user before it"),
        ("brokers.9lives", "redis://one", "'9lives' is not a name"),
        ("publish.timeout", "0s", "at least 1ms"),
        ("public_url", "cronwell.example.com", "is not an address such as https://cronwell.example.com"),
        ("public_url", "ftp://cronwell.example.com", "is not an address such as"),
        ("public_url", "https://", "is not an address such as"),
        ("public_url", "https://a.example/?x=1", "is not an address such as"),
        ("public_url", "https://ü.example", "is not an address such as"),
        ("public_url", "https://a.example/ x", "is not an address such as"),
    ],
)
def test_a_bad_value_is_refused_with_its_setting_and_where_it_came_from(
    path: str, text: str, told: str, tmp_path: Path
) -> None:
    name = config.env_name(path)
    by_environment = refusal({name: text})
    assert told in by_environment
    assert by_environment.startswith(f"{name}: {path} ({name}): ")
    file = tmp_path / "cronwell.toml"
    file.write_text(toml_line(path, text))
    by_file = refusal(file=file)
    assert told in by_file
    assert by_file.startswith(f"{file}: {path} ({name}): ")


@pytest.mark.parametrize("heartbeat", ["30s", "1m"])
def test_a_heartbeat_must_come_before_the_lease_ends(heartbeat: str) -> None:
    message = refusal({"CRONWELL_WORKER_HEARTBEAT": heartbeat})
    assert "worker.heartbeat" in message
    assert "worker.lease" in message


@pytest.mark.parametrize("text", ["1", "true", "YES", " on "])
def test_truth_may_be_told_in_several_ways(text: str) -> None:
    assert config.read({"CRONWELL_SHELL_ENABLED": text}).shell.enabled is True


@pytest.mark.parametrize("text", ["0", "false", "No", "off", ""])
def test_so_may_falsehood(text: str) -> None:
    assert config.read({"CRONWELL_SHELL_ENABLED": text}).shell.enabled is False


def test_lists_are_separated_by_commas() -> None:
    assert config.read({"CRONWELL_WORKER_POOLS": " a, b ,,c"}).worker.pools == ("a", "b", "c")
    assert config.read({"CRONWELL_EGRESS_ALLOW": ""}).egress_allow == ()


@pytest.mark.parametrize("path", sorted(config.SECRET_PATHS))
def test_a_secret_is_said_to_be_set_and_not_shown(path: str) -> None:
    secret = CHOICES.get(path, "postgresql://u:hunter2@db.example/x")
    [line] = [each for each in config.describe({config.env_name(path): secret}) if each.path == path]
    assert line.value == "(set)"
    [unset] = [each for each in config.describe({}) if each.path == path]
    assert unset.value == ""


def test_a_password_in_an_address_is_not_shown() -> None:
    given = {"CRONWELL_COORDINATION": "etcds://ann:hun:t@er2@one:2379,two:2379"}
    [line] = [each for each in config.describe(given) if each.path == "coordination"]
    assert line.value == "etcds://ann:***@one:2379,two:2379"
    refused = {"CRONWELL_COORDINATION": "etcdx://ann:hunter2@one:2379"}
    assert "hunter2" not in refusal(refused)


def test_brokers_have_the_names_that_they_are_given(tmp_path: Path) -> None:
    file = tmp_path / "cronwell.toml"
    file.write_text(
        '[brokers]\norders = "redis://file"\nbilling_eu = "redis://file/1"\nold = "redis://file"\n'
    )
    environ = {"CRONWELL_BROKERS_ORDERS": "redis://:hunter2@one", "CRONWELL_BROKERS_OLD": ""}
    settings = config.read(environ, file)
    assert settings.brokers == {"orders": "redis://:hunter2@one", "billing_eu": "redis://file/1"}
    lines = {each.path: each for each in config.describe(environ, file) if each.path.startswith("brokers.")}
    assert {path: (each.env, each.value) for path, each in lines.items()} == {
        "brokers.billing_eu": ("CRONWELL_BROKERS_BILLING_EU", "redis://file/1"),
        "brokers.orders": ("CRONWELL_BROKERS_ORDERS", "redis://:***@one"),
    }
    assert config.read(config.as_environ(settings)) == settings
    assert "hunter2" not in refusal({"CRONWELL_BROKERS_ORDERS": "redish://:hunter2@one"})


words = st.text("abcdefghijklmnopqrstuvwxyz0123456789._-/:", min_size=1, max_size=20)
VALUES: dict[type, st.SearchStrategy[Any]] = {
    str: words,
    bool: st.booleans(),
    int: st.integers(1, 65_535),
    # From the largest of the least that any of them may be.
    timedelta: st.timedeltas(timedelta(seconds=1), timedelta(seconds=20)),
    Path: words.map(Path),
    tuple: st.lists(words, max_size=4).map(tuple),
}


@st.composite
def trees(draw: st.DrawFn) -> Settings:
    """Settings in which every one may differ from its default."""
    given_values: dict[str, dict[str, Any]] = {}
    for path, default in PATHS.items():
        kind = next(kind for kind in VALUES if isinstance(default, kind))
        value = CHOICES[path] if path in CHOICES else draw(VALUES[kind])
        section, _, name = path.rpartition(".")
        given_values.setdefault(section, {})[name] = value
    worker = given_values["worker"]
    worker["lease"] = worker["heartbeat"] + timedelta(seconds=1)
    worker["pre_claim"] = min(worker["pre_claim"], timedelta(seconds=1))
    sections = {
        name: type(getattr(Settings(), name))(**values) for name, values in given_values.items() if name
    }
    return Settings(**given_values[""], **sections)


@given(trees())
def test_settings_handed_on_as_environment_are_read_back_the_same(settings: Settings) -> None:
    environ = config.as_environ(settings)
    assert set(environ) == {config.env_name(path) for path in PATHS}
    assert config.read(environ) == settings


def test_durations_are_handed_on_as_people_write_them() -> None:
    environ = config.as_environ(dataclasses.replace(Settings(), egress_allow=("10.0.0.0/8", "::1/128")))
    assert environ["CRONWELL_SCHEDULER_LOOK_AHEAD"] == durations.write(timedelta(minutes=1)) == "1m"
    assert environ["CRONWELL_EGRESS_ALLOW"] == "10.0.0.0/8,::1/128"
    assert environ["CRONWELL_SHELL_ENABLED"] == "false"


def test_the_process_environment_is_what_is_read_by_default() -> None:
    code = "from cronwell import config; print(config.read().port)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"CRONWELL_PORT": "9009"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "9009"


def test_a_server_named_for_the_tests_is_used_and_does_not_keep_cronwell_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_DATABASE_URL", "postgresql://db.example.com/test")
    with postgres.shared_server() as url:
        assert url == "postgresql://db.example.com/test"
    assert config.read({postgres.SERVER_VARIABLE: url}) == Settings()
