"""Pings and reports, by the packets that a scripted server gets, and when."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest

from headwater.client import V311, Client, Disconnected, PingSender, Properties, StatusPingSender
from headwater.node import Broker, Config
from headwater.wire.packets import Connack, Pingreq, Pingresp, Puback, Publish
from headwater.wire.status import StatusReport, consent, interval_of
from tests.client.scripted import Peer, Scripted, run, until


def granted(milliseconds: int = 50) -> Connack:
    return Connack(properties=Properties(user_properties=[consent(milliseconds)]))


async def next_report(peer: Peer) -> dict[str, float]:
    report = await peer.receive(StatusReport)
    peer.send(Pingresp())
    said: dict[str, float] = json.loads(report.payload)
    return said


def test_the_servers_keep_alive_is_kept() -> None:
    """The client's own of a minute would send nothing before the test gives up."""

    async def script(peer: Peer) -> None:
        await peer.accept(Connack(properties=Properties(server_keep_alive=1)))
        for _ in range(2):
            await peer.receive(Pingreq)
            peer.send(Pingresp())
        peer.send(Publish("a", b"enough"))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, keep_alive=60) as client:
            await anext(client.messages)

    run(scenario())


def test_a_ping_goes_out_within_the_interval_though_the_server_talks() -> None:
    """What the server sends is no sign of life of ours [MQTT-3.1.2-20]."""

    async def script(peer: Peer) -> None:
        await peer.accept()
        started = asyncio.get_running_loop().time()

        async def talk() -> None:
            while True:
                peer.send(Publish("a", b""))
                await asyncio.sleep(0.05)

        talking = asyncio.create_task(talk())
        await peer.receive(Pingreq)
        assert asyncio.get_running_loop().time() - started < 1.5  # when a server gives up
        talking.cancel()
        peer.send(Publish("end", b""))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, keep_alive=1) as client:
            async for message in client.messages:
                if message.topic == "end":
                    break

    run(scenario())


def test_a_ping_without_an_answer_ends_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.receive(Pingreq)
        assert await peer.next_packet() is None

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, keep_alive=1, reconnect=None) as client:
            with pytest.raises(Disconnected, match="has not answered a ping for 1 seconds"):
                await anext(client.messages)

    run(scenario())


def test_reports_are_asked_for_only_with_a_ping_sender() -> None:
    async def plain(peer: Peer) -> None:
        connect = await peer.accept()
        assert interval_of(connect.properties) == 0
        await peer.goodbye()

    async def asking(peer: Peer) -> None:
        connect = await peer.accept()
        assert connect.properties is not None
        assert connect.properties.user_properties == [("mine", "too"), ("status-report-ms", "250")]
        await peer.goodbye()

    async def shortened(peer: Peer) -> None:
        assert interval_of((await peer.accept()).properties) == 950  # keep alive is a second
        await peer.goodbye()

    async def scenario() -> None:
        mine = Properties(user_properties=[("mine", "too")])
        async with Scripted(plain, asking, shortened) as port:
            async with Client("127.0.0.1", port):
                pass
            async with Client("127.0.0.1", port, properties=mine, ping_sender=StatusPingSender(0.25)):
                pass
            async with Client("127.0.0.1", port, keep_alive=1, ping_sender=StatusPingSender(5)):
                pass

    run(scenario())


@pytest.mark.parametrize("version", [V311, 5], ids=["v311", "not granted"])
def test_without_consent_pings_are_ordinary(version: int) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b""), Publish("a", b""), Publish("a", b""))
        await peer.receive(Pingreq)
        has_ping.set()
        await peer.goodbye()

    has_ping = asyncio.Event()

    async def scenario() -> None:
        sender = StatusPingSender(0.01)
        async with (
            Scripted(script, version=version) as port,
            Client("127.0.0.1", port, version=version, keep_alive=1, ping_sender=sender) as client,
        ):
            await has_ping.wait()
            assert len(client.messages) == 3

    run(scenario())


def test_reports_come_at_their_interval_and_are_answered_as_pings() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept(granted())
        started = asyncio.get_running_loop().time()
        for _ in range(5):
            assert await next_report(peer) == {"msgsInQueue": 0, "processingTimePerMsg": 0.0}
        assert asyncio.get_running_loop().time() - started >= 0.5
        peer.send(Publish("a", b"enough"))
        while await peer.next_packet() is not None:
            pass

    async def scenario() -> None:
        sender = StatusPingSender(0.1)
        async with Scripted(script) as port, Client("127.0.0.1", port, keep_alive=1, ping_sender=sender) as client:
            await anext(client.messages)
            assert client.is_connected

    run(scenario())


def test_the_server_says_how_often_reports_may_come() -> None:
    """Our own interval is shorter; the server's word counts."""

    async def script(peer: Peer) -> None:
        await peer.accept(granted(200))
        times = []
        for _ in range(4):
            await next_report(peer)
            times.append(asyncio.get_running_loop().time())
        assert all(later - earlier > 0.1 for earlier, later in pairwise(times))
        peer.send(Publish("a", b"enough"))
        while await peer.next_packet() is not None:
            pass

    async def scenario() -> None:
        async with (
            Scripted(script) as port,
            Client("127.0.0.1", port, ping_sender=StatusPingSender(0.01)) as client,
        ):
            await anext(client.messages)

    run(scenario())


def test_a_report_is_early_when_much_has_changed_and_says_all_of_a_burst() -> None:
    """The next regular one would come after a minute. Taking and finishing changes the figures again."""

    async def script(peer: Peer) -> None:
        await peer.accept(granted(50))
        peer.send(*(Publish("a", b"", 1, packet_id=number) for number in range(1, 6)))
        assert await next_report(peer) == {"msgsInQueue": 5, "processingTimePerMsg": 0.0}
        may_take.set()
        acknowledged = 0
        while acknowledged < 4:
            packet = await peer.next_packet()
            if isinstance(packet, Puback):
                acknowledged += 1
        report = await next_report(peer)
        assert report["msgsInQueue"] == 0
        assert 30.0 / 4 <= report["processingTimePerMsg"] < 1000.0
        done.set()
        while await peer.next_packet() is not None:
            pass

    may_take, done = asyncio.Event(), asyncio.Event()

    async def scenario() -> None:
        sender = StatusPingSender(50)
        async with Scripted(script) as port, Client("127.0.0.1", port, ping_sender=sender, keep_alive=60) as client:
            await may_take.wait()
            taken = [await anext(client.messages)]
            await asyncio.sleep(0.03)
            for _ in range(4):
                taken.append(await anext(client.messages))
            await done.wait()

    run(scenario())


def test_early_reports_are_no_more_frequent_than_granted() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept(granted(100))
        started = asyncio.get_running_loop().time()

        async def flood() -> None:
            while True:
                peer.send(*(Publish("a", b"") for _ in range(5)))
                await asyncio.sleep(0.002)

        flooding = asyncio.create_task(flood())
        for _ in range(5):
            await next_report(peer)
        assert asyncio.get_running_loop().time() - started >= 0.4
        flooding.cancel()
        is_enough.set()
        while await peer.next_packet() is not None:
            pass

    is_enough = asyncio.Event()

    async def scenario() -> None:
        async with (
            Scripted(script) as port,
            Client("127.0.0.1", port, ping_sender=StatusPingSender(50), receive_maximum=65535) as client,
        ):
            await is_enough.wait()
            assert client.is_connected

    run(scenario())


def test_an_application_says_what_it_likes() -> None:
    class Mine(PingSender):
        done = 0

        def processed(self, seconds: float) -> None:
            self.done += 1

        def is_due(self) -> bool:
            return self.done == 2

        def payload(self) -> bytes:
            return f"{self.waiting} waiting, {self.done} done".encode()

        def user_properties(self) -> list[tuple[str, str]]:
            return [("content-type", "text/plain")]

    async def script(peer: Peer) -> None:
        await peer.accept(granted())
        peer.send(*(Publish("a", b"") for _ in range(3)))
        report = await peer.receive(StatusReport)
        assert report.payload == b"0 waiting, 2 done"
        assert report.user_properties == [("content-type", "text/plain")]
        told.set()
        while await peer.next_packet() is not None:
            pass

    told = asyncio.Event()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, ping_sender=Mine(50)) as client:
            for _ in range(3):
                await anext(client.messages)
            await told.wait()

    run(scenario())


def test_a_sender_that_fails_costs_a_report_and_not_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept(granted())
        await peer.receive(Pingreq)
        peer.send(Pingresp(), Publish("a", b""))
        while await peer.next_packet() is not None:
            pass

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, ping_sender=PingSender(0.1)) as client:
            await anext(client.messages)

    run(scenario())
    assert "the ping sender failed" in caplog.text


def test_our_broker_grants_and_reads_reports() -> None:
    async def scenario() -> None:
        async with Broker(Config(port=0)) as broker:
            sender = StatusPingSender(0.06)
            async with Client("127.0.0.1", broker.port, ping_sender=sender) as client:
                assert interval_of(client.server) > 0
                await until(lambda: broker.server.stats.reports >= 3)
                assert broker.server.stats.reports_bad == 0

    run(scenario())
