"""Deliveries as they are written: what makes two of them go to one host."""

from __future__ import annotations

import pytest

from cronwell.targets.delivery import _letterhead


@pytest.mark.parametrize("url", ["https://Example.COM/run", "HTTPS://example.com:443/other?a=B"])
def test_a_host_is_one_however_its_name_is_written(url: str) -> None:
    assert _letterhead(url, "POST", ()).origin == _letterhead("https://example.com/run", "POST", ()).origin


def test_what_is_asked_for_is_sent_as_it_is_written() -> None:
    assert _letterhead("https://Example.COM/Run?a=B", "POST", ()).head.startswith(
        b"POST /Run?a=B HTTP/1.1\r\n"
    )
