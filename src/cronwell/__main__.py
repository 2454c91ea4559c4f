"""`python -m cronwell` is `cronwell`."""

from __future__ import annotations

from cronwell.cli.main import run

if __name__ == "__main__":
    run()
