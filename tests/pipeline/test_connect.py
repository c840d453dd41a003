"""Spark Connect: a client without Java lands stores through a server that does not have our package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.bare_python import make_bare_python
from tests.pipeline.connect_server import connect_server
from tests.pipeline.landed import check_landed, run_client, served_stores


@pytest.mark.slow
def test_a_client_of_connect_lands_stores_exactly_once(tmp_path: Path) -> None:
    python = make_bare_python(tmp_path / "python")
    with served_stores() as url, connect_server(tmp_path / "connect", python) as server:
        said = run_client(server, url, tmp_path, python, {})
    check_landed(said, tmp_path)
