"""An edge of a node whose REST is in its process, and one whose REST has a process of its own: both answer for both."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from headwater.node.delivery.gate import BrokerGate
from headwater.store.memory import MemoryStore
from tests.node.delivery.node import PATIENCE, Node, running

TOKEN = "shown by nodes to each other"
SECRET = "the secret of a cluster of nodes"


def row(node: Node, id: str, filter: str) -> dict[str, Any]:
    return {"id": id, "node": f"node-{id}", "url": node.url, "filters": [filter], "epoch": 1, "from": 1, "to": None}


def test_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = {"token": TOKEN, "peer_token": TOKEN}
    options: dict[str, Any] = {"rest": rest, "allow_anonymous": True}
    with running(store=MemoryStore("s2"), cluster={"name": "x", "secret": SECRET, "port": 0}, **options) as inside:
        monkeypatch.setattr(Node, "beside", tmp_path)
        with running(cluster={"name": "y", "secret": SECRET, "port": 0}, **options) as beside:
            assert beside.call("GET", "/v1/edge").status_code == 404
            known = {"stores": [row(beside, "s1", "plant/#"), row(inside, "s2", "barn/#")]}
            said = {id: {"node": f"node-{id}", **known} for id in ("s1", "s2")}
            monkeypatch.setattr(BrokerGate, "edge_here", lambda gate: said[gate.broker.store.id])
            for node, topic in ((beside, "plant/1"), (inside, "barn/1"), (beside, "plant/2")):
                assert node.call("POST", f"/v1/topics/{topic}", content=b"x", token=TOKEN).status_code == 201
            for node in (beside, inside):
                end = time.monotonic() + PATIENCE
                while node.status("GET", "/v1/edge") == 404:  # what it has said counts for a moment
                    assert time.monotonic() < end
                rows = node.call("GET", "/v1/messages", token=TOKEN).json()
                assert [each["topic"] for each in rows["messages"]] == ["plant/1", "barn/1", "plant/2"]
                assert [each["store"] for each in rows["messages"]] == ["s1", "s2", "s1"]
                assert rows["next"] == "s1:2,s2:1"
            sent = beside.call("GET", "/v1/messages?topic=barn/1", token=TOKEN, follow_redirects=False)
            assert sent.status_code == 307
            assert sent.headers["location"].startswith(inside.url)
