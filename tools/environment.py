"""Make the virtual environment hold exactly the pinned packages of a lock file, and this project.

`python tools/environment.py .venv requirements.lock`. Uses nothing but the standard library and the pip that
comes with Python, since it runs before anything is installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import venv
from collections import deque
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIN = re.compile(r"^[A-Za-z0-9._-]+(\[.*\])?==", re.MULTILINE)
# The lines by which pip says that it has come to the next package.
STEP = re.compile(r"^(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9._-]+)")


def main(environment: Path, lock: Path) -> int:
    """Create or update the environment; answer the exit code of the step that failed, or 0."""
    started = time.monotonic()
    python = environment / "bin" / "python"
    if not starts(python):
        print(f"Creating {environment} with Python {sys.version.split()[0]}", flush=True)
        venv.create(environment, clear=True, with_pip=True, symlinks=True)
    pinned = len(PIN.findall(lock.read_text()))
    print(f"Installing {lock.name}: {pinned} pinned packages", flush=True)
    # The lock is complete, so pip has nothing to resolve; hashes make each download the one that was locked.
    locked = ("--no-deps", "--require-hashes", "--requirement")
    # pip itself first: each Python comes with another one, and an old one takes twice as long for the rest.
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as only_pip:
        only_pip.write(pinned_lines("pip", lock))
        only_pip.flush()
        if code := pip(python, *locked, only_pip.name):
            return code
    # Most of what only developers use is never imported in a run: what is gets compiled then.
    compiling = () if "dev" not in lock.name else ("--no-compile",)
    if code := pip(python, *compiling, *locked, str(lock), expected=pinned):
        return code
    # Without build isolation the build backend is the locked one and nothing else is fetched.
    if code := pip(python, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)):
        return code
    print(f"Ready in {time.monotonic() - started:.0f} s", flush=True)
    return 0


def pinned_lines(name: str, lock: Path) -> str:
    """What the lock says of one package: its version and hashes."""
    found = re.search(rf"^{re.escape(name)}==.*(?:\n .*)*\n", lock.read_text(), re.MULTILINE)
    if found is None:
        sys.exit(f"{lock} does not pin {name}: run `make lock`")
    return found[0]


def starts(python: Path) -> bool:
    """Tell whether the environment's interpreter is there and still runs (an upgrade may have removed it)."""
    if not python.exists():
        return False
    probe = [str(python), "-c", "import sys, pip; sys.exit(sys.version_info < (3, 11))"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def pip(python: Path, *arguments: str, expected: int = 0) -> int:
    """Run `pip install`, show how far it is, and show what it said only when it fails."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *arguments]
    said: deque[str] = deque(maxlen=40)
    seen = 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with process as running:
        assert running.stdout is not None
        for line in running.stdout:
            said.append(line)
            if expected and (step := STEP.match(line)):
                seen += 1
                show(f"  {seen:>3} of {expected}  {step[1]}", is_last=False, is_milestone=seen % 20 == 0)
            elif line.startswith("Installing collected packages"):
                show("  unpacking", is_last=True, is_milestone=expected > 0)
    if process.returncode:
        print(f"\npip failed (exit {process.returncode}); its last words:\n{''.join(said)}", file=sys.stderr)
    return process.returncode


def show(text: str, *, is_last: bool, is_milestone: bool) -> None:
    """Rewrite one line on a terminal; elsewhere (a log) print the milestones only."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="\n" if is_last else "", flush=True)
    elif is_milestone:
        print(text, flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python tools/environment.py ENVIRONMENT LOCK_FILE")
    try:
        sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
    except KeyboardInterrupt:
        sys.exit("\nInterrupted; the next run goes on from here.")
