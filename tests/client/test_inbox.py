"""What is in memory is bounded, and what comes again after a reconnect is not delivered twice."""

from __future__ import annotations

import asyncio

import pytest

from headwater.client import V5, V311, Client
from headwater.client.conversation import WHILE_WE_WAIT
from headwater.wire.packets import Connack, Pingreq, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.client.scripted import SOON, Peer, Scripted, run, until

BOUND = 10
FLOOD = 5000
PRESENT = Connack(session_present=True)


@pytest.mark.parametrize("payload", [b"", bytes(3000)], ids=["small", "large"])
@pytest.mark.parametrize(("version", "qos"), [(V5, 0), (V311, 0), (V311, 1), (V311, 2)])
def test_reading_stops_when_as_many_wait_as_the_receive_maximum(version: int, qos: int, payload: bytes) -> None:
    """Nothing is lost, and nothing comes that was not taken for; small messages come many at a time."""

    async def script(peer: Peer) -> None:
        await peer.accept()

        async def swallow() -> None:
            while await peer.next_packet() is not None:
                pass

        swallowing = asyncio.create_task(swallow())
        for number in range(FLOOD):
            peer.send(Publish(str(number), payload, qos, packet_id=number + 1 if qos else 0))
            await peer.writer.drain()
        await swallowing

    async def scenario() -> None:
        async with (
            Scripted(script, version=version) as port,
            Client("127.0.0.1", port, version=version, receive_maximum=BOUND) as client,
        ):
            await until(lambda: len(client.messages) >= BOUND)
            await asyncio.sleep(0.05)  # in which everything would come, were it not for the bound
            most = len(client.messages)
            topics = []
            async for message in client.messages:
                topics.append(message.topic)
                most = max(most, len(client.messages) + 1)
                if len(topics) == FLOOD:
                    break
            assert topics == [str(number) for number in range(FLOOD)]
            assert most <= BOUND + 1

    run(scenario())


def test_the_window_bounds_qos_1_and_2_and_reading_goes_on() -> None:
    """A full window must not stop us from hearing the server: its pings' answers, its DISCONNECT."""

    async def script(peer: Peer) -> None:
        connect = await peer.accept()
        assert connect.properties is not None
        assert connect.properties.receive_maximum == BOUND
        peer.send(*(Publish("a", b"", 1 + number % 2, packet_id=number) for number in range(1, BOUND + 1)))
        peer.send(Publish("a", b"QoS 0 needs no window"))
        await peer.goodbye()

    async def scenario() -> None:
        async with (
            Scripted(script) as port,
            Client("127.0.0.1", port, receive_maximum=BOUND, acknowledge="manual") as client,
        ):
            await until(lambda: len(client.messages) == BOUND + 1)
            taken = [await anext(client.messages) for _ in range(BOUND + 1)]
            assert not any(message.is_done for message in taken[:-1])

    run(scenario())


def test_a_server_that_ignores_the_window_is_bounded_all_the_same() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        for number in range(1, FLOOD):
            peer.send(Publish("a", bytes(1000), 1, packet_id=number))
        await peer.receive(Puback)
        peer.cut()

    async def scenario() -> None:
        async with (
            Scripted(script) as port,
            Client("127.0.0.1", port, receive_maximum=BOUND, reconnect=None) as client,
        ):
            await until(lambda: len(client.messages) >= 2 * BOUND)
            await asyncio.sleep(0.05)
            assert len(client.messages) == 2 * BOUND
            await (await anext(client.messages)).ack()

    run(scenario())


def test_an_answer_that_comes_behind_a_flood_is_waited_for() -> None:
    """A body that publishes would otherwise wait for ever: the answer is behind messages that nobody reads."""
    count = BOUND * WHILE_WE_WAIT // 2

    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*(Publish("a", bytes(100)) for _ in range(count)))
        publish = await peer.receive(Publish)
        peer.send(Puback(publish.packet_id))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, receive_maximum=BOUND) as client:
            async for _ in client.messages:
                await until(lambda: len(client.messages) == BOUND)  # and reading has stopped
                await client.publish("b", b"", qos=1)
                break

    run(scenario())


def test_pings_go_on_and_the_server_is_not_taken_for_dead_while_we_do_not_read() -> None:
    """Its answers are there, but behind what we have not read."""
    is_enough = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*(Publish("a", b"") for _ in range(BOUND * 2)))
        for _ in range(3):  # three intervals: long enough to be given up otherwise
            await peer.receive(Pingreq)
        is_enough.set()
        await peer.goodbye()

    async def scenario() -> None:
        async with (
            Scripted(script) as port,
            Client("127.0.0.1", port, receive_maximum=BOUND, keep_alive=1, reconnect=None) as client,
        ):
            await is_enough.wait()
            assert client.is_connected
            for _ in range(BOUND * 2):
                await anext(client.messages)

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
def test_what_the_application_still_has_is_not_queued_again(qos: int) -> None:
    """One message is finished while there is no connection, one is in hand, one waits. The acknowledgements use the
    new connection's order."""
    acknowledgement = Puback if qos == 1 else Pubrec

    async def first(peer: Peer) -> None:
        await peer.accept()
        peer.send(*(Publish("a", bytes([number]), qos, packet_id=number) for number in (1, 2, 3)))
        await has_two.wait()
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept(PRESENT)
        peer.send(*(Publish("a", bytes([number]), qos, dup=True, packet_id=number) for number in (1, 2, 3)))
        peer.send(Publish("a", bytes([4]), qos, packet_id=4))
        assert await peer.receive(acknowledgement) == acknowledgement(1)  # at once: it is done already
        for number in (2, 3, 4):
            assert await peer.receive(acknowledgement) == acknowledgement(number)
        await peer.goodbye()

    has_two = asyncio.Event()

    async def scenario() -> None:
        async with (
            Scripted(first, second) as port,
            Client("127.0.0.1", port, reconnect=SOON, acknowledge="manual") as client,
        ):
            one, two = await anext(client.messages), await anext(client.messages)
            has_two.set()
            await until(lambda: not client.is_connected)
            await one.ack()
            await until(lambda: len(client.messages) == 2)
            await two.ack()
            for number in (3, 4):
                message = await anext(client.messages)
                assert message.payload == bytes([number])
                await message.ack()

    run(scenario())


@pytest.mark.parametrize(("payload", "dup"), [(b"new", False), (b"new", True), (b"old", False)])
def test_an_id_that_stands_for_another_message_now(payload: bytes, dup: bool) -> None:
    """The server gave the first to somebody else, and used its id again. The old one's ack must not be sent. The same
    content is another message all the same, unless it is marked as sent again."""

    async def first(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"old", 1, packet_id=1))
        await has_it.wait()
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept(PRESENT)
        peer.send(Publish("a", payload, 1, dup=dup, packet_id=1))
        await peer.goodbye()

    has_it = asyncio.Event()

    async def scenario() -> None:
        async with (
            Scripted(first, second) as port,
            Client("127.0.0.1", port, reconnect=SOON, acknowledge="manual") as client,
        ):
            old = await anext(client.messages)
            has_it.set()
            new = await anext(client.messages)
            assert new.payload == payload
            await old.ack()

    run(scenario())


def test_messages_of_a_lost_session_stay_with_the_application_and_are_not_acknowledged() -> None:
    async def first(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"1", 1, packet_id=1), Publish("a", b"2", 2, packet_id=2))
        await has_one.wait()
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"3", 2, packet_id=2))
        assert await peer.receive(Pubrec) == Pubrec(2)
        await peer.goodbye()

    has_one = asyncio.Event()

    async def scenario() -> None:
        async with Scripted(first, second) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            payloads = []
            async for message in client.messages:
                payloads.append(message.payload)
                has_one.set()
                await until(lambda: client.session_present is False and len(client.messages) + len(payloads) == 3)
                if len(payloads) == 3:
                    break
            assert payloads == [b"1", b"2", b"3"]

    run(scenario())


def test_a_confirmed_qos_2_message_is_not_delivered_again_after_a_reconnect() -> None:
    async def first(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"once", 2, packet_id=1), Publish("a", b"too", 2, packet_id=2))
        assert await peer.receive(Pubrec) == Pubrec(1)
        assert await peer.receive(Pubrec) == Pubrec(2)
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept(PRESENT)
        peer.send(Publish("a", b"once", 2, dup=True, packet_id=1), Pubrel(2))  # one PUBREC did not arrive
        assert await peer.receive(Pubrec) == Pubrec(1)
        assert await peer.receive(Pubcomp) == Pubcomp(2)
        peer.send(Pubrel(1))
        assert await peer.receive(Pubcomp) == Pubcomp(1)
        peer.send(Publish("a", b"end"))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(first, second) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            payloads = []
            async for message in client.messages:
                payloads.append(message.payload)
                if message.payload == b"end":
                    break
            assert payloads == [b"once", b"too", b"end"]

    run(scenario())


def test_a_confirmed_id_of_a_lost_session_is_free_again() -> None:
    async def first(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"1", 2, packet_id=1))
        assert await peer.receive(Pubrec) == Pubrec(1)
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"2", 2, packet_id=1))
        assert await peer.receive(Pubrec) == Pubrec(1)
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(first, second) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            for payload in (b"1", b"2"):
                message = await anext(client.messages)
                assert message.payload == payload
                await message.ack()

    run(scenario())
