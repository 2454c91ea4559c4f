"""The route of the forecast."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from cronwell.api import openapi, parameters
from cronwell.api.answers import json_answer
from cronwell.api.callers import Reader
from cronwell.api.services import Given
from cronwell.control.forecast import ForecastView

router = APIRouter(tags=["schedules"], dependencies=parameters.STRICT, default_response_class=Response)


@router.get("/v1/forecast", responses=openapi.answers({200: ForecastView}, 400))
async def get_forecast(services: Given, caller: Reader) -> Response:
    """Show how many fires each minute of the next day has, over all jobs.

    Of more than 20,000 jobs a sample is taken and scaled up. The answer is up to a minute old.
    """
    return json_answer(await services.forecast.forecast(caller.tenant_id))
