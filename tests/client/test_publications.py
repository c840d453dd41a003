"""Our messages on their way: windows, order, back-pressure, and what happens to them when a connection is lost."""

from __future__ import annotations

import asyncio

import pytest

from headwater.client import V5, V311, Client, Disconnected, Properties, Rejected
from headwater.wire import reasons
from headwater.wire.errors import LocalProtocolError
from headwater.wire.packets import Connack, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from tests.client.scripted import SOON, Peer, Scripted, run, until

PRESENT = Connack(session_present=True)


def test_the_servers_receive_maximum_is_kept() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept(Connack(properties=Properties(receive_maximum=2)))
        first, second = await peer.receive(Publish), await peer.receive(Publish)
        subscribe = await peer.receive(Subscribe)  # asked for after the third message, but not held back
        peer.send(Suback(subscribe.packet_id, [0]), Puback(first.packet_id))
        third = await peer.receive(Publish)
        assert [first.payload, second.payload, third.payload] == [b"0", b"1", b"2"]
        peer.send(Puback(second.packet_id), Puback(third.packet_id))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            publications = [client.publish("a", str(number), qos=1) for number in range(3)]
            await asyncio.gather(*publications, client.subscribe("b"))

    run(scenario())


@pytest.mark.parametrize(
    ("version", "limit", "expected"), [(V5, None, 50), (V5, 7, 7), (V311, None, 20)], ids=["v5", "ours", "v311"]
)
def test_many_are_under_way_at_a_time(version: int, limit: int | None, expected: int) -> None:
    """As many as the server or we allow; in 3.1.1 the server cannot say."""

    async def script(peer: Peer) -> None:
        await peer.accept()
        arrived = [await peer.receive(Publish) for _ in range(expected)]
        assert len({publish.packet_id for publish in arrived}) == expected
        peer.send(*(Puback(publish.packet_id) for publish in arrived))
        for _ in range(50 - expected):
            peer.send(Puback((await peer.receive(Publish)).packet_id))
        await peer.goodbye()

    async def scenario() -> None:
        async with (
            Scripted(script, version=version) as port,
            Client("127.0.0.1", port, version=version, max_inflight=limit) as client,
            asyncio.TaskGroup() as group,
        ):
            for number in range(50):
                group.create_task(client.publish("a", str(number), qos=1))

    run(scenario())


def test_order_is_kept_whatever_the_qos() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept(Connack(properties=Properties(receive_maximum=1)))
        first = await peer.receive(Publish)
        peer.send(Puback(first.packet_id))
        second, third = await peer.receive(Publish), await peer.receive(Publish)
        peer.send(Pubrec(second.packet_id))
        await peer.receive(Pubrel)
        peer.send(Pubcomp(second.packet_id))
        assert [first.payload, second.payload, third.payload] == [b"1", b"2", b"3"]
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            await asyncio.gather(
                client.publish("a", b"1", qos=1), client.publish("a", b"2", qos=2), client.publish("a", b"3", qos=0)
            )

    run(scenario())


def test_a_publisher_waits_while_the_server_takes_less_than_it_sends() -> None:
    """QoS 0 knows no answers: the network's own back-pressure must reach the caller."""
    size, count = 100_000, 400
    may_read = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.accept()
        await may_read.wait()
        for _ in range(count):
            await peer.receive(Publish)
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            sent = 0

            async def publish() -> None:
                nonlocal sent
                for _ in range(count):
                    await client.publish("a", bytes(size))
                    sent += 1

            publishing = asyncio.create_task(publish())
            while True:  # until it stands still
                before = sent
                await asyncio.sleep(0.1)
                if sent == before:
                    break
            assert 0 < sent < count // 2
            may_read.set()
            await publishing

    run(scenario())


def test_a_caller_that_never_waits_lets_others_run() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        for _ in range(1000):
            await peer.receive(Publish)
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            for _ in range(1000):
                await client.publish("a", b"")
            assert turns >= 10
            task.cancel()

    run(scenario())


def test_what_was_in_flight_is_sent_again_in_its_order_if_the_session_lives() -> None:
    """Also what the window of the new connection does not allow at once. PUBREL needs no window."""

    async def first(peer: Peer) -> None:
        await peer.accept()
        packets = [await peer.receive(Publish) for _ in range(5)]
        assert [packet.packet_id for packet in packets] == [1, 2, 3, 4, 5]
        assert not any(packet.dup for packet in packets)
        peer.send(Puback(1), Pubrec(2))
        await peer.receive(Pubrel)
        peer.cut()

    async def second(peer: Peer) -> None:
        connect = await peer.accept(Connack(True, properties=Properties(receive_maximum=2)))
        assert not connect.clean_start
        assert await peer.receive(Pubrel) == Pubrel(2)
        assert await peer.receive(Publish) == Publish("a", b"3", 1, dup=True, packet_id=3)
        peer.send(Pubcomp(2))
        assert await peer.receive(Publish) == Publish("a", b"4", 2, dup=True, packet_id=4)
        peer.send(Puback(3))
        assert await peer.receive(Publish) == Publish("a", b"5", 1, dup=True, packet_id=5)
        peer.send(Pubrec(4), Puback(5))
        await peer.receive(Pubrel)
        new = await peer.receive(Publish)
        assert (new.payload, new.dup) == (b"6", False)
        peer.send(Pubcomp(4), Puback(new.packet_id))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(first, second) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            work = [client.publish("a", str(n), qos=qos) for n, qos in ((1, 1), (2, 2), (3, 1), (4, 2), (5, 1))]
            waiting = asyncio.gather(*work)
            await until(lambda: client.is_connected is False)
            await asyncio.gather(waiting, client.publish("a", b"6", qos=1))

    run(scenario())


def test_what_was_in_flight_is_sent_anew_if_the_session_is_gone() -> None:
    """What the server had confirmed is its own since then, and not sent twice [MQTT-4.3.3-8]."""

    async def first(peer: Peer) -> None:
        await peer.accept()
        for _ in range(3):
            await peer.receive(Publish)
        peer.send(Pubrec(2, reasons.NO_MATCHING_SUBSCRIBERS))
        await peer.receive(Pubrel)
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept()
        one, three = await peer.receive(Publish), await peer.receive(Publish)
        assert [(each.payload, each.qos, each.dup) for each in (one, three)] == [(b"1", 1, False), (b"3", 2, False)]
        peer.send(Puback(one.packet_id), Pubrec(three.packet_id))
        await peer.receive(Pubrel)
        peer.send(Pubcomp(three.packet_id))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(first, second) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            work = [client.publish("a", str(n), qos=qos) for n, qos in ((1, 1), (2, 2), (3, 2))]
            assert await asyncio.gather(*work) == [0, reasons.NO_MATCHING_SUBSCRIBERS, 0]

    run(scenario())


def test_messages_published_while_there_is_no_connection_leave_in_order_when_there_is_one() -> None:
    async def first(peer: Peer) -> None:
        await peer.accept()
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept(PRESENT)
        for number, qos in enumerate((0, 1, 0)):
            packet = await peer.receive(Publish)
            assert (packet.payload, packet.qos, packet.dup) == (str(number).encode(), qos, False)
        peer.send(Puback(1))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(first, second) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            await until(lambda: not client.is_connected)
            await asyncio.gather(*(client.publish("a", str(number), qos=qos) for number, qos in enumerate((0, 1, 0))))

    run(scenario())


def test_a_caller_that_has_gone() -> None:
    """Before its turn: the message is not sent. Afterwards: its id is in use until the server has answered."""

    async def script(peer: Peer) -> None:
        await peer.accept(Connack(properties=Properties(receive_maximum=1)))
        first = await peer.receive(Publish)
        has_first.set()
        await peer.receive(Subscribe)
        peer.send(Suback(2, [0]), Puback(first.packet_id))
        third = await peer.receive(Publish)
        assert (first.payload, third.payload) == (b"1", b"3")
        peer.send(Puback(third.packet_id))
        await peer.goodbye()

    has_first = asyncio.Event()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            one = asyncio.create_task(client.publish("a", b"1", qos=1))
            two = asyncio.create_task(client.publish("a", b"2", qos=1))
            await has_first.wait()
            one.cancel()
            two.cancel()
            three = asyncio.create_task(client.publish("a", b"3", qos=1))
            await client.subscribe("sync")
            assert await three == 0

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_the_server_rejects(qos: int) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept(Connack(properties=Properties(receive_maximum=1)))
        for _ in range(2):  # the first must give back its turn
            packet = await peer.receive(Publish)
            refusal = Puback if qos == 1 else Pubrec
            peer.send(refusal(packet.packet_id, reasons.QUOTA_EXCEEDED, Properties(reason_string="enough")))
        await peer.goodbye()

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
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            for reason, work in (
                (reasons.QOS_NOT_SUPPORTED, client.publish("a", b"", qos=2)),
                (reasons.RETAIN_NOT_SUPPORTED, client.publish("a", b"", retain=True)),
                (reasons.PACKET_TOO_LARGE, client.publish("a", b"x" * 50, qos=1)),
                (reasons.TOPIC_ALIAS_INVALID, client.publish("a", b"", properties=Properties(topic_alias=1))),
                (reasons.PACKET_TOO_LARGE, client.subscribe("x" * 50)),
            ):
                with pytest.raises(Rejected) as raised:
                    await work
                assert raised.value.reason == reason
            for topic in ("a/#", ""):
                with pytest.raises(LocalProtocolError):
                    await client.publish(topic, b"", qos=1)
            await client.publish("a", b"fits")

    run(scenario())


def test_confirmations_of_an_earlier_programs_messages_are_let_pass() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(Puback(5), Pubcomp(6), Pubrec(7))
        assert await peer.receive(Pubrel) == Pubrel(7, reasons.PACKET_IDENTIFIER_NOT_FOUND)
        peer.send(Publish("a", b"end"))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, clean_start=False, client_id="a") as client:
            assert (await anext(client.messages)).payload == b"end"

    run(scenario())


def test_a_client_that_was_never_connected() -> None:
    async def scenario() -> None:
        with pytest.raises(Disconnected, match="not connected"):
            await Client().publish("a", b"")
        with pytest.raises(Disconnected, match="not connected"):
            await Client().subscribe("a")

    run(scenario())


def test_what_an_earlier_program_left_in_the_session_takes_no_message_for_its_own() -> None:
    """The server may still wait for the PUBREL of an id that we are about to use: it would not look at what comes with
    it."""
    seen: list[object] = []

    async def kept(peer: Peer) -> None:
        await peer.accept(PRESENT)
        for _ in range(3):
            packet = await peer.next_packet()
            seen.append((type(packet), packet.packet_id))  # type: ignore[union-attr]
            if isinstance(packet, Pubrel):
                peer.send(Pubcomp(packet.packet_id, 0x92))
            elif isinstance(packet, Publish):
                peer.send(Pubrec(packet.packet_id) if packet.qos == 2 else Puback(packet.packet_id))
        peer.send(Pubcomp(1))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(kept) as port, Client("127.0.0.1", port, client_id="c", clean_start=False) as client:
            await client.publish("t", "x", qos=2)
            await until(lambda: len(seen) == 3)

    run(scenario())
    assert seen == [(Pubrel, 1), (Publish, 1), (Pubrel, 1)]
