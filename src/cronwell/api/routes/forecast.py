"""The route of the forecast."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from cronwell.api import openapi, parameters
from cronwell.api.answers import json_answer
from cronwell.api.services import TENANT, Given
from cronwell.control.forecast import ForecastView

router = APIRouter(tags=["schedules"], dependencies=parameters.STRICT, default_response_class=Response)


@router.get("/v1/forecast", responses=openapi.answers({200: ForecastView}, 400))
async def get_forecast(services: Given) -> Response:
    """Show how many fires each minute of the next day has, over all jobs.

    Of more than 20,000 jobs a sample is taken and scaled up. The answer is up to a minute old.
    """
    return json_answer(await services.forecast.forecast(TENANT))
