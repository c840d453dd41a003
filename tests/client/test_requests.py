"""Subscribing, and subscribing again when the server has lost the session."""

from __future__ import annotations

import asyncio
import logging

import pytest

from headwater.client import Client, Properties, Rejected
from headwater.client.publications import MOST_REQUESTS, Publications
from headwater.client.requests import Requests
from headwater.wire import reasons
from headwater.wire.encode import encode
from headwater.wire.packets import (
    V5,
    Connack,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)
from tests.client.scripted import SOON, Peer, Scripted, run, until

PRESENT = Connack(session_present=True)


async def grant(peer: Peer, *granted: int) -> Subscribe:
    subscribe = await peer.receive(Subscribe)
    peer.send(Suback(subscribe.packet_id, list(granted) or [each.qos for each in subscribe.requests]))
    return subscribe


def test_reasons_of_subscribe_and_unsubscribe() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        subscribe = await grant(peer, 1, reasons.NOT_AUTHORIZED)
        assert [request.filter for request in subscribe.requests] == ["a", "b"]
        unsubscribe = await peer.receive(Unsubscribe)
        peer.send(Unsuback(unsubscribe.packet_id, [reasons.NO_SUBSCRIPTION_EXISTED]))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            assert await client.subscribe(["a", "b"], qos=1) == [1, reasons.NOT_AUTHORIZED]
            assert await client.unsubscribe("c") == [reasons.NO_SUBSCRIPTION_EXISTED]

    run(scenario())


def test_what_was_granted_is_asked_for_again_in_a_new_session() -> None:
    """With the options and properties of each; not what was refused or given up. Before our messages, so that we get
    those that are for ourselves."""
    request = SubscribeRequest("b", 2, True, True, 1)
    identifier = Properties(subscription_identifiers=[7])

    async def first(peer: Peer) -> None:
        await peer.accept()
        await grant(peer, 1, reasons.NOT_AUTHORIZED, 1)
        await grant(peer, 2)
        await grant(peer, 0)
        unsubscribe = await peer.receive(Unsubscribe)
        peer.send(Unsuback(unsubscribe.packet_id, [0]))
        await may_cut.wait()
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept()
        plain = await grant(peer)
        assert (plain.requests, plain.properties) == ([SubscribeRequest("a", 1)], None)
        identified = await grant(peer)
        assert identified.requests == [request, SubscribeRequest("d", 0)]
        assert identified.properties == identifier
        later = await peer.receive(Publish)
        assert later.payload == b"later"
        peer.send(Puback(later.packet_id))
        await peer.goodbye()

    may_cut = asyncio.Event()

    async def scenario() -> None:
        async with Scripted(first, second) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            await client.subscribe(["a", "refused", "c"], qos=1)
            await client.subscribe([request], properties=identifier)
            await client.subscribe("d", properties=identifier)
            await client.unsubscribe("c")
            may_cut.set()
            await until(lambda: not client.is_connected)
            await client.publish("a", b"later", qos=1)

    run(scenario())


def test_a_session_that_lives_on_keeps_its_subscriptions() -> None:
    async def first(peer: Peer) -> None:
        await peer.accept()
        await grant(peer, 0)
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept(PRESENT)
        peer.send(Publish("a", b""))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(first, second) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            await client.subscribe("a")
            await anext(client.messages)

    run(scenario())


def test_subscriptions_that_were_asked_for_but_not_granted_before_the_next_loss() -> None:
    """The third connection finds the session of the second, which may not have seen the SUBSCRIBE."""

    async def first(peer: Peer) -> None:
        await peer.accept()
        await grant(peer, 0)
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept()
        await peer.receive(Subscribe)
        peer.cut()

    async def third(peer: Peer) -> None:
        await peer.accept(PRESENT)
        await grant(peer, 0)
        await has_suback(peer)
        peer.cut()

    async def fourth(peer: Peer) -> None:
        await peer.accept(PRESENT)
        peer.send(Publish("a", b"end"))
        await peer.goodbye()

    async def has_suback(peer: Peer) -> None:
        peer.send(Publish("a", b"behind it"))
        await seen.wait()

    seen = asyncio.Event()

    async def scenario() -> None:
        scripts = [first, second, third, fourth]
        async with Scripted(*scripts) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            await client.subscribe("a")
            assert (await anext(client.messages)).payload == b"behind it"
            seen.set()
            assert (await anext(client.messages)).payload == b"end"

    run(scenario())


def test_a_subscription_that_is_no_longer_granted_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def first(peer: Peer) -> None:
        await peer.accept()
        await grant(peer, 0)
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept()
        await grant(peer, reasons.NOT_AUTHORIZED)
        peer.send(Publish("a", b""))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(first, second) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            await client.subscribe("secret/#")
            await anext(client.messages)

    with caplog.at_level(logging.WARNING, "headwater.client"):
        run(scenario())
    assert "the server no longer subscribes us to secret/#: not authorized" in caplog.text


def test_many_subscriptions_are_asked_for_in_packets_that_the_server_takes() -> None:
    filters = [f"filter/{number}" for number in range(100)]
    limits = Connack(properties=Properties(maximum_packet_size=300))

    async def first(peer: Peer) -> None:
        await peer.accept()
        for _ in range(2):
            await grant(peer)
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept(limits)
        asked: list[str] = []
        while len(asked) < len(filters):
            packet = await grant(peer)
            assert len(encode(packet, V5)) <= 300
            asked += [request.filter for request in packet.requests]
        assert asked == filters
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(first, second) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            await client.subscribe(filters[:50])
            await client.subscribe(filters[50:])
            await until(lambda: client.server.maximum_packet_size == 300)

    run(scenario())


def test_packet_ids_of_requests_and_messages_do_not_meet() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        used = set()
        for _ in range(3):
            used.add((await peer.receive(Publish)).packet_id)
            used.add((await peer.receive(Subscribe)).packet_id)
        assert len(used) == 6

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, reconnect=None) as client:
            work = []
            for _ in range(3):
                work += [client.publish("a", b"", qos=1), client.subscribe("b")]
            await asyncio.gather(*work, return_exceptions=True)

    run(scenario())


def test_packet_ids_in_use_are_passed_over_and_used_again_later() -> None:
    async def scenario() -> None:
        publications = Publications(V5)
        requests = Requests(publications.reserve_id, publications.give_back_id)
        lasting, _ = requests.open(Suback)
        for _ in range(65534):
            packet_id, _ = requests.open(Suback)
            assert packet_id != lasting
            requests.answered(Suback(packet_id, [0]))
        assert lasting == 1
        assert requests.open(Suback)[0] == 2
        requests.detach()
        assert len(requests) == 0
        for _ in range(MOST_REQUESTS):
            requests.open(Suback)
        with pytest.raises(Rejected, match="requests are under way"):
            requests.open(Suback)

    run(scenario())
