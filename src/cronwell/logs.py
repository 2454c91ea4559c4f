"""How this process logs: one line for each event, text on a terminal and JSON elsewhere, also of what libraries say."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from cronwell.config import LogSettings

_log: structlog.stdlib.BoundLogger = structlog.get_logger("cronwell")


class _Foreign(logging.Handler):
    """Gives what libraries log the same form as our own events: one line, however long its traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            facts = {"exc_info": record.exc_info} if record.exc_info else {}
            _log.log(record.levelno, record.getMessage(), logger=record.name, **facts)
        except Exception:  # noqa: BLE001  # as logging has it: what cannot be logged does no harm
            self.handleError(record)


def configure(settings: LogSettings, *, role: str) -> None:
    """Set up logging for this process: text on a terminal, one JSON object a line elsewhere."""
    as_text = settings.format == "text" or (settings.format == "auto" and sys.stderr.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(pad_event_to=0) if as_text else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(settings.level.upper()),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(role=role)
    root = logging.getLogger()
    if not any(isinstance(handler, _Foreign) for handler in root.handlers):
        root.addHandler(_Foreign())
