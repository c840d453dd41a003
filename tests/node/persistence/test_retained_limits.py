"""A broker that may keep less than what is on disk: nothing is deleted by a setting, and nothing that is out of date
comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headwater.message import Message
from headwater.node.access.settings import AccessSettings
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.persistence.records import RETAINED
from headwater.wire.packets import Will
from tests.node.persistence.durable import DurableBroker
from tests.node.persistence.test_journal import count, passing, publish

ALL = {"a": b"1", "b": b"22", "c": b"333"}


def limited(**settings: Any) -> Config:
    return Config(sys_interval=0, **settings)


def three_on_disk() -> DurableBroker:
    broker = DurableBroker()
    client = passing(broker)
    for topic, payload in ALL.items():
        publish(client, topic, payload, retain=True)
    broker.settle()
    return broker


def there(broker: DurableBroker) -> dict[str, bytes]:
    return {message.topic: message.payload for message in broker.server.router.retained.match("#", 0.0)}


def retain(broker: DurableBroker, topic: str, payload: bytes) -> None:
    publish(passing(broker), topic, payload, retain=True)
    broker.settle()


@pytest.mark.parametrize(
    "settings, fits",
    [({"max_retained": 2}, {"a", "b"}), ({"max_retained_bytes": 750}, {"a", "b"}), ({"max_retained": 0}, set())],
)
def test_what_does_not_fit_stays_on_disk_and_is_back_when_it_fits(settings: dict[str, int], fits: set[str]) -> None:
    broker = three_on_disk().crash(config=limited(**settings))
    assert set(there(broker)) == fits
    assert broker.recovered.left_out == 3 - len(fits)
    broker = broker.crash(config=limited())
    assert there(broker) == ALL
    assert broker.recovered.left_out == 0


def test_a_message_for_which_there_is_room_takes_the_place_of_one_on_disk_only() -> None:
    broker = three_on_disk().crash(config=limited(max_retained=2))
    retain(broker, "a", b"")
    retain(broker, "c", b"new")
    assert there(broker) == {"b": b"22", "c": b"new"}
    assert there(broker.crash(config=limited())) == {"b": b"22", "c": b"new"}


def test_a_message_for_which_there_is_none_does_so_on_disk() -> None:
    broker = three_on_disk().crash(config=limited(max_retained=2))
    retain(broker, "c", b"new")
    assert set(there(broker)) == {"a", "b"}
    assert there(broker.crash(config=limited())) == {**ALL, "c": b"new"}


def test_an_empty_message_deletes_one_on_disk_only() -> None:
    broker = three_on_disk().crash(config=limited(max_retained=2))
    retain(broker, "c", b"")
    assert there(broker.crash(config=limited())) == {"a": b"1", "b": b"22"}


def test_what_has_no_room_and_no_place_on_disk_gets_none() -> None:
    """The disk is bounded by the setting, too, but for what was there before."""
    broker = three_on_disk().crash(config=limited(max_retained=2))
    retain(broker, "new", b"x")
    assert count(broker, RETAINED) == 3
    broker = three_on_disk()
    broker.server.router.retained.max_messages = 3
    retain(broker, "new", b"x")
    retain(broker, "never there", b"")
    assert count(broker, RETAINED) == 3


def test_how_many_are_left_out_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main(messages: int, **settings: int) -> None:
        config = limited(host="127.0.0.1", port=0, data_dir=str(tmp_path / "data"), **settings)
        async with Broker(config) as broker:
            for number in range(messages):
                broker.publish(Message(f"t/{number}", b"x", 1, True))

    asyncio.run(main(5))
    caplog.clear()
    asyncio.run(main(0, max_retained=3))
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "2 of 5 retained messages" in warning
    assert "max_retained = 3" in warning
    caplog.clear()
    asyncio.run(main(0))
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_quotas_of_users_are_known_after_a_restart() -> None:
    """Of retained messages, and of wills that are retained when they come."""
    access = AccessSettings(max_retained_per_user=2)
    broker = DurableBroker(config=limited(access=access))
    for client_id, user in (("a", "u"), ("b", "v"), ("c", None)):
        client = passing(broker, client_id, username=user)
        publish(client, f"of/{client_id}", b"x", retain=True)
    passing(broker, "d", username="u", will=Will("of/d", b"gone", 1, True))
    broker.settle()
    before = broker.server.router.retained.used
    broker = broker.crash(config=limited(access=access))
    retained = broker.server.router.retained
    assert {user: share.count for user, share in retained.users.items()} == {"u": 2, "v": 1}
    assert retained.used == before + (retained.get("of/d") or Message("")).size()
    client = passing(broker, "e", username="u")
    publish(client, "one too many", b"x", retain=True)
    broker.settle()
    assert retained.get("one too many") is None
