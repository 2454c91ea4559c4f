"""The interactive documentation, served from the package: no page of ours asks anything of other hosts."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from swagger_ui_bundle import swagger_ui_path  # type: ignore[import-untyped]  # static files with a path


def routes(document: dict[str, Any]) -> list[BaseRoute]:
    """The routes of the OpenAPI document and of the pages that show it."""
    openapi = orjson.dumps(document)
    for_page = orjson.dumps(lowered(document))
    # Relative addresses, so that the page works below any path of a proxy.
    page = get_swagger_ui_html(
        openapi_url="docs/openapi.json",
        title="Cronwell API",
        swagger_js_url="docs/static/swagger-ui-bundle.js",
        swagger_css_url="docs/static/swagger-ui.css",
        swagger_favicon_url="docs/static/favicon-32x32.png",
        swagger_ui_parameters={"validatorUrl": None, "tryItOutEnabled": True, "displayRequestDuration": True},
    )

    async def get_openapi(_: Request) -> Response:
        return Response(openapi, media_type="application/json")

    async def get_page_openapi(_: Request) -> Response:
        return Response(for_page, media_type="application/json")

    async def get_docs(_: Request) -> Response:
        return Response(page.body, media_type="text/html")

    async def get_root(_: Request) -> Response:
        return RedirectResponse("docs")

    return [
        Route("/openapi.json", get_openapi),
        Route("/docs", get_docs),
        Route("/docs/openapi.json", get_page_openapi),
        Mount("/docs/static", StaticFiles(directory=str(swagger_ui_path))),
        Route("/", get_root),
    ]


def lowered(document: dict[str, Any]) -> dict[str, Any]:
    """The document as OpenAPI 3.0, which is as far as the bundled Swagger UI reads."""
    return {**_lowered(document), "openapi": "3.0.3"}


def _lowered(value: Any) -> Any:
    if isinstance(value, list):
        return [_lowered(each) for each in value]
    if not isinstance(value, dict):
        return value
    made = {key: _lowered(each) for key, each in value.items() if key not in _UNKNOWN_IN_30}
    choices = made.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        others = [each for each in choices if each != {"type": "null"}]
        del made["anyOf"]
        made |= others[0] if len(others) == 1 and "$ref" not in others[0] else {"anyOf": others}
        made["nullable"] = True
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if "exclusiveMinimum" in made:
        made["minimum"] = made["exclusiveMinimum"]
        made["exclusiveMinimum"] = True
    if isinstance(value.get("examples"), list):
        made["example"] = value["examples"][0]
        del made["examples"]
    if "patternProperties" in value:
        [made["additionalProperties"]] = _lowered(value["patternProperties"]).values()
    return made


_UNKNOWN_IN_30 = frozenset({"patternProperties", "propertyNames"})
