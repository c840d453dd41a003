"""What the client does when a server is slow, wrong or strict, shown with a server that follows a script."""

from __future__ import annotations

import asyncio
import logging

import pytest

from headwater.client import V311, Client, ConnectError, Disconnected, Properties, Publish, Rejected
from headwater.wire import reasons
from headwater.wire.errors import LocalProtocolError
from headwater.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from tests.brokers import free_port
from tests.client.scripted import Peer, Scripted, run


async def goodbye(peer: Peer) -> None:
    await peer.receive(Disconnect)
    assert await peer.next_packet() is None


def test_connect_says_all_that_was_asked_for() -> None:
    async def script(peer: Peer) -> None:
        connect = await peer.accept()
        assert connect == Connect(
            client_id="me",
            version=5,
            clean_start=False,
            keep_alive=7,
            username="user",
            password=b"secret",
            properties=Properties(session_expiry_interval=9, receive_maximum=3),
        )
        await goodbye(peer)

    async def scenario() -> None:
        async with (
            Scripted(script) as port,
            Client(
                port=port,
                client_id="me",
                clean_start=False,
                keep_alive=7,
                username="user",
                password="secret",
                session_expiry=9,
                properties=Properties(receive_maximum=3),
            ),
        ):
            pass

    run(scenario())


def test_nobody_listens() -> None:
    async def scenario() -> None:
        with pytest.raises(ConnectError, match="nobody listens there") as raised:
            await Client(port=free_port()).connect()
        assert raised.value.reason is None

    run(scenario())


def test_a_server_that_does_not_answer() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive(Connect)
        assert await peer.next_packet() is None

    async def scenario() -> None:
        async with Scripted(script) as port:
            with pytest.raises(ConnectError, match=r"did not answer within 0\.1 seconds"):
                await Client("127.0.0.1", port, timeout=0.1).connect()

    run(scenario())


@pytest.mark.parametrize(
    ("version", "connack", "reason", "words"),
    [
        (V311, Connack(reason=4), reasons.BAD_USER_NAME_OR_PASSWORD, "bad user name or password$"),
        (5, Connack(reason=0x87), reasons.NOT_AUTHORIZED, "not authorized$"),
        (
            5,
            Connack(reason=0x9C, properties=Properties(server_reference="b.example", reason_string="full")),
            reasons.USE_ANOTHER_SERVER,
            r"use another server \(full\); the server to use is b.example",
        ),
    ],
)
def test_a_server_that_refuses(version: int, connack: Connack, reason: int, words: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept(connack)

    async def scenario() -> None:
        async with Scripted(script, version) as port:
            with pytest.raises(ConnectError, match=words) as raised:
                await Client("127.0.0.1", port, version=version).connect()
            assert raised.value.reason == reason

    run(scenario())


def test_a_server_that_hangs_up_instead_of_answering() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive(Connect)

    async def scenario() -> None:
        async with Scripted(script) as port:
            with pytest.raises(ConnectError, match="the connection was lost"):
                await Client("127.0.0.1", port).connect()

    run(scenario())


def test_who_waits_gets_to_know_that_the_connection_is_lost() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept(Connack(properties=Properties(receive_maximum=1)))
        await peer.receive(Publish)
        peer.send(Disconnect(reasons.SERVER_SHUTTING_DOWN, Properties(reason_string="maintenance")))

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            waiting = [
                client.publish("a", b"1", qos=1),
                client.publish("a", b"2", qos=2),  # has to wait for its turn
                anext(client.messages),
            ]
            results = await asyncio.gather(*waiting, return_exceptions=True)
            for result in results:
                assert isinstance(result, Disconnected)
                assert str(result) == "the server ended the connection: server shutting down (maintenance)"
                assert result.reason == reasons.SERVER_SHUTTING_DOWN

    run(scenario())


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (Connack(), reasons.PROTOCOL_ERROR),
        (Publish("", b"", properties=Properties(topic_alias=1)), reasons.TOPIC_ALIAS_INVALID),
        (Publish("a", b"", properties=Properties(topic_alias=3)), reasons.TOPIC_ALIAS_INVALID),
    ],
    ids=["second CONNACK", "unknown alias", "alias above the maximum"],
)
def test_a_server_that_breaks_the_protocol_is_told_and_left(packet: Connack | Publish, reason: int) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(packet)
        assert (await peer.receive(Disconnect)).reason == reason
        assert await peer.next_packet() is None

    async def scenario() -> None:
        properties = Properties(topic_alias_maximum=2)
        async with Scripted(script) as port, Client("127.0.0.1", port, properties=properties) as client:
            with pytest.raises(Disconnected, match="broke the protocol") as raised:
                await anext(client.messages)
            assert raised.value.reason == reason

    run(scenario())


def test_bytes_that_are_no_packet() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.writer.write(b"\xff\xff\xff\xff\xff")
        assert (await peer.receive(Disconnect)).reason == reasons.MALFORMED_PACKET

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            with pytest.raises(Disconnected, match="broke the protocol"):
                await anext(client.messages)

    run(scenario())


def test_more_messages_than_our_receive_maximum() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*(Publish("a", b"", 1, packet_id=number) for number in (1, 2, 3)))
        assert (await peer.receive(Disconnect)).reason == reasons.RECEIVE_MAXIMUM_EXCEEDED

    async def scenario() -> None:
        properties = Properties(receive_maximum=2)
        async with Scripted(script) as port, Client("127.0.0.1", port, properties=properties) as client:
            while len(client.messages) < 3:  # two messages, and the end
                await asyncio.sleep(0)
            assert [(await anext(client.messages)).packet_id for _ in range(2)] == [1, 2]
            with pytest.raises(Disconnected):
                await anext(client.messages)

    run(scenario())


def test_the_servers_receive_maximum_is_kept() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept(Connack(properties=Properties(receive_maximum=2)))
        first, second = await peer.receive(Publish), await peer.receive(Publish)
        subscribe = await peer.receive(Subscribe)  # asked for after the third message, but not held back
        peer.send(Suback(subscribe.packet_id, [0]), Puback(first.packet_id))
        third = await peer.receive(Publish)
        assert [first.payload, second.payload, third.payload] == [b"0", b"1", b"2"]
        peer.send(Puback(second.packet_id), Puback(third.packet_id))
        await goodbye(peer)

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            publications = [client.publish("a", str(number), qos=1) for number in range(3)]
            await asyncio.gather(*publications, client.subscribe("b"))

    run(scenario())


def test_messages_are_acknowledged_when_they_are_taken() -> None:
    acknowledged: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"1", 1, packet_id=1), Publish("a", b"2", 1, packet_id=2))
        peer.send(Suback((await peer.receive(Subscribe)).packet_id, [0]))
        acknowledged.append((await peer.receive(Puback)).packet_id)
        await goodbye(peer)  # and nothing else before

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            await client.subscribe("b")
            assert len(client.messages) == 2
            assert acknowledged == []
            await anext(client.messages)

    run(scenario())
    assert acknowledged == [1]


def test_qos_2_is_delivered_once_though_sent_twice() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"once", 2, packet_id=7))
        assert (await peer.receive(Pubrec)).packet_id == 7
        peer.send(Publish("a", b"once", 2, dup=True, packet_id=7))
        assert (await peer.receive(Pubrec)).packet_id == 7
        peer.send(Pubrel(7))
        assert await peer.receive(Pubcomp) == Pubcomp(7)
        peer.send(Pubrel(7))
        assert await peer.receive(Pubcomp) == Pubcomp(7, reasons.PACKET_IDENTIFIER_NOT_FOUND)
        peer.send(Publish("a", b"new", 2, packet_id=7))
        await peer.receive(Pubrec)
        await goodbye(peer)

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            assert [(await anext(client.messages)).payload for _ in range(2)] == [b"once", b"new"]

    run(scenario())


def test_a_topic_alias_is_resolved() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        alias = Properties(topic_alias=1)
        peer.send(Publish("first", b"", properties=alias), Publish("", b"", properties=alias))
        peer.send(Publish("second", b"", properties=alias), Publish("", b"", properties=alias))
        await goodbye(peer)

    async def scenario() -> None:
        properties = Properties(topic_alias_maximum=1)
        async with Scripted(script) as port, Client("127.0.0.1", port, properties=properties) as client:
            topics = [(await anext(client.messages)).topic for _ in range(4)]
            assert topics == ["first", "first", "second", "second"]

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_the_server_rejects(qos: int) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept(Connack(properties=Properties(receive_maximum=1)))
        for _ in range(2):  # the first must give back its turn
            packet = await peer.receive(Publish)
            refusal = Puback if qos == 1 else Pubrec
            peer.send(refusal(packet.packet_id, reasons.QUOTA_EXCEEDED, Properties(reason_string="enough")))
        await goodbye(peer)

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            for _ in range(2):
                with pytest.raises(Rejected, match=r"quota exceeded \(enough\)") as raised:
                    await client.publish("a", b"", qos=qos)
                assert raised.value.reason == reasons.QUOTA_EXCEEDED

    run(scenario())


def test_what_the_server_does_not_support_is_not_sent() -> None:
    limits = Properties(maximum_qos=1, retain_available=0, maximum_packet_size=50)

    async def script(peer: Peer) -> None:
        await peer.accept(Connack(properties=limits))
        assert (await peer.receive(Publish)).payload == b"fits"
        await goodbye(peer)

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            for reason, work in (
                (reasons.QOS_NOT_SUPPORTED, client.publish("a", b"", qos=2)),
                (reasons.RETAIN_NOT_SUPPORTED, client.publish("a", b"", retain=True)),
                (reasons.PACKET_TOO_LARGE, client.publish("a", b"x" * 50, qos=1)),
            ):
                with pytest.raises(Rejected) as raised:
                    await work
                assert raised.value.reason == reason
            with pytest.raises(LocalProtocolError):
                await client.publish("a/#", b"", qos=1)
            await client.publish("a", b"fits")

    run(scenario())


def test_reasons_of_subscribe_and_unsubscribe() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        subscribe = await peer.receive(Subscribe)
        assert [request.filter for request in subscribe.requests] == ["a", "b"]
        peer.send(Suback(subscribe.packet_id, [1, reasons.NOT_AUTHORIZED]))
        unsubscribe = await peer.receive(Unsubscribe)
        peer.send(Unsuback(unsubscribe.packet_id, [reasons.NO_SUBSCRIPTION_EXISTED]))
        await goodbye(peer)

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            assert await client.subscribe(["a", "b"], qos=1) == [1, reasons.NOT_AUTHORIZED]
            assert await client.unsubscribe("c") == [reasons.NO_SUBSCRIPTION_EXISTED]

    run(scenario())


def test_the_servers_keep_alive_is_kept() -> None:
    """The client's own of a minute would send nothing before the test gives up."""

    async def script(peer: Peer) -> None:
        await peer.accept(Connack(properties=Properties(server_keep_alive=1)))
        for _ in range(2):
            await peer.receive(Pingreq)
            peer.send(Pingresp())
        peer.send(Publish("a", b"enough"))
        await goodbye(peer)

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, keep_alive=60) as client:
            await anext(client.messages)

    run(scenario())


def test_a_ping_without_an_answer_ends_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.receive(Pingreq)
        assert await peer.next_packet() is None

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, keep_alive=1) as client:
            with pytest.raises(Disconnected, match="has not answered a ping for 1 seconds"):
                await anext(client.messages)

    run(scenario())


def test_reading_stops_while_too_many_messages_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.client.inbox.PAUSE_ABOVE", 100)
    monkeypatch.setattr("headwater.client.inbox.RESUME_BELOW", 50)
    payload = bytes(10_000)
    count = 5_000

    async def script(peer: Peer) -> None:
        await peer.accept()
        for _ in range(count):
            peer.send(Publish("a", payload))
            await peer.writer.drain()
        await goodbye(peer)

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            waited = 0
            for _ in range(count):
                await anext(client.messages)
                waited = max(waited, len(client.messages))
                await asyncio.sleep(0)
            assert waited < 200

    run(scenario())


def test_the_log_shows_packets_but_no_passwords(caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await goodbye(peer)

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, username="me", password="secret"):
            pass

    with caplog.at_level(logging.DEBUG, "headwater.client"):
        run(scenario())
    lines = [record.getMessage() for record in caplog.records if record.name == "headwater.client"]
    assert lines == [
        "sending CONNECT client_id='' version=5 keep_alive=60 username='me' password=…",
        "received CONNACK reason=0",
        "sending DISCONNECT reason=0",
    ]
