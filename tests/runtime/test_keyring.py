"""The keys for secrets: from wherever they are set, read again when they change, and never told."""

from __future__ import annotations

import base64
import dataclasses
import secrets
import stat
import sys
from pathlib import Path

import pytest

from cronwell import config, errors
from cronwell.config import SecretSettings, Settings
from cronwell.model.envelope import Key
from cronwell.runtime import keyring
from cronwell.runtime.keyring import OWN_FILE, Keyring, own_key
from cronwell.values import read_keys


def fresh() -> tuple[str, Key]:
    raw = secrets.token_bytes(32)
    return base64.b64encode(raw).decode(), Key(raw)


async def test_keys_come_from_the_setting_the_file_and_the_command_in_this_order(tmp_path: Path) -> None:
    texts, keys = zip(*(fresh() for _ in range(4)), strict=True)
    file = tmp_path / "keys"
    file.write_text(f"# the new one\n{texts[1]}\n\n{keys[2].raw.hex()}  # the old one\n")
    command = f"{sys.executable} -c \"print('{texts[3]}')\""
    ring = Keyring(SecretSettings(key=texts[0], key_file=str(file), key_command=command))
    assert list(await ring.keys()) == [each.id for each in keys]
    assert await ring.first() == keys[0]
    assert await ring.find(keys[3].id) == keys[3]
    assert await ring.find("0" * 16) is None


@pytest.mark.parametrize("form", ["base64", "unpadded", "urlsafe", "hex", "HEX"])
def test_a_key_is_read_in_every_usual_form(form: str) -> None:
    raw = b"\xfb\xff" * 16
    text = {
        "base64": base64.b64encode(raw).decode(),
        "unpadded": base64.b64encode(raw).decode().rstrip("="),
        "urlsafe": base64.urlsafe_b64encode(raw).decode(),
        "hex": raw.hex(),
        "HEX": raw.hex().upper(),
    }[form]
    assert read_keys(f" {text} , {text}\n") == [raw, raw]


@pytest.mark.parametrize(
    "wrong", ["hunter2hunter2", "z" * 64, base64.b64encode(b"x" * 31).decode(), "ü" * 44]
)
def test_what_is_not_a_key_keeps_a_process_from_starting_and_is_not_told(wrong: str) -> None:
    good, _ = fresh()
    with pytest.raises(
        errors.ConfigError, match=r"CRONWELL_SECRETS_KEY.*key 2 of 2 is not a key.*openssl rand"
    ) as told:
        config.read({"CRONWELL_SECRETS_KEY": f"{good},{wrong}"})
    assert wrong not in str(told.value)
    assert good not in str(told.value)


def test_neither_keys_nor_the_command_that_prints_them_are_shown_with_the_settings() -> None:
    text, _ = fresh()
    given = {"CRONWELL_SECRETS_KEY": text, "CRONWELL_SECRETS_KEY_COMMAND": "vault --token hvs.x"}
    shown = {line.path: line.value for line in config.describe(given)}
    assert (shown["secrets.key"], shown["secrets.key_command"]) == ("(set)", "(set)")


async def test_without_a_key_it_is_said_what_to_set() -> None:
    with pytest.raises(errors.SecretsLocked, match=r"CRONWELL_SECRETS_KEY_FILE.*openssl rand -base64 32"):
        await Keyring().first()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty"),
        (b"\xff\xfe", "not text"),
        (b"abc\n", "it is not a key"),
    ],
)
async def test_a_file_without_a_key_is_named_by_its_setting(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(
        errors.SecretsLocked, match=rf"secrets\.key_file \(CRONWELL_SECRETS_KEY_FILE\).*{said}"
    ):
        await Keyring(SecretSettings(key_file=str(file))).first()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/nowhere/at-all", "cannot be run: No such file"),
        ("'unclosed", "cannot be run"),
        ("false", "ended with 1"),
        ("sleep 60", "did not end within"),
        ("echo $HOME", "it is not a key"),
    ],
)
async def test_a_command_that_gives_no_key_is_named_by_its_setting(
    command: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "COMMAND_SECONDS", 0.5 if "sleep" in command else 30.0)
    with pytest.raises(errors.SecretsLocked, match=rf"secrets\.key_command .*{said}"):
        await Keyring(SecretSettings(key_command=command)).first()


async def test_a_new_key_is_found_without_a_restart_and_a_lost_file_takes_none_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old_text, old), (new_text, new) = fresh(), fresh()
    file = tmp_path / "keys"
    file.write_text(old_text)
    ring = Keyring(SecretSettings(key_file=str(file)))
    assert await ring.first() == old
    file.write_text(f"{new_text}\n{old_text}\n")
    monkeypatch.setattr(keyring, "AGAIN_SECONDS", 0.0)
    assert await ring.find(new.id) == new
    assert await ring.first() == new
    file.unlink()
    assert list(await ring.keys(believed_seconds=0)) == [new.id, old.id]


def test_the_embedded_database_has_a_key_of_its_own_that_is_made_once(tmp_path: Path) -> None:
    settings = dataclasses.replace(Settings(), data_dir=tmp_path / "data")
    named, made = own_key(settings)
    assert made == tmp_path / "data" / OWN_FILE
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert named.secrets.key_file == str(made)
    content = made.read_text()
    assert len(read_keys(content)) == 1
    assert own_key(settings) == (named, None)
    assert made.read_text() == content
    given = dataclasses.replace(settings, secrets=SecretSettings(key_command="true"))
    assert own_key(given) == (given, None)


async def test_a_role_that_is_started_by_itself_finds_the_embedded_databases_key(tmp_path: Path) -> None:
    settings = dataclasses.replace(Settings(), data_dir=tmp_path)
    with pytest.raises(errors.SecretsLocked):
        await Keyring.of(settings).first()
    _, made = own_key(settings)
    assert made is not None
    assert [(await Keyring.of(settings).first()).raw] == read_keys(made.read_text())
    elsewhere = dataclasses.replace(
        settings, database=dataclasses.replace(settings.database, url="postgresql://x")
    )
    with pytest.raises(errors.SecretsLocked):
        await Keyring.of(elsewhere).first()


def test_a_key_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.ConfigError, match="cannot write"):
        own_key(dataclasses.replace(Settings(), data_dir=tmp_path / "file"))
