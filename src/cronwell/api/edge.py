"""The outermost layer of each request: its id, its path, its metrics, and an answer to what nobody foresaw.

Pure ASGI and thin, since each request passes through it.

Paths are routed segment by segment as they were sent: a job's name may hold a slash, sent as %2F, which must not
become a slash before routing. So an encoded slash, and with it an encoded percent sign, stays encoded until the
`segment` convertor hands the parameter to its route.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import unquote
from uuid import uuid4

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cronwell import errors, telemetry
from cronwell.api import problems
from cronwell.api.auth import WATCHER, Authenticator, is_callback, is_open
from cronwell.api.callers import CALLBACK, CALLER
from cronwell.api.rates import Rates, refused
from cronwell.model.access import Caller
from cronwell.model.callback import PATH
from cronwell.runtime.acting import Actor, act_as, act_for

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_KNOWN_METHODS = _SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_KEPT_ENCODED = re.compile(rb"%2f|%25", re.IGNORECASE)
_CLIENT_GONE = 499
# What stops a key that floods us is let in whatever it floods us with.
_REVOKES = re.compile(r"/v1/keys/[^/]+/revoke")


class SegmentConvertor(Convertor[str]):
    """One segment of a path, whatever it holds."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return value.replace("%2F", "/").replace("%25", "%")

    def to_string(self, value: str) -> str:
        return value.replace("%", "%25").replace("/", "%2F")


register_url_convertor("segment", SegmentConvertor())


class Edge:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator | None) -> None:
        self._app = app
        self._authenticator = authenticator
        self._rates = Rates()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        # A request that came while another was under way on its connection begins with what that one had.
        act_for(None)
        act_as(None)
        method = scope["method"]
        request_id = _request_id(scope)
        telemetry.request_began(request_id)
        scope[problems.REQUEST_ID] = request_id
        status = 0

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        if method == "HEAD":
            # Whatever can be got can be asked for its headers; the server leaves the body out.
            scope = {**scope, "method": "GET"}
        try:
            await self._admit(scope, receive, send_marked)
        except ClientDisconnect:
            status = _CLIENT_GONE
        except Exception as error:  # noqa: BLE001 - the last stop: whatever it is, it is logged and answered
            # Not the address of a callback, which is all that it takes to call back.
            path = PATH if is_callback(scope["path"]) else scope["path"]
            telemetry.request_failed(method=method, path=path, error=error)
            if not status:
                await problems.unexpected(scope)(scope, receive, send_marked)
        finally:
            route = scope.get("route")
            telemetry.request_answered(
                method=method if method in _KNOWN_METHODS else "other",
                route=getattr(route, "path_format", None) or "none",
                status=status or _CLIENT_GONE,
                took=timedelta(seconds=time.perf_counter() - began),
            )

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse what no route could make sense of."""
        raw: bytes = scope["raw_path"]
        if b"%00" in raw or b"%00" in scope["query_string"]:
            refused = problems.document(
                400,
                kind="malformed",
                title="The request is malformed",
                detail="nothing here is named with a null character; leave %00 out of the address",
                scope=scope,
            )
            await problems.answer(refused)(scope, receive, send)
            return
        if scope["method"] not in _SAFE_METHODS and _is_cross_site(scope):
            refused = problems.document(
                403,
                kind="cross-site",
                title="Refused for coming from another site",
                detail="a browser sent this on behalf of another site's page, which may not change anything here",
                scope=scope,
            )
            await problems.answer(refused)(scope, receive, send)
            return
        if _KEPT_ENCODED.search(raw):
            scope["path"] = "/".join(
                unquote(segment).replace("%", "%25").replace("/", "%2F")
                for segment in raw.decode("ascii", "replace").split("/")
            )
        if not is_open(scope["path"]):
            try:
                scope[CALLER] = caller = await self._caller(scope)
                path = scope["path"]
                is_exempt = _REVOKES.fullmatch(path) is not None
                limits = {} if is_exempt else self._rates.admit(caller, is_callback=is_callback(path))
            except (errors.UserError, errors.StoreUnavailable) as error:
                await problems.answer(problems.told(error, scope), _advice(error))(scope, receive, send)
                return
            send = _adding(send, limits) if limits else send
        await self._app(scope, receive, send)

    async def _caller(self, scope: Scope) -> Caller:
        """Who sends the request, for whose tenant everything is done from here on."""
        if self._authenticator is None:
            return WATCHER
        if is_callback(scope["path"]):
            caller, scope[CALLBACK] = await self._authenticator.called_back(scope["path"])
        else:
            caller = await self._authenticator.caller(scope)
        act_for(caller.tenant_id)
        source = scope["client"][0] if scope.get("client") else ""
        act_as(Actor(caller.name, source, scope[problems.REQUEST_ID]))
        telemetry.request_admitted(caller.name)
        return caller


def _advice(error: errors.CronwellError) -> Mapping[str, str]:
    """The headers that say what to do about a refusal."""
    if isinstance(error, errors.Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    return refused(error) if isinstance(error, errors.TooManyRequests) else {}


def _adding(send: Send, headers: Mapping[str, str]) -> Send:
    added = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *added]
        await send(message)

    return send_more


def _request_id(scope: Scope) -> str:
    """The caller's X-Request-Id where it is fit for a log, or a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            given: bytes = value
            return given.decode()
    return uuid4().hex


def _is_cross_site(scope: Scope) -> bool:
    """Tell whether a browser says that a page of another site sends this.

    The API of a laptop asks for no key, and any page in its browser can send plain POSTs to it.
    """
    return any(name == b"sec-fetch-site" and value == b"cross-site" for name, value in scope["headers"])
