from __future__ import annotations

import pytest

from headwater.store.rest.gate import Refused
from headwater.store.rest.negotiation import takes_gzip, wanted_form

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, "json"),
        ("", "json"),
        ("  ", "json"),
        ("*/*", "json"),
        (BROWSER, "json"),
        ("text/csv", "csv"),
        ("TEXT/CSV; charset=utf-8", "csv"),
        ("text/*", "csv"),
        ("application/*", "json"),
        ("application/ndjson", "ndjson"),
        ("application/jsonl;q=0.5", "ndjson"),
        ("application/json;q=0.1, text/csv;q=0.2", "csv"),
        ("application/json;q=0, */*", "ndjson"),
        ("application/*;q=0, text/csv;q=0.001", "csv"),
        ("application/vnd.apache.arrow.stream, application/json", "json"),
        ("application/vnd.apache.arrow.stream, application/json;q=0.9", "arrow"),
        ("image/png, text/csv;q=.3", "csv"),
    ],
)
def test_accept(accept: str | None, form: str) -> None:
    assert wanted_form(None, accept) == form


@pytest.mark.parametrize(
    "accept", ["image/png", "application/json;q=0", "*/*;q=0", "json", ";;;,,,", "application/json;q=x", "text/csv;q=2"]
)
def test_nothing_that_we_have(accept: str) -> None:
    with pytest.raises(Refused) as refused:
        wanted_form(None, accept)
    assert refused.value.status == 406


def test_a_name_counts_before_accept() -> None:
    assert wanted_form("arrow", "image/png") == "arrow"


@pytest.mark.parametrize(
    ("header", "yes"),
    [
        (None, False),
        ("", False),
        ("gzip", True),
        ("GZIP", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("br", False),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=0", False),
        ("gzip;q=0, *", False),
        ("identity", False),
        ("gzip;q=nan", False),
    ],
)
def test_accept_encoding(header: str | None, yes: bool) -> None:
    assert takes_gzip(header) is yes
