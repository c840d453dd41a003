"""Workers as they are started from the command line."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headwater.client import Client, ConnectError
from tests.brokers import free_port
from tests.node.admin.api import TOKEN
from tests.node.workers.node import LONG, WorkersNode, is_alive

BROKER = [sys.executable, "-m", "headwater", "broker"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkersNode]:
    folder = tmp_path_factory.mktemp("workers")
    with WorkersNode(folder, "--data-dir", folder / "data", "--set", "sys_interval=0.5") as found:
        yield found


async def received(client: Client, count: int) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(LONG):
        async for message in client.messages:
            found.append(f"{message.topic} {message.payload.decode()}")
            if len(found) == count:
                return found
    raise AssertionError(found)


async def one_at_each(stack: AsyncExitStack, node: WorkersNode, prefix: str) -> list[Client]:
    clients = [await node.client_at(number, f"{prefix}-{number}") for number in range(node.count)]
    for client in clients:
        stack.push_async_exit(client)
    return clients


def test_what_is_published_at_one_worker_arrives_at_all(node: WorkersNode) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            clients = await one_at_each(stack, node, "crossing")
            for client in clients:
                await client.subscribe("crossing/#", qos=2)
            for number, client in enumerate(clients):
                for qos in (0, 1, 2):
                    await client.publish(f"crossing/{qos}", f"from {number}", qos=qos)
            wanted = sorted(f"crossing/{qos} from {number}" for qos in (0, 1, 2) for number in (0, 1))
            for client in clients:
                assert sorted(await received(client, 6)) == wanted

    asyncio.run(scenario())


def test_retained_messages_are_at_all_workers(node: WorkersNode) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            clients = await one_at_each(stack, node, "retaining")
            await clients[0].publish("kept/here", "1", qos=1, retain=True)
            await clients[1].subscribe("kept/#", qos=1)
            assert await received(clients[1], 1) == ["kept/here 1"]

    asyncio.run(scenario())
    assert node.get("/v1/retained/message", topic="kept/here")["size"] == 1
    assert node.call("DELETE", "/v1/retained/message", params={"topic": "kept/here"}).status_code == 204


def test_a_shared_group_spans_workers(node: WorkersNode) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            members = await one_at_each(stack, node, "member")
            for client in members:
                await client.subscribe("$share/span/jobs/#", qos=1)
            await asyncio.to_thread(
                node.until, lambda: [len(each["members"]) for each in node.get("/v1/groups")] == [2], "one group of two"
            )
            publisher = await stack.enter_async_context(Client("127.0.0.1", node.port))
            for number in range(20):
                await publisher.publish("jobs/x", str(number), qos=1)
            got: list[str] = []
            reading = [asyncio.create_task(read(each, got)) for each in members]
            async with asyncio.timeout(LONG):
                while len(got) < 20:
                    await asyncio.sleep(0.01)
            for task in reading:
                task.cancel()
            assert sorted(map(int, got)) == list(range(20)), "each to one member"

    async def read(client: Client, got: list[str]) -> None:
        async for message in client.messages:
            got.append(message.payload.decode())

    asyncio.run(scenario())


def test_one_sys_for_all(node: WorkersNode) -> None:
    """Who reads it at either worker sees the clients of both."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            clients = await one_at_each(stack, node, "reading")
            for client in clients:
                await client.subscribe("$SYS/broker/clients/connected")
                async with asyncio.timeout(LONG):
                    async for message in client.messages:
                        if message.payload == b"2":
                            break

    asyncio.run(scenario())


def test_one_admin_api_for_all(node: WorkersNode) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            clients = await one_at_each(stack, node, "listed")
            for number, client in enumerate(clients):
                await client.subscribe(f"listed/{number}")
            await asyncio.to_thread(look)

    def look() -> None:
        ids = ["listed-0", "listed-1"]
        assert [each["client_id"] for each in node.all("/v1/clients")] == ids
        assert [each["client_id"] for each in node.all("/v1/sessions")] == ids
        listed = node.all("/v1/subscriptions", "0:0", "after", limit=1)
        assert [(each["client_id"], each["filter"]) for each in listed] == [
            ("listed-0", "listed/0"),
            ("listed-1", "listed/1"),
        ]
        statistics = node.get("/v1/statistics")
        assert (statistics["connections"], statistics["sessions"], statistics["subscriptions"]) == (2, 2, 2)
        for each in ids:
            assert node.get(f"/v1/clients/{each}")["client_id"] == each
            assert node.get(f"/v1/sessions/{each}")["online"]
        assert node.call("GET", "/v1/clients/nobody").status_code == 404
        metrics = node.call("GET", "/metrics").text
        assert "headwater_connections 2.0" in metrics
        assert 'headwater_worker_connections{worker="0"} 1.0' in metrics
        assert 'headwater_worker_connections{worker="1"} 1.0' in metrics
        assert node.call("GET", "/v1/cluster").status_code == 404, "workers are one node to the outside"
        assert node.call("POST", "/v1/snapshot").status_code == 409

    asyncio.run(scenario())


def test_figures_count_a_message_once(node: WorkersNode) -> None:
    """Though it came to the other worker by a link."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            first, second = await one_at_each(stack, node, "counting")
            await second.subscribe("counted/#", qos=1)
            before = await asyncio.to_thread(node.get, "/v1/statistics")
            for number in range(10):
                await first.publish("counted/x", str(number), qos=1, retain=number % 2 == 0)
            await received(second, 10)
            await second.unsubscribe("counted/#")  # the acknowledgements are before it
            after = await asyncio.to_thread(node.get, "/v1/statistics")
            assert after["received"] - before["received"] == 10 + 9 + 1, "PUBLISH, PUBACK but of the last, UNSUBSCRIBE"
            assert after["messages_received"] - before["messages_received"] == 10
            assert after["messages_sent"] - before["messages_sent"] == 10
            assert 0 < after["bytes_received"] - before["bytes_received"] < 1000
            assert 0 < after["bytes_sent"] - before["bytes_sent"] < 1000

    asyncio.run(scenario())


def test_orders_reach_the_worker_that_has_the_client(node: WorkersNode) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            for client in await one_at_each(stack, node, "kicked"):
                assert (await asyncio.to_thread(kick, client.client_id)) == 204
                assert (await asyncio.to_thread(kick, client.client_id + "-nobody")) == 404

    def kick(client_id: str) -> int:
        return node.call("POST", "/v1/kick", json={"client_id": client_id}).status_code

    asyncio.run(scenario())
    order = {"kind": "user", "value": "mallory", "seconds": 60.0}
    assert node.call("POST", "/v1/bans", json=order).status_code == 201
    assert [each["value"] for each in node.get("/v1/bans")["items"]] == ["mallory"], "one, though each worker has it"
    query = {"kind": "user", "value": "mallory"}
    assert node.call("DELETE", "/v1/bans", params=query).status_code == 204
    assert node.call("DELETE", "/v1/bans", params=query).status_code == 404


def test_a_trace_finds_its_client_at_any_worker(node: WorkersNode) -> None:
    async def scenario() -> None:
        for number in range(node.count):
            lines = asyncio.create_task(asyncio.to_thread(trace))
            while not lines.done():  # by the order above, which may come later than the first client
                client = await node.client_at(number, "traced")
                await client.publish("traced", "x", qos=1)
                await client.__aexit__(None, None, None)
            assert '"packet": "' in await lines
            assert "as many packets as asked for" in await lines

    def trace() -> str:
        return node.call("POST", "/v1/trace", json={"client_id": "traced", "seconds": 30.0, "packets": 1}).text

    asyncio.run(scenario())


def test_a_worker_that_was_killed_is_replaced_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """QoS 1 from clients at both workers to a subscriber at the first, while the second is killed."""
    with WorkersNode(tmp_path, "--data-dir", tmp_path / "data") as node:
        acknowledged: set[str] = set()
        arrived: set[str] = set()
        stop = asyncio.Event()

        async def publish(client: Client, name: str) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                await client.publish("load/x", f"{name} {number}", qos=1)
                acknowledged.add(f"{name} {number}")

        async def scenario() -> None:
            subscriber = await node.client_at(0, "subscriber")
            await subscriber.subscribe("load/#", qos=1)
            publishers = [await node.client_at(number, f"publisher-{number}") for number in range(2)]
            publishing = [asyncio.create_task(publish(each, each.client_id)) for each in publishers]
            reading = asyncio.create_task(read(subscriber))
            killed = (await asyncio.to_thread(node.workers))[1]["process"]
            async with asyncio.timeout(LONG):
                for at_least in (100, 300):
                    while sum(each.startswith("publisher-1") for each in acknowledged) < at_least:
                        await asyncio.sleep(0.01)
                    if at_least == 100:
                        os.kill(killed, signal.SIGKILL)
            await asyncio.to_thread(node.until, node.is_ready, "the worker is replaced")
            workers = await asyncio.to_thread(node.workers)
            assert [each["restarts"] for each in workers] == [0, 1]
            assert workers[1]["process"] != killed
            stop.set()
            await asyncio.gather(*publishing)
            async with asyncio.timeout(LONG):
                while not acknowledged <= arrived:
                    await asyncio.sleep(0.01)
            reading.cancel()
            for client in (subscriber, *publishers):
                await client.__aexit__(None, None, None)

        async def read(subscriber: Client) -> None:
            async for message in subscriber.messages:
                arrived.add(message.payload.decode())

        asyncio.run(scenario())
        assert "worker-1 ended (killed by signal 9); it is started again in 0.1 s" in node.said()


def test_a_session_is_waited_for_while_its_worker_is_replaced(tmp_path: Path) -> None:
    """Its client comes to any worker, and never gets an empty one in its place."""
    with WorkersNode(tmp_path, "--data-dir", tmp_path / "data") as node:

        async def scenario() -> None:
            client = await node.client_at(1, "waiting", session_expiry=3600)
            await client.subscribe("waiting", qos=1)
            await client.__aexit__(None, None, None)
            order = {"topic": "waiting", "payload": "x", "qos": 1}
            await asyncio.to_thread(node.call, "POST", "/v1/publish", json=order)
            await asyncio.to_thread(
                node.until, lambda: node.get("/v1/sessions/waiting")["queued"] == 1, "it waits at the second worker"
            )
            workers = await asyncio.to_thread(node.workers)
            os.kill(workers[1]["process"], signal.SIGKILL)
            async with asyncio.timeout(LONG):
                client = await connected(node, "waiting")
            assert client.session_present
            assert await received(client, 1) == ["waiting x"]
            await client.__aexit__(None, None, None)

        asyncio.run(scenario())


async def connected(node: WorkersNode, client_id: str) -> Client:
    """As clients do: again and again while they are refused."""
    while True:
        client = Client("127.0.0.1", node.port, client_id=client_id, clean_start=False, session_expiry=3600)
        try:
            return await client.__aenter__()
        except ConnectError:
            await asyncio.sleep(0.05)


def test_sessions_are_there_after_a_restart(tmp_path: Path) -> None:
    with WorkersNode(tmp_path, "--data-dir", tmp_path / "data") as node:

        async def leave_sessions() -> None:
            for number in range(2):
                client = await node.client_at(number, f"lasting-{number}", session_expiry=3600)
                await client.subscribe(f"lasting/{number}", qos=1)
                await client.__aexit__(None, None, None)

        asyncio.run(leave_sessions())
        assert node.end() == 0
        node.start()
        assert [each["client_id"] for each in node.all("/v1/sessions")] == ["lasting-0", "lasting-1"]
        assert (
            node.call("POST", "/v1/publish", json={"topic": "lasting/1", "payload": "x", "qos": 1}).status_code == 204
        )
        node.until(lambda: node.get("/v1/sessions/lasting-1")["queued"] == 1, "it waits at the other worker")
        assert node.end() == 0
        node.count = 1
        node.launch()
        assert node.process is not None
        assert node.process.wait(LONG) == 1
        assert "is the data folder of 2 workers, and workers is 1" in node.said()


def test_workers_end_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    with WorkersNode(tmp_path) as node:
        pids = [each["process"] for each in node.workers()]
        assert all(map(is_alive, pids))
        assert node.end(signal.SIGKILL) == -signal.SIGKILL
        assert not any(map(is_alive, pids))


def test_what_keeps_a_worker_from_starting_keeps_the_node(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with WorkersNode(tmp_path, "--data-dir", data) as node:
        other = subprocess.run(
            [*BROKER, "--workers", "2", "--port", str(free_port()), "--data-dir", str(data)],
            capture_output=True,
            timeout=LONG,
            check=False,
        )
        assert other.returncode == 1
        assert b"is used by another running process" in other.stderr
        other = subprocess.run(
            [*BROKER, "--workers", "2", "--port", str(node.port)],
            capture_output=True,
            timeout=LONG,
            check=False,
        )
        assert other.returncode == 1
        assert b"Address already in use" in other.stderr, "though ports are shared among workers"
        settings = (f"admin.port={node.admin_port}", "admin.enabled=true", f"admin.token={TOKEN}")
        admin = [word for each in settings for word in ("--set", each)]
        other = subprocess.run(
            [*BROKER, "--workers", "2", "--port", "0", *admin],
            capture_output=True,
            timeout=LONG,
            check=False,
        )
        assert other.returncode == 1
        assert b"for the admin API (admin.host, admin.port): Address already in use" in other.stderr
        assert b"Traceback" not in other.stderr


def test_a_signal_while_workers_start_stops_them(tmp_path: Path) -> None:
    node = WorkersNode(tmp_path, "--data-dir", tmp_path / "data")
    node.launch()
    assert node.process is not None
    node.until(lambda: "recovered" in node.said(), "a worker starts")
    assert node.end() == 0


def test_unix_sockets_and_ports_that_are_chosen(tmp_path: Path) -> None:
    path, config = tmp_path / "mqtt.sock", tmp_path / "config.toml"
    config.write_text(f'[[listeners]]\nunix = "{path}"\n[[listeners]]\nport = 0\nprotocol = "websocket"\n')
    with WorkersNode(tmp_path, "--config", config) as node:
        pids = {each["process"] for each in node.workers()}
        assert len(pids) == 2

        async def scenario() -> None:
            async with (
                Client(str(path), transport="unix", client_id="by-unix") as one,
                Client("127.0.0.1", node.port, client_id="by-tcp") as other,
            ):
                await one.subscribe("x")
                await other.publish("x", "1")
                assert await received(one, 1) == ["x 1"]

        asyncio.run(scenario())
        [web] = [line for line in node.said().splitlines() if "(WebSocket)" in line]
        with socket.create_connection(("127.0.0.1", int(web.split(" port ")[1].split()[0])), timeout=LONG):
            pass
        assert node.end() == 0
        assert not path.exists()


def test_settings_are_read_again_by_all(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("max_connections = 1000\n")
    with WorkersNode(tmp_path, "--config", config) as node:
        config.write_text("max_connections = 1001\nworkers = 5\n")
        assert node.process is not None
        node.process.send_signal(signal.SIGHUP)
        node.until(lambda: node.said().count("changed: max_connections") == 2, "both workers read them")
        assert len(node.workers()) == 2
