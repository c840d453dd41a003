"""A message at which a make ends the connection holds back no other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.wire.packets import Publish, SubscribeRequest
from headwater_lab.makes.fabric import OURS, connected, fabric
from headwater_lab.makes.nodes import MAKES
from tests.makes.conftest import there

PATIENCE = 30.0


@pytest.mark.parametrize("topic", ["poison/a.b", "poison/a b"])
@pytest.mark.parametrize("qos", [0, 1])
def test_what_nats_does_not_take_is_given_up(tmp_path: Path, qos: int, topic: str) -> None:
    nats = there(next(make for make in MAKES if make.name == "nats"))
    after = [f"poison/{number}" for number in range(20)]
    with (
        fabric(tmp_path, [nats.name, OURS]) as (home, ours),
        connected(home, "reader") as reader,
        connected(ours, "writer") as writer,
    ):
        reader.subscribe(SubscribeRequest("poison/#", 1))
        writer.publish(Publish(topic, b"", qos))
        for each in after:
            writer.publish(Publish(each, b"", 1))
        reader.until(lambda: after[-1] in {each.topic for each in reader.messages}, patience=PATIENCE)
        assert list(dict.fromkeys(each.topic for each in reader.messages)) == after
