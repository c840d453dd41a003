"""Advice on its way to a real node: by MQTT and by REST, with the right to it and without."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater.client import SyncClient
from headwater.pipeline.operations.advice import Basis, Proposal, Row, row_of
from headwater.pipeline.operations.sender import NotAllowed, Sender
from headwater.store.reader import StoreReader
from tests.node.access.arriving import rules_file, users_file
from tests.node.delivery.node import Node, running

TOKEN = "0123456789abcdef-operator"
GROUP = "$share/g/t"
RULES = "user pipeline\ntopic write $headwater/advice/#\nuser bob\ntopic readwrite #\n"


def row(number: int) -> Row:
    basis = Basis({"one": number}, datetime.fromtimestamp(time.time(), UTC))
    return row_of(Proposal("weights", GROUP, {"a": 2.0, "b": 0.5}, "why"), basis, 600.0)


def counts(node: Node) -> dict[str, int]:
    advising = node.broker.server.advising
    assert advising is not None
    return advising.counts


def test_by_mqtt(tmp_path: Path) -> None:
    access = {
        "password_file": users_file(tmp_path, pipeline="secret", bob="secret"),
        "acl_file": rules_file(tmp_path, RULES),
    }
    with running(access=access, advice={"enabled": True}) as node:
        here = {"host": "127.0.0.1", "port": node.broker.port, "password": "secret"}
        rows = [row(7)]
        for _ in range(2):  # the batch is done twice
            with SyncClient(**here, username="pipeline") as client:  # type: ignore[arg-type]
                assert Sender.by_mqtt(client).send(rows) == 1
        assert counts(node) == {"used": 1, "bad": 0, "old": 1, "expired": 0}
        [advice] = node.broker.advice()
        assert (advice.subject, advice.number, advice.weights) == (GROUP, 7, {"a": 2.0, "b": 0.5})
        kept = node.broker.server.router.retained.match("$headwater/#", 0.0)
        assert 590 < kept[0].expires_at - time.monotonic() <= 600, "it does not stay for longer than it counts"
        with SyncClient(**here, username="bob") as client, pytest.raises(NotAllowed, match="rule of access"):  # type: ignore[arg-type]
            Sender.by_mqtt(client).send([row(8)])
        assert counts(node)["used"] == 1


def test_by_rest() -> None:
    with running(rest={"token": TOKEN}, advice={"enabled": True}) as node:
        sender = Sender.by_rest(StoreReader(node.url, token=TOKEN))
        rows = [row(7)]
        assert sender.send(rows) == sender.send(rows) == 1
        assert counts(node) == {"used": 1, "bad": 0, "old": 1, "expired": 0}
        with pytest.raises(NotAllowed, match=r"rest\.token"):
            Sender.by_rest(StoreReader(node.url)).send([row(8)])
        assert [each.number for each in node.broker.advice()] == [7]
