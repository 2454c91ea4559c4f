"""`cronwell sentinel`: watch the others, and call somebody before anything is late."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from cronwell.cli.cluster import read_duration
from cronwell.cli.failures import ExitCode, Failure
from cronwell.cli.session import session


def _length(name: str, text: str) -> Any:
    return typer.Option(name, parser=read_duration, metavar="TIME", help=text, show_default=False)


Length = timedelta | None


def sentinel(
    context: typer.Context,
    once: Annotated[
        bool,
        typer.Option("--once", help="Look once and end with 0 (fine), 1 (warning) or 2 (critical)."),
    ] = False,
    webhook: Annotated[
        str | None,
        typer.Option(
            "--webhook",
            metavar="URL",
            envvar="CRONWELL_SENTINEL_WEBHOOK",
            show_envvar=False,
            help="Post what begins and what is over here, as JSON (CRONWELL_SENTINEL_WEBHOOK).",
        ),
    ] = None,
    every: Annotated[Length, _length("--every", "Look so often; by default each 5s.")] = None,
    warn_at: Annotated[
        Length,
        _length(
            "--warn-at",
            "Warn when slots are accounted for less than this ahead; by default 3/4 of the look-ahead.",
        ),
    ] = None,
    page_at: Annotated[
        Length, _length("--page-at", "Page when it is less than this; by default half of the look-ahead.")
    ] = None,
    unmarked: Annotated[
        Length,
        _length(
            "--unmarked",
            "Page when a shard was not staged for so long; by default half of the look-ahead.",
        ),
    ] = None,
    overdue: Annotated[
        Length, _length("--overdue", "Page when an execution that could start is so late; by default 30s.")
    ] = None,
    unanswered: Annotated[
        Length, _length("--unanswered", "Page when the database is silent for so long; by default 15s.")
    ] = None,
    patience: Annotated[
        Length,
        _length(
            "--patience",
            "Let there be no worker or scheduler for so long, as a restart does; by default 10s.",
        ),
    ] = None,
    repeat: Annotated[
        Length, _length("--repeat", "Page again each so long while it lasts; by default 1h.")
    ] = None,
) -> None:
    """Watch the cluster and page before anything is late. It only reads; run it apart from the others."""
    from cronwell.sentinel.judging import Limits
    from cronwell.sentinel.watching import Watch, look_once, run_sentinel

    settings = session(context).settings()
    ahead = settings.scheduler.look_ahead
    limits = Limits(
        warn_at=warn_at or max(ahead * 3 / 4, page_at or timedelta()),
        page_at=page_at or min(ahead / 2, warn_at or ahead),
        unmarked=unmarked or ahead / 2,
        overdue=overdue or timedelta(seconds=30),
        unanswered=unanswered or timedelta(seconds=15),
    )
    if limits.page_at > limits.warn_at:
        raise Failure("--page-at must not be more than --warn-at: a warning comes first", ExitCode.USAGE)
    if limits.warn_at > ahead:
        raise Failure(
            f"--warn-at and --page-at must not be more than the look-ahead, {ahead.total_seconds():g} s "
            "(CRONWELL_SCHEDULER_LOOK_AHEAD): slots are not accounted for further ahead",
            ExitCode.USAGE,
        )
    watch = Watch(
        limits,
        every=max(every or timedelta(seconds=5), timedelta(milliseconds=100)),
        patience=timedelta(seconds=10) if patience is None else patience,
        repeat=repeat or timedelta(hours=1),
        webhook=webhook,
    )
    raise typer.Exit(look_once(settings, watch) if once else run_sentinel(settings, watch))
