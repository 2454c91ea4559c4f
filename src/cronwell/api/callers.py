"""What each route takes of its caller: one scope. A route without one is answered to nobody but by the open paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Path, Request

from cronwell.model.access import Caller, Scope
from cronwell.model.callback import Token
from cronwell.runtime.acting import act_for

CALLER = "cronwell.caller"
CALLBACK = "cronwell.callback"


def _with(scope: Scope, *, acts_for_all: bool = False) -> Callable[[Request], Awaitable[Caller]]:
    async def admitted(request: Request) -> Caller:
        caller: Caller = request.scope[CALLER]
        caller.require(scope)
        if acts_for_all:
            act_for(None)
        return caller

    admitted.scope = scope  # type: ignore[attr-defined]  # for those who list what each route takes
    return admitted


Reader = Annotated[Caller, Depends(_with(Scope.READ))]
Writer = Annotated[Caller, Depends(_with(Scope.WRITE))]
Runner = Annotated[Caller, Depends(_with(Scope.RUN))]
Admin = Annotated[Caller, Depends(_with(Scope.ADMIN))]
OPERATOR = Depends(_with(Scope.OPERATOR, acts_for_all=True))
"""For routes of the whole installation, which do not ask what the caller's own tenant is."""
Operator = Annotated[Caller, OPERATOR]


async def _called_back(
    request: Request,
    _: Annotated[str, Path(alias="token", description="As `Cronwell-Callback` had it in the delivery.")],
) -> Token:
    token: Token = request.scope[CALLBACK]
    return token


Attempt = Annotated[Token, Depends(_called_back)]
"""For routes whose address shows who calls: the attempt that it was given to."""
