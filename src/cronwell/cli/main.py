"""The command line's front door: `cronwell` and `python -m cronwell` start here."""

from __future__ import annotations

import sys
from typing import NoReturn


def run() -> NoReturn:
    """Refuse every command, with a reason, until the first one exists."""
    sys.exit("cronwell: this build has no commands yet")
