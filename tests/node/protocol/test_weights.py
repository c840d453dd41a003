"""Weights of members, by patterns of client ids."""

from __future__ import annotations

import pytest

from headwater.node.config import Config
from headwater.node.protocol.weights import Weights
from headwater.session.outbound import Outbound
from headwater.session.session import Session
from headwater.session.waiting import DROP_NEWEST, Budget
from headwater.wire.packets import Publish
from tests.node.memory import MemoryBroker
from tests.node.protocol.test_server import payloads, subscribed


def session(client_id: str) -> Session:
    return Session(client_id, Outbound(Budget(1000), 10, 1000, DROP_NEWEST))


@pytest.mark.parametrize(
    ("client_id", "weight"),
    [
        ("big-1", 10),
        ("big-", 10),
        ("Big-1", 1),
        ("xbig-1", 1),
        ("big-7x", 10),
        ("w3", 5),
        ("w", 1),
        ("w33", 1),
        ("", 1),
    ],
)
def test_the_first_pattern_that_matches_counts(client_id: str, weight: int) -> None:
    weights = Weights({"big-*": 10, "w[0-9]": 5, "big-7?": 3})
    assert weights.of(session(client_id)) == weight
    assert Weights({}).of(session(client_id)) == 1


def test_a_member_gets_its_weight_when_it_joins() -> None:
    settings = Config(sys_interval=0, shared_dispatcher="weighted_round_robin", shared_weights={"big-*": 3})
    broker = MemoryBroker(settings)
    big, small = (subscribed(broker, name, "$share/g/t") for name in ("big-1", "small"))
    broker.client("p").send(*[Publish("t", b"x")] * 40)
    assert (len(payloads(big)), len(payloads(small))) == (30, 10)
