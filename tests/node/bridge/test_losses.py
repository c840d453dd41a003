"""Connections and brokers that are lost while messages go over a bridge."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client import Client, Reconnect
from headwater.node import Broker
from headwater.node.plane.channel import METERED, Channel
from headwater.node.toml_text import toml_value
from headwater.wire.packets import V311, Connack, Connect, Publish
from headwater.wire.reasons import ADMINISTRATIVE_ACTION
from tests.brokers import find_mosquitto, free_port
from tests.client.scripted import Peer, Scripted, run, until
from tests.client.test_cuts import Cuts, Cutter, cuts
from tests.client.test_restarts import Process
from tests.node.bridge.scene import HOST, bridge, broker, client, reload, said, take, until_up

MESSAGES = 40
END = b"the end"
OUT = {"filter": "#", "direction": "out", "qos": 2, "local_prefix": "out/", "remote_prefix": "came/"}
IN = {"filter": "#", "direction": "in", "qos": 2, "local_prefix": "came/", "remote_prefix": "out/"}


async def publish(publisher: Client, numbers: range = range(MESSAGES)) -> None:
    """All at once; and the end behind the last."""
    async with asyncio.TaskGroup() as group:
        for number in numbers:
            qos = 1 + number % 2
            group.create_task(publisher.publish(f"out/{qos}", f"{number}/{qos}", qos=qos))
    if MESSAGES - 1 in numbers:
        await publisher.publish("out/1", END, qos=1)


async def collect(reader: Client) -> Counter[bytes]:
    """What comes until the end has come; it waits behind all others on its way."""
    arrived: Counter[bytes] = Counter()
    while END not in arrived:
        arrived[(await anext(reader.messages)).payload] += 1
    return arrived


def check(arrived: Counter[bytes], *, once: bool) -> None:
    lost = [number for number in range(MESSAGES) if f"{number}/{1 + number % 2}".encode() not in arrived]
    assert lost == []
    if once:
        assert [each for each, times in arrived.items() if times > 1 and each.endswith(b"/2")] == []


@settings(max_examples=25, deadline=None)
@given(cut_at=cuts, protocol=st.sampled_from(["5.0", "3.1.1"]), window=st.integers(1, 12))
def test_a_line_that_is_cut_loses_nothing_and_repeats_no_qos_2(cut_at: Cuts, protocol: str, window: int) -> None:
    """In both directions at once, at any byte."""

    async def scenario() -> None:
        async with broker() as far, Cutter(far.port, cut_at) as way:
            entry = bridge(way.port, OUT, IN, protocol=protocol, max_inflight=window)
            async with broker(entry) as near, client(far.port, "came/#") as there, client(near.port, "came/#") as here:
                await until_up(near)
                async with asyncio.TaskGroup() as group:
                    arrived = [group.create_task(collect(each)) for each in (here, there)]
                    for each in (here, there):
                        group.create_task(publish(each))
                for task in arrived:
                    check(task.result(), once=True)
                await until(lambda: near.bridges.views()[0].waiting == 0)

    run(scenario())


@pytest.mark.parametrize("protocol", ["5.0", "3.1.1"])
def test_a_local_connection_that_is_lost_loses_nothing(protocol: str) -> None:
    async def disturb(near: Broker) -> None:
        for _ in range(5):
            await until(lambda: near.bridges.views()[0].up)
            near.disconnect("$bridge/north", ADMINISTRATIVE_ACTION)
            await until(lambda: not near.bridges.views()[0].up)

    async def scenario() -> None:
        async with (
            broker() as far,
            broker(bridge(far.port, OUT, IN, protocol=protocol)) as near,
            client(far.port, "came/#") as there,
            client(near.port, "came/#") as here,
        ):
            await until_up(near)
            async with asyncio.TaskGroup() as group:
                group.create_task(disturb(near))
                arrived = [group.create_task(collect(each)) for each in (here, there)]
                for each in (here, there):
                    group.create_task(publish(each))
            for task in arrived:
                check(task.result(), once=True)

    run(scenario())


@pytest.mark.parametrize("protocol", ["5.0", "3.1.1"])
def test_a_remote_that_is_restarted_loses_nothing(tmp_path: Path, protocol: str) -> None:
    """Mosquitto, which keeps sessions on disk when it is told to leave. Twice, while messages go both ways."""
    port = free_port()
    file = tmp_path / "mosquitto.conf"
    file.write_text(
        f"listener {port} {HOST}\nuser root\nallow_anonymous true\npersistence true\n"
        f"persistence_location {tmp_path}/\nmax_queued_messages 0\n"
    )
    process = Process([find_mosquitto(), "-c", str(file)], port)
    durable = {"clean_start": False, "session_expiry": 1000, "reconnect": None}

    async def scenario() -> None:
        async with broker(bridge(port, OUT, IN, protocol=protocol)) as near, client(near.port, "came/#") as here:
            await until_up(near)
            async with client(port, "came/#", client_id="there", **durable) as there:
                await there.publish("out/1", "0/1", qos=1)
            for number in range(1, MESSAGES):
                qos = 1 + number % 2
                await here.publish(f"out/{qos}", f"{number}/{qos}", qos=qos)
                if number % 15 == 0:
                    await process.restart(gently=True)
            await here.publish("out/1", "0/1", qos=1)
            await until(lambda: near.bridges.views()[0].waiting == 0)  # Mosquitto lets QoS 1 overtake QoS 2
            await here.publish("out/1", END, qos=1)
            assert said(await take(here, 1)) == [("came/1", b"0/1")]
            async with client(port, client_id="there", **durable) as there:
                check(await collect(there), once=False)

    try:
        run(scenario())
    finally:
        process.stop(gently=True)


def test_what_the_remote_has_not_acknowledged_is_not_acknowledged_here() -> None:
    """It is sent again by a bridge that knows nothing of it: here, to another remote."""

    async def scenario() -> None:
        sent = asyncio.Event()

        async def silent(peer: Peer) -> None:
            await peer.accept()
            for _ in range(3):
                await peer.receive(Publish)
            sent.set()
            await peer.next_packet()

        async with (
            Scripted(silent) as port,
            broker() as far,
            broker(bridge(port, OUT, notifications="none")) as near,
            client(far.port, "came/#") as there,
            client(near.port) as here,
        ):
            for number in range(3):
                await here.publish("out/a", f"{number}", qos=1 + number % 2)
            await sent.wait()
            assert near.bridges.views()[0].waiting == 3
            reload(near, bridge(far.port, OUT))
            assert [each.payload for each in await take(there, 3)] == [b"0", b"1", b"2"]

    run(scenario())


def test_what_our_own_broker_has_not_acknowledged_is_not_acknowledged_there() -> None:
    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port, IN)) as near, client(far.port) as there:
            await until_up(near)
            theirs = far.server.sessions[near.bridges.views()[0].client_id].outbound
            ours = near.server.sessions["$bridge/north"].connection
            assert isinstance(ours, Channel)
            near.server.pause(ours, METERED)
            for number in range(3):
                await there.publish("out/a", f"{number}", qos=1 + number % 2)
            await there.publish("out/a", "on its way behind them")
            await until(lambda: near.bridges.views()[0].received.forwarded == 1)
            assert len(theirs.flights) == 3
            near.server.resume(ours, METERED)
            await until(lambda: len(theirs.flights) == 0)
            assert near.bridges.views()[0].received.forwarded == 4

    run(scenario())


@pytest.mark.parametrize("was_up", [False, True])
def test_what_comes_while_the_remote_is_away_waits_for_it(was_up: bool) -> None:
    """QoS 1 and 2, from the very beginning and in order; QoS 0 does not, and takes no room."""
    port = free_port()

    async def scenario() -> None:
        async with broker(bridge(port, OUT, max_inflight=10)) as near, client(near.port) as here:
            if was_up:
                async with broker(port=port):
                    await until_up(near)
            await until(lambda: near.bridges.views()[0].error.endswith("(is a broker running?)"))
            for number in range(100):
                await here.publish("out/0", "no", qos=0)
                await here.publish("out/1", f"{number}", qos=1)
            [view] = near.bridges.views()
            assert (view.waiting, view.up) == (100, False)
            async with broker(port=port) as far, client(port, "came/#") as there:
                assert [each.payload for each in await take(there, 100)] == [f"{n}".encode() for n in range(100)]
                await until(lambda: near.bridges.views()[0].waiting == 0)
                assert far.bridges.views() == []

    run(scenario())


def test_with_a_clean_start_nothing_waits() -> None:
    port = free_port()

    async def scenario() -> None:
        async with broker(bridge(port, OUT, clean_start=True)) as near, client(near.port) as here:
            await until(lambda: near.bridges.views()[0].error.endswith("(is a broker running?)"))
            for qos in (0, 1, 2):
                await here.publish("out/a", "no", qos=qos)
            assert near.bridges.views()[0].waiting == 0
            async with broker(port=port) as far, client(port, "came/#") as there:
                await until_up(near)
                await here.publish("out/a", "yes", qos=1)
                assert said(await take(there, 1)) == [("came/a", b"yes")]
                session = far.server.sessions[near.bridges.views()[0].client_id]
                assert session.expiry_interval == 0

    run(scenario())


def test_what_waits_for_a_remote_is_bounded_like_any_session() -> None:
    port = free_port()

    async def scenario() -> None:
        entry = bridge(port, OUT, max_inflight=10)
        async with broker(entry, max_queued_messages=20) as near, client(near.port) as here:
            await until(lambda: near.bridges.views()[0].error.endswith("(is a broker running?)"))
            for number in range(100):
                await here.publish("out/1", f"{number}", qos=1)
            assert near.bridges.views()[0].waiting == 20
            async with broker(port=port), client(port, "came/#") as there:
                assert [each.payload for each in await take(there, 20)] == [f"{n}".encode() for n in range(20)]

    run(scenario())


def test_a_remote_that_does_not_read_does_not_take_our_memory() -> None:
    """QoS 0 beyond the buffer is dropped; of QoS 1 as much is under way as may be. The way back goes on meanwhile."""

    async def scenario() -> None:
        over = asyncio.Event()

        async def remote(peer: Peer) -> None:
            await peer.accept()
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            peer.send(*(Publish("out/1", b"") for _ in range(200)))
            await over.wait()
            peer.cut()

        async with Scripted(remote) as port:
            entry = bridge(port, OUT, IN, max_inflight=5, notifications="none")
            async with broker(entry, outbound_buffer=65536) as near, client(near.port, "came/#") as here:
                await take(here, 200)
                sent = 0
                while near.bridges.views()[0].sent.dropped == 0:
                    await here.publish("out/0", b"x" * 100_000)
                    sent += 1
                    assert sent < 1000
                for number in range(300):
                    await here.publish("out/1", f"{number}", qos=1)
                assert near.bridges.views()[0].waiting == 300
                assert len(near.server.sessions["$bridge/north"].outbound.flights) == 5
                over.set()

    run(scenario())


def test_what_comes_faster_than_we_take_it_waits_at_the_remote() -> None:
    """Also QoS 0, which is dropped only on its way out: our own broker always goes on."""

    async def scenario() -> None:
        async with (
            broker() as far,
            broker(bridge(far.port, OUT, IN, protocol="3.1.1", max_inflight=20), outbound_buffer=4096) as near,
            client(far.port) as there,
            client(near.port, "came/#", receive_maximum=1000) as here,
        ):
            await until_up(near)
            assert near.bridges._bridges is not None
            ours = near.server.sessions["$bridge/north"].connection
            theirs = far.server.sessions[near.bridges.views()[0].client_id].connection
            assert isinstance(ours, Channel) and isinstance(theirs, Channel)
            far.server.pause(theirs, METERED)
            await here.publish("out/a", "under way", qos=1)  # so that the client reads on for the answer
            await until(lambda: near.server.sessions["$bridge/north"].outbound.flights)
            near.server.pause(ours, METERED)
            for number in range(300):
                await there.publish("out/a", b"x" * 1000)
                await there.publish("out/a", f"{number}", qos=1)
            link = near.bridges._bridges._running["north"]._remote._conversation._link
            await until(lambda: link is not None and link.is_paused)
            near.server.resume(ours, METERED)
            far.server.resume(theirs, METERED)
            assert len(await take(here, 600)) == 600
            assert near.bridges.views()[0].received.dropped == 0

    run(scenario())


def test_addresses_are_tried_in_turn() -> None:
    async def scenario() -> None:
        async with broker() as far:
            nobody = free_port()
            places = [f"{HOST}:{nobody}", f"{HOST}:{far.port}"]
            async with broker(
                bridge(nobody, OUT, addresses=places, reconnect_longest=900, reconnect_first=900)
            ) as near:
                await until_up(near)

    run(scenario())


def test_the_mark_of_a_bridge_is_left_off_where_it_is_not_known() -> None:
    seen: list[bool] = []

    async def refuses(peer: Peer) -> None:
        seen.append((await peer.receive(Connect)).bridge)
        peer.send(Connack(False, 1))

    async def accepts(peer: Peer) -> None:
        seen.append((await peer.receive(Connect)).bridge)
        peer.send(Connack(False, 0))
        await peer.goodbye()

    async def scenario() -> None:
        async with (
            Scripted(refuses, accepts, version=V311) as port,
            broker(bridge(port, OUT, protocol="3.1.1", notifications="none")) as near,
        ):
            await until_up(near)

    run(scenario())
    assert seen == [True, False]


def test_a_remote_that_refuses_is_tried_for_ever() -> None:
    """Also for reasons that do not go away by themselves: somebody may mend it there."""

    async def refuses(peer: Peer) -> None:
        await peer.receive(Connect)
        peer.send(Connack(False, 0x87))

    async def accepts(peer: Peer) -> None:
        await peer.accept()
        await peer.goodbye()

    async def scenario() -> None:
        async with (
            Scripted(*[refuses] * 5, accepts) as port,
            broker(bridge(port, OUT, notifications="none")) as near,
        ):
            await until_up(near)

    run(scenario())


class Near:
    """A broker with a bridge in a process of its own, which can be killed."""

    def __init__(self, folder: Path, far: int) -> None:
        self.port = free_port()
        file = folder / "near.toml"
        file.write_text(
            f'port = {self.port}\nhost = "{HOST}"\ndata_dir = "{folder / "data"}"\n'
            f'[[bridges]]\nname = "north"\naddresses = "{HOST}:{far}"\nclient_id = "near"\n'
            f"reconnect_first = 0.01\nreconnect_longest = 0.05\ntopics = {toml_value([OUT, IN])}\n"
        )
        self._process = Process([sys.executable, "-m", "headwater", "broker", "--config", str(file)], self.port)

    async def kill(self) -> None:
        await self._process.restart(gently=False)

    def stop(self) -> None:
        self._process.stop(gently=True)


@pytest.mark.slow
def test_a_broker_that_is_killed_loses_nothing_of_its_bridge(tmp_path: Path) -> None:
    """Messages go both ways while it is killed, twice; what was acknowledged to its publisher arrives."""

    async def scenario() -> None:
        async with broker() as far:
            near = Near(tmp_path, far.port)
            try:
                await until(lambda: far.server.sessions.get("near") and far.server.sessions["near"].subscriptions)
                await bridged(near, far.port)
            finally:
                await asyncio.to_thread(near.stop)

    async def bridged(near: Near, far: int) -> None:
        again = Reconnect(first=0.01, longest=0.05)
        lasting = {"clean_start": False, "session_expiry": 1000, "reconnect": again}
        async with (
            client(far, "came/#") as there,
            client(near.port, "came/#", client_id="here", **lasting) as here,
            client(near.port, client_id="publisher", **lasting) as publisher,
        ):
            arrived = [asyncio.create_task(collect(each)) for each in (here, there)]
            for numbers in (range(MESSAGES // 2), range(MESSAGES // 2, MESSAGES)):
                await asyncio.gather(publish(there, numbers), publish(publisher, numbers), near.kill())
            for each in arrived:
                check(await each, once=False)

    async def patiently() -> None:
        async with asyncio.timeout(120):
            await scenario()

    asyncio.run(patiently())
