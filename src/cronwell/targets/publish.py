"""Publish a message to a broker; the attempt has succeeded when the broker has acknowledged it.

What is promised is at least once. An attempt whose acknowledgement did not come has failed although the message may be there,
and the next one publishes another message with the same execution id: a consumer that keeps the ids of what it has done does
each execution once.
"""

from __future__ import annotations

from collections.abc import Mapping

from cronwell.config import PublishSettings, env_name
from cronwell.model.execution import Result
from cronwell.targets import stopping, wire
from cronwell.targets.brokers import name_brokers
from cronwell.targets.brokers.port import Message
from cronwell.targets.exchange import Trouble
from cronwell.targets.output import clip
from cronwell.targets.port import Call, Outcome, Signals


class PublishRunner:
    """Carry out publish attempts, by brokers whose addresses the installation gives by name."""

    def __init__(self, addresses: Mapping[str, str], settings: PublishSettings) -> None:
        self._brokers = name_brokers(addresses, settings)

    async def run(self, call: Call, signals: Signals) -> Outcome:
        """Publish one message and say how that ended."""
        if (stopped := stopping.stopped_before_start(call, signals)) is not None:
            return stopped
        interrupt = stopping.Interrupt(signals)
        outcome: Outcome | None = None
        with interrupt:
            try:
                outcome = await self._publish(call)
            except Exception as error:  # noqa: BLE001  the port promises an outcome for whatever a client raises
                outcome = _describe(error)
        return stopping.settled(interrupt, outcome, call)

    async def close(self) -> None:
        """Close every connection."""
        for broker in self._brokers.values():
            await broker.close()

    async def _publish(self, call: Call) -> Outcome:
        target = call.target.publish
        assert target is not None
        broker = self._brokers.get(target.broker)
        if broker is None:
            said = f"this worker knows no broker {target.broker}: set {env_name(f'brokers.{target.broker}')} to its address"
            raise Trouble("no_broker", f"{said} where the worker starts, and restart it")
        return Outcome(Result.SUCCEEDED, output=await broker.publish(target, compose(call)))


def compose(call: Call) -> Message:
    """The message of an attempt."""
    execution = call.execution_id
    return Message(
        execution,
        (
            ("execution", execution.encode()),
            ("job", call.job_name.encode()),
            ("slot", wire.write_moment(call.slot).encode()),
            ("attempt", b"%d" % call.attempt),
            ("fence", b"%d" % call.fence),
            ("payload", wire.write_json(call.payload)),
            ("traceparent", wire.write_traceparent(execution, call.attempt).encode()),
        ),
    )


def _describe(error: Exception) -> Outcome:
    kind, is_retryable = (
        (error.kind, error.is_retryable) if isinstance(error, Trouble) else ("internal", True)
    )
    said = str(error) if isinstance(error, Trouble) else f"{type(error).__name__}: {error}"
    return Outcome(Result.FAILED, error=clip(said, 4000)[0], error_kind=kind, is_retryable=is_retryable)
