"""Commands by fork: of a server that has imported the command line once, which spares each of them most of its time.

What stands in for `cronwell` hands over its arguments, its environment, its folder and its open files to `warm_server`, and ends
as the command ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import ROOT
from tests.support.waiting import until_blocking

_CLIENT = """\
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({path!r})
    told = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(told).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(told)
    sys.exit(server.recv(1)[0])
"""


@contextmanager
def commands(folder: Path) -> Iterator[Path]:
    """A server of commands; yields the program that stands in for `cronwell`."""
    place, program = folder / "commands", folder / "cronwell.py"
    program.write_text(_CLIENT.format(path=str(place)))
    server = subprocess.Popen([sys.executable, "-m", "tests.support.warm_server", str(place)], cwd=ROOT)
    try:
        until_blocking(lambda: place.exists() or server.poll() is not None, within=30)
        yield program
    finally:
        server.terminate()
        server.wait()
