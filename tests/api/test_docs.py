"""The interactive documentation works without the internet."""

from __future__ import annotations

import re

from tests.api.rig import Rig


async def test_the_root_leads_to_the_documentation(rig: Rig) -> None:
    reply = await rig.caller.get("/")
    assert (reply.status, reply.headers["Location"]) == (307, "docs")


async def test_the_page_asks_nothing_of_other_hosts_and_all_it_asks_for_is_there(rig: Rig) -> None:
    page = (await rig.caller.get("/docs")).body.decode()
    assert "://" not in page.replace('window.location.protocol + "//"', "")
    wanted = re.findall(r"(?:src|href)=\"([^\"]+)\"|url: '([^']+)'", page)
    addresses = {first or second for first, second in wanted}
    assert addresses >= {
        "docs/static/swagger-ui-bundle.js",
        "docs/static/swagger-ui.css",
        "docs/openapi.json",
    }
    for address in addresses:
        assert (await rig.caller.get(f"/{address}")).status == 200, address


async def test_the_page_gets_a_document_that_its_version_of_swagger_ui_reads(rig: Rig) -> None:
    document = (await rig.caller.get("/docs/openapi.json")).json
    assert document["openapi"] == "3.0.3"
    text = (await rig.caller.get("/docs/openapi.json")).body.decode()
    for newer in ('"type":"null"', '"const"', '"patternProperties"', '"propertyNames"', '"examples":['):
        assert newer not in text
    headers = document["components"]["schemas"]["HttpTarget"]["properties"]["headers"]
    text, secret = headers["additionalProperties"]["oneOf"]
    assert (text["type"], secret) == ("string", {"$ref": "#/components/schemas/SecretRef"})
    assert document["components"]["schemas"]["JobSpec"]["properties"]["description"]["nullable"] is True


async def test_files_outside_the_bundle_are_not_served(rig: Rig) -> None:
    for path in ("/docs/static/../../../etc/passwd", "/docs/static/..%2f..%2fetc%2fpasswd", "/docs/static/"):
        assert (await rig.caller.get(path)).status == 404
