"""What the client does when a server is slow, wrong or strict, shown with a server that follows a script."""

from __future__ import annotations

import asyncio
import logging

import pytest

from headwater.client import V311, Client, ConnectError, Disconnected, Properties
from headwater.wire import reasons
from headwater.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Publish,
)
from tests.brokers import free_port
from tests.client.scripted import Peer, Scripted, run


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
            properties=Properties(session_expiry_interval=9, receive_maximum=3, user_properties=[("a", "b")]),
        )
        assert await peer.goodbye() == Disconnect()

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
                receive_maximum=3,
                properties=Properties(user_properties=[("a", "b")]),
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
        async with Scripted(script, version=version) as port:
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
        async with Scripted(script) as port, Client("127.0.0.1", port, reconnect=None) as client:
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


def test_a_topic_alias_is_resolved() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        alias = Properties(topic_alias=1)
        peer.send(Publish("first", b"", properties=alias), Publish("", b"", properties=alias))
        peer.send(Publish("second", b"", properties=alias), Publish("", b"", properties=alias))
        await peer.goodbye()

    async def scenario() -> None:
        properties = Properties(topic_alias_maximum=1)
        async with Scripted(script) as port, Client("127.0.0.1", port, properties=properties) as client:
            topics = [(await anext(client.messages)).topic for _ in range(4)]
            assert topics == ["first", "first", "second", "second"]

    run(scenario())


def test_the_log_shows_packets_but_no_passwords(caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, username="me", password="secret"):
            pass

    with caplog.at_level(logging.DEBUG, "headwater.client"):
        run(scenario())
    lines = [record.getMessage() for record in caplog.records if record.name == "headwater.client"]
    assert lines == [
        "sending CONNECT client_id='' version=5 keep_alive=60 username='me' password=… "
        "properties=(session_expiry_interval=300 receive_maximum=100)",
        "received CONNACK reason=0",
        "sending DISCONNECT reason=0 properties=(session_expiry_interval=0)",
    ]
