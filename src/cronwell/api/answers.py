"""Answers of routes."""

from __future__ import annotations

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from cronwell.control.idempotency import Answered
from cronwell.control.views import JobView


def json_answer(view: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(view.model_dump_json(), status, headers, media_type="application/json")


def shown_job(job: JobView) -> Response:
    """A job, with its revision as the ETag that If-Match takes."""
    return json_answer(job, headers={"ETag": f'"{job.revision}"'})


def answered(made: Answered, where: str) -> Response:
    """The answer to a request that made something, sent as it was kept; `where` is the path that it is found below."""
    view = orjson.loads(made.body)
    headers = {"Location": f"{where}{view['id']}"}
    if where == "/v1/jobs/":
        headers["ETag"] = f'"{view["revision"]}"'
    if made.is_replay:
        headers["Idempotency-Replayed"] = "true"
    return Response(made.body, made.status, headers, media_type="application/json")
