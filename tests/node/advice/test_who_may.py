"""Who may give advice: whom a rule names for it, who has the token of REST or the admin API, and nobody else."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from headwater.client import Client, Rejected
from headwater.message import Message
from headwater.node.access.rules import parse_rules
from headwater.node.access.settings import AccessSettings
from headwater.node.advice.settings import AdviceSettings
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.operations.metrics import registry_of_broker
from headwater.store.reader import Refused, StoreReader
from headwater.wire.packets import Will
from tests.node.access.arriving import rules_file, users_file
from tests.node.admin.api import Api
from tests.node.advice.documents import GROUP, TOPIC, payload
from tests.node.delivery.node import running
from tests.node.memory import MemoryBroker

OPERATOR = "0123456789abcdef-operator"
RULES = """
user pipeline
topic write $headwater/advice/#
user bob
topic readwrite #
pattern readwrite %c/#
pattern readwrite %u/#
"""


def advice(number: int = 1) -> bytes:
    return payload(number, at=time.time(), weights={"one": 2.0})


def config(folder: Path, **others: object) -> Config:
    users = users_file(folder, pipeline="secret", bob="secret", **{"$headwater": "secret"})
    access = AccessSettings(password_file=users, acl_file=rules_file(folder, RULES))
    common = {"host": "127.0.0.1", "port": 0, "sys_interval": 0, "advice": AdviceSettings(enabled=True)}
    return Config(**{**common, "access": access, **others})  # type: ignore[arg-type]


def test_who_is_named_by_a_rule_may(tmp_path: Path) -> None:
    async def main() -> None:
        async with Broker(config(tmp_path)) as broker:
            async with Client("127.0.0.1", broker.port, username="pipeline", password="secret") as client:
                await client.publish(TOPIC, advice(), qos=1, retain=True)
            assert [each.subject for each in broker.advice()] == [GROUP]
            told: list[str] = []
            broker.hand_advice_to("weights", lambda subject, advice: told.append(subject))
            assert told == [GROUP]

    asyncio.run(main())


@pytest.mark.parametrize(("user", "client_id"), [("bob", "b"), ("bob", "$headwater"), ("$headwater", "x")])
def test_who_is_given_everything_or_has_a_clever_name_may_not(tmp_path: Path, user: str, client_id: str) -> None:
    async def main() -> None:
        async with Broker(config(tmp_path)) as broker:
            here = ("127.0.0.1", broker.port)
            async with Client(*here, username=user, password="secret", client_id=client_id) as client:
                with pytest.raises(Rejected):
                    await client.publish(TOPIC, advice(), qos=1, retain=True)
            assert broker.advice() == []

    asyncio.run(main())


def test_a_pattern_that_names_it_gives_it() -> None:
    rules = parse_rules("pattern write $headwater/advice/weights/%c\npattern deny $headwater/advice/weights/%u", "acl")
    assert [rule.filter for rule in rules.of("u", "c")] == [
        "$headwater/advice/weights/c",
        "$headwater/advice/weights/u",
    ]


@pytest.mark.parametrize(("user", "taken"), [("pipeline", True), ("bob", False), (None, False)])
def test_a_will_is_advice_of_who_may_give_it(tmp_path: Path, user: str | None, taken: bool) -> None:
    settings = config(tmp_path) if user else config(tmp_path, access=AccessSettings())

    async def main() -> None:
        async with Broker(settings) as broker:
            will = Will(TOPIC, advice(), 1, True)
            who = {"username": user, "password": "secret" if user else None}
            async with Client("127.0.0.1", broker.port, will=will, **who) as client:  # type: ignore[arg-type]
                await client.disconnect(0x04)  # with the will
            while broker.server.channels:
                await asyncio.sleep(0.005)
            assert [each.number for each in broker.advice()] == [1] * taken

    asyncio.run(main())


def test_by_rest_who_has_the_token_may_and_others_may_not() -> None:
    with running(rest={"token": OPERATOR}, advice={"enabled": True}) as node:
        url = node.url
        with pytest.raises(Refused, match="may not publish"):
            StoreReader(url).publish(TOPIC, advice(), retain=True)
        assert node.broker.advice() == []
        StoreReader(url, token=OPERATOR).publish(TOPIC, advice(), retain=True)
        assert [each.subject for each in node.broker.advice()] == [GROUP]


def test_by_the_admin_api_and_seen_there() -> None:
    api = Api(advice=AdviceSettings(enabled=True))
    api.broker._take_advice()
    order = {"topic": TOPIC, "payload": advice(4).decode(), "retain": True}
    assert api.call("POST", "/v1/publish", json=order).status_code == 204
    [shown] = api.get("/v1/advice")
    assert (shown["kind"], shown["subject"], shown["number"], shown["weights"]) == ("weights", GROUP, 4, {"one": 2.0})
    registry = registry_of_broker(api.broker)
    assert registry.get_sample_value("headwater_advice_total", {"outcome": "used"}) == 1.0
    assert registry.get_sample_value("headwater_advice_total", {"outcome": "bad"}) == 0.0
    assert registry.get_sample_value("headwater_advice_in_force") == 1.0


def test_without_it_there_is_nothing_to_see() -> None:
    api = Api()
    assert api.get("/v1/advice") == []
    assert registry_of_broker(api.broker).get_sample_value("headwater_advice_in_force") is None
    with pytest.raises(ValueError, match=r"advice\.enabled"):
        api.broker.hand_advice_to("split", lambda subject, advice: None)


def test_it_outlives_the_process(tmp_path: Path) -> None:
    settings = config(tmp_path, access=AccessSettings(), data_dir=str(tmp_path / "data"))

    async def begin() -> None:
        async with Broker(settings) as broker:
            broker.publish(Message(TOPIC, advice(7), 1, True))
            await broker.committed()

    async def go_on() -> None:
        async with Broker(settings) as broker:
            assert [(each.subject, each.number) for each in broker.advice()] == [(GROUP, 7)]
            broker.publish(Message(TOPIC, b"", 1, True))
            assert broker.advice() == []
            await broker.committed()

    async def end() -> None:
        async with Broker(settings) as broker:
            assert broker.advice() == []

    for each in (begin, go_on, end):
        asyncio.run(each())


def test_off_by_default(tmp_path: Path) -> None:
    settings = config(tmp_path, access=AccessSettings(), advice=AdviceSettings())

    async def main() -> None:
        async with Broker(settings) as broker:
            broker.publish(Message(TOPIC, advice(), 1, True))
            assert broker.advice() == []
            assert broker.server.advising is None
            assert not broker.hooks.listens("retain_message")

    asyncio.run(main())


def test_bridges_may_carry_it() -> None:
    """What they carry was settled by who wrote the settings."""
    access = MemoryBroker().server.access
    assert access.rights.may_steer(None, "$bridge/cloud")
    assert not access.rights.may_steer(None, "cloud")


def test_topics_are_one_level() -> None:
    assert f"$headwater/advice/weights/{quote(GROUP, safe='')}" == TOPIC
