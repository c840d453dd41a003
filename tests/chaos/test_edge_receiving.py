"""What a receiving node costs: `scripts/bench edge-chaos` has the figures of 200 devices on a quiet machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headwater_lab.edge_chaos.receiving import measure

MOST_MB = 128


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_receiving_node_with_tls_needs_less_than_128_mb(tmp_path: Path) -> None:
    found = measure(tmp_path, devices=40, each=20, starts=1)
    figures = found["figures"]
    assert found["messages"] == 800
    assert 20 < figures["receiving/rss_mb"] <= figures["receiving/peak_mb"] <= MOST_MB
    assert 0 < figures["receiving/listens_ms"] <= figures["receiving/start_ms"] < 20_000
