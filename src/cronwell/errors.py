"""The whole error tree.

CronwellError
├── UserError                what a caller can mend; the API answers it with a 4xx
│   ├── Invalid              422  one or more fields are wrong; carries each of them
│   ├── Malformed            400  the request is not what the protocol allows
│   ├── Unauthorized         401  nobody knows who sends the request
│   ├── Forbidden            403  whoever sends it may not do that
│   ├── NotFound             404
│   ├── Conflict             409  the request is fine but the state of things is not
│   │   ├── NameTaken
│   │   ├── QuotaExceeded    the tenant has as much as it may have
│   │   ├── IllegalState
│   │   ├── SecretsLocked    the key that secrets are encrypted with is not there
│   │   └── KeyInUse         an Idempotency-Key came back with another request
│   ├── RevisionMismatch     412
│   ├── TooLarge             413
│   └── TooManyRequests      429  the tenant's requests come too fast
├── ConfigError              a setting is wrong; the process does not start
├── StoreUnavailable         PostgreSQL cannot be reached or gave up mid-way; nothing is known to be written
│   ├── LockedOut            PostgreSQL is there, but another transaction was in the way; nothing was written
│   └── CommitUnknown        the connection died during COMMIT; re-read before deciding anything
├── CoordinationUnavailable  the coordinator cannot be reached; nothing is known to be held
├── FenceRejected            a result came with an old fence and changed nothing
├── LeaseLost                this process no longer owns what it is about to touch
│   └── Fenced               shards that it staged have gone on to another epoch
├── SecretUnavailable        a secret that an attempt needs cannot be had; the attempt fails
└── EgressRefused            a target's address is not one that this installation may call
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One wrong field: where it is, what is wrong with it, and what would be accepted instead."""

    field: str
    message: str
    accepted: str | None = None
    column: int | None = None
    """1-based position inside the field's text, where one place in it is to blame."""

    def __str__(self) -> str:
        where = f"{self.field} (column {self.column})" if self.column is not None else self.field
        # Some messages say themselves what is accepted.
        is_new = self.accepted is not None and self.accepted not in self.message
        advice = f"; accepted: {self.accepted}" if is_new else ""
        return f"{where}: {self.message}{advice}"


class CronwellError(Exception):
    """Anything that Cronwell raises on purpose."""


class UserError(CronwellError):
    """What a caller can mend. `status` and `title` are what the HTTP interface answers."""

    status = 400
    title = "The request cannot be carried out"


class Invalid(UserError):
    """One or more fields are wrong. Nothing was stored."""

    status = 422
    title = "Some fields are not valid"

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))

    @classmethod
    def field(
        cls, field: str, message: str, *, accepted: str | None = None, column: int | None = None
    ) -> Invalid:
        """Report a single wrong field."""
        return cls([FieldProblem(field, message, accepted, column)])

    def under(self, prefix: str) -> Invalid:
        """Return the same problems with their fields placed below `prefix`."""
        return Invalid(
            [
                FieldProblem(f"{prefix}.{p.field}" if p.field else prefix, p.message, p.accepted, p.column)
                for p in self.problems
            ]
        )


class Malformed(UserError):
    status = 400
    title = "The request is malformed"


class Unauthorized(UserError):
    """Who sends the request is not known; the message says how to say it."""

    status = 401
    title = "A key is needed"


class Forbidden(UserError):
    """Whoever sends the request is known, and may not do that."""

    status = 403
    title = "Not allowed"


class NotFound(UserError):
    status = 404
    title = "Not found"


class Conflict(UserError):
    status = 409
    title = "The request conflicts with the present state"


class NameTaken(Conflict):
    title = "That name is taken"


class QuotaExceeded(Conflict):
    """The tenant has as many jobs as it may have. `names`: of several, those of the jobs for which there is no room."""

    title = "The tenant's quota is used up"

    def __init__(self, *, has: int, most: int) -> None:
        self.room = max(most - has, 0)
        self.names: frozenset[str] = frozenset()
        # Where there is room it is taken by those that came with it.
        super().__init__(
            f"your tenant has {max(has, most)} jobs and may have {most}; delete some, or ask the operator for a larger quota"
        )


class IllegalState(Conflict):
    title = "Not possible in the present state"


class SecretsLocked(Conflict):
    """The key that secrets are encrypted with is not there, or not the right one; the message says what to set."""

    title = "Secrets cannot be read or written here"


class KeyInUse(Conflict):
    title = "That Idempotency-Key belongs to another request"


class RevisionMismatch(UserError):
    status = 412
    title = "The job has changed since you read it"


class TooLarge(UserError):
    status = 413
    title = "The request is too large"


class TooManyRequests(UserError):
    """The tenant's requests come too fast; when the next one may come is told."""

    status = 429
    title = "Too many requests"

    def __init__(self, *, limit: float, retry_after: float) -> None:
        self.limit = limit
        self.retry_after = retry_after
        super().__init__(
            f"your tenant may send {limit:g} requests a second; send the next one in {retry_after:.2g} s"
        )


class ConfigError(CronwellError):
    """A setting is wrong; the message names it, its environment variable and what is accepted."""


class StoreUnavailable(CronwellError):
    """PostgreSQL cannot be reached, or the connection was lost before COMMIT was sent."""


class LockedOut(StoreUnavailable):
    """Another transaction holds what this one needs, in a circle or for longer than may be waited. Nothing was written."""


class CommitUnknown(StoreUnavailable):
    """The connection was lost during COMMIT: the write may or may not have happened. Re-read first."""


class CoordinationUnavailable(CronwellError):
    """The coordinator cannot be reached or gave up mid-way. Whatever was asked for is not held."""


class LeaseLost(CronwellError):
    """This process no longer owns what it is about to touch."""


class Fenced(LeaseLost):
    """Shards have another owner or epoch, or the database is another, than the one who stages them believed."""

    def __init__(self, shards: Iterable[int]) -> None:
        self.shards = frozenset(shards)
        super().__init__(f"shards {sorted(self.shards)} have gone on to another epoch; nothing was staged")


class SecretUnavailable(CronwellError):
    """A secret that an attempt needs cannot be had. The message names it, and never its value."""


class EgressRefused(CronwellError):
    """The address a target resolves to is not one that this installation may call."""


class FenceRejected(CronwellError):
    """A result, heartbeat or checkpoint carried an old fence and changed nothing."""

    def __init__(self, *, execution: str, held: int, current: int | None) -> None:
        self.execution = execution
        self.held = held
        self.current = current
        now = "the execution has ended" if current is None else f"the current fence is {current}"
        super().__init__(
            f"execution {execution}: fence {held} is no longer valid ({now}); "
            "another attempt owns it, so stop working on this one"
        )
