"""All bridges of a broker: changed on reload, looked at from outside, and never the end of each other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Client, Reconnect
from headwater.node import Broker, Config
from headwater.node.bridge.bridge import Bridge
from headwater.node.bridge.inside import Inside
from headwater.node.bridge.view import BridgeView, Traffic
from headwater.node.config import ConfigError
from headwater.node.operations.metrics import families, registry_of_broker
from headwater.node.persistence.memory import MemoryBackend
from tests.brokers import free_port
from tests.client.scripted import run, until
from tests.node.admin.api import Api
from tests.node.bridge.scene import HOST, bridge, broker, client, reload, said, take, until_up
from tests.node.bridge.test_bridge import held

A = {"filter": "a/#", "direction": "both", "qos": 1}
B = {"filter": "b/#", "direction": "both", "qos": 1}


def names(near: Broker) -> list[str]:
    return [view.name for view in near.bridges.views()]


def test_bridges_come_and_go_on_reload() -> None:
    async def scenario() -> None:
        async with broker() as far, broker() as near:
            assert near.bridges.views() == []
            reload(near, bridge(far.port, A, client_id="me"))
            await until(lambda: near.bridges.views() and near.bridges.views()[0].up)
            reload(near, bridge(far.port, A, client_id="me"), bridge(far.port, B, name="south", client_id="you"))
            await until(lambda: len(near.bridges.views()) == 2 and all(view.up for view in near.bridges.views()))
            reload(near, bridge(far.port, B, name="south", client_id="you"))
            await until(lambda: names(near) == ["south"] and "$bridge/north" not in near.server.sessions)
            await until(lambda: "me" not in far.server.sessions)
            assert held(near, "$SYS/broker/connection/me/state") is None
            assert near.bridges.views()[0].up and "you" in far.server.sessions
            reload(near)
            await until(lambda: not near.bridges.views() and "you" not in far.server.sessions)

    run(scenario())


def test_a_bridge_that_does_not_change_goes_on_undisturbed() -> None:
    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port, A)) as near:
            await until_up(near)
            before = near.bridges._bridges._running["north"]  # type: ignore[union-attr]
            reload(near, bridge(far.port, A), bridge(far.port, B, name="south", client_id="you"))
            await until(lambda: len(near.bridges.views()) == 2)
            assert near.bridges._bridges._running["north"] is before  # type: ignore[union-attr]

    run(scenario())


def test_nobody_is_served_before_the_bridge_keeps_what_comes() -> None:
    """From the first message on, what is to go out waits for the remote, wherever that is."""
    port = free_port()
    connected: list[tuple[str, bool]] = []

    async def scenario() -> None:
        near = Broker(Config(host=HOST, port=port, sys_interval=0, bridges=[bridge(free_port(), A)]))
        sessions = near.server.sessions

        def note(found: Any, _: object) -> None:
            kept = sessions.get("$bridge/north")
            connected.append((found.client_id, kept is not None and "a/#" in kept.subscriptions))

        near.hooks.add("connect", note)
        starting = asyncio.create_task(near.start())
        async with client(port, client_id="early", reconnect=Reconnect(0.001, 0.001, from_start=True)):
            await starting
            assert "a/#" in sessions["$bridge/north"].subscriptions
        await near.stop()

    run(scenario())
    assert connected[0] == ("$bridge/north", False)
    assert connected[-1] == ("early", True)


def test_a_bridge_whose_topics_change_keeps_what_waits_and_unsubscribes_from_the_rest() -> None:
    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port, A, client_id="me")) as near:
            await until_up(near)
            reload(near, bridge(far.port, B, client_id="me"))
            await until(lambda: set(far.server.sessions["me"].subscriptions) == {"b/#"})
            await until(lambda: set(near.server.sessions["$bridge/north"].subscriptions) == {"b/#"})
            await until_up(near)
            async with client(far.port, "#") as there, client(near.port) as here:
                await here.publish("a/x", "no", qos=1)
                await here.publish("b/x", "yes", qos=1)
                assert said(await take(there, 1)) == [("b/x", b"yes")]

    run(scenario())


def test_another_client_id_ends_the_old_session_at_the_remote() -> None:
    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port, A, client_id="me")) as near:
            await until_up(near)
            reload(near, bridge(far.port, A, client_id="you"))
            await until(lambda: set(far.server.sessions) == {"you"})
            reload(near, bridge(far.port, B, client_id="you"))
            await until(lambda: far.server.sessions["you"].subscriptions.keys() == {"b/#"})

    run(scenario())


def test_what_waits_goes_to_the_new_address() -> None:
    async def scenario() -> None:
        async with broker() as far, broker(bridge(free_port(), A)) as near, client(near.port) as here:
            await here.publish("a/x", "1", qos=1)
            assert near.bridges.views()[0].waiting == 1
            async with client(far.port, "#") as there:
                reload(near, bridge(far.port, A))
                assert said(await take(there, 1)) == [("a/x", b"1")]

    run(scenario())


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port, A)) as near:
            await until_up(near)
            reload(near, bridge(far.port, B, username="u", password_file=str(tmp_path / "none")))
            assert near.config.bridges[0].topics[0].filter == "a/#"
            assert near.bridges.views()[0].up

    run(scenario())
    assert "a file cannot be used, and the settings stay as they are: bridge 'north'" in caplog.text


def test_a_password_that_changes_in_its_file_is_used(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("old")
    seen: list[bytes] = []

    async def scenario() -> None:
        async with broker() as far:
            far.hooks.add("connect", lambda channel, packet: seen.append(packet.password))
            entry = bridge(far.port, A, username="u", password_file=str(path))
            async with broker(entry) as near:
                await until_up(near)
                reload(near, entry)
                path.write_text("new")
                reload(near, entry)
                await until(lambda: seen == [b"old", b"new"])

    run(scenario())


def test_a_file_that_cannot_be_read_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    async def scenario() -> None:
        entry = bridge(1883, username="u", password_file=str(tmp_path / "none"))
        with pytest.raises(ConfigError, match="bridge 'north': password_file"):
            await Broker(Config(port=0, bridges=[entry])).start()

    run(scenario())


def test_a_bridge_that_is_not_enabled_is_not_there() -> None:
    async def scenario() -> None:
        async with broker(bridge(1883, enabled=False)) as near:
            assert near.bridges.views() == []

    run(scenario())


def test_sessions_that_a_bridge_of_old_left_are_removed() -> None:
    """It was taken from the settings while the broker did not run."""

    async def scenario() -> None:
        async with broker() as far, broker() as near:
            way_in = Inside(near.server, "old").open
            async with Client(open_socket=way_in, client_id="$bridge/old", session_expiry=1000):
                pass
            async with client(near.port, client_id="somebody", session_expiry=1000):
                pass
            assert set(near.server.sessions) == {"$bridge/old", "somebody"}
            reload(near, bridge(far.port, A))
            await until(lambda: set(near.server.sessions) == {"$bridge/north", "somebody"})

    run(scenario())


def test_sessions_of_bridges_go_when_no_bridge_is_left() -> None:
    async def scenario() -> None:
        backend = MemoryBackend()
        async with broker() as far:
            config = Config(host=HOST, port=0, sys_interval=0, bridges=[bridge(far.port, A)])
            async with Broker(config, backend=backend) as near:
                await until_up(near)
            for bridges in (config.bridges, []):
                backend = backend.crashed(None)
                async with Broker(config.model_copy(update={"bridges": bridges}), backend=backend) as near:
                    assert ("$bridge/north" in near.server.sessions) == bool(bridges)

    run(scenario())


def test_nothing_starts_after_the_end() -> None:
    async def scenario() -> None:
        async with broker() as far:
            async with broker(bridge(far.port, A)) as near:
                await until_up(near)
            await near.bridges.use(near.bridges.prepare(near.config))
            assert near.bridges.views() == []

    run(scenario())


def test_a_bridge_that_fails_begins_anew(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """That would be a mistake of ours."""
    greet = Bridge._greet
    failures = [RuntimeError("a mistake")]

    async def fail_once(self: Bridge) -> None:
        if failures:
            raise failures.pop()
        await greet(self)

    monkeypatch.setattr(Bridge, "_greet", fail_once)

    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port, A)) as near:
            await until_up(near)
            assert near.statistics().failures == 1

    run(scenario())
    assert "bridge 'north' failed; it begins anew in 0.05 s" in caplog.text


VIEWS = [
    BridgeView("north", ["h"], "me", "", True, 0, Traffic(5, 2, 1), Traffic(7, 0, 0)),
    BridgeView("south", ["h"], "you", "why", False, 9, Traffic(), Traffic()),
]


def test_the_admin_api_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()
    assert api.get("/v1/bridges") == []
    monkeypatch.setattr(api.broker.bridges, "views", lambda: VIEWS)
    north, south = api.get("/v1/bridges")
    assert (north["up"], north["sent"]) == (True, {"forwarded": 5, "dropped": 2, "rejected": 1})
    assert (south["up"], south["error"], south["waiting"]) == (False, "why", 9)


def test_metrics() -> None:
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families(BridgeView, VIEWS, "bridge")
        for sample in family.samples
    }
    assert samples[("headwater_bridge_up", "north")] == 1
    assert samples[("headwater_bridge_up", "south")] == 0
    assert samples[("headwater_bridge_waiting_messages", "south")] == 9
    assert samples[("headwater_bridge_messages_total", "north", "out", "forwarded")] == 5
    assert samples[("headwater_bridge_messages_total", "north", "out", "dropped")] == 2
    assert samples[("headwater_bridge_messages_total", "north", "out", "rejected")] == 1
    assert samples[("headwater_bridge_messages_total", "north", "in", "forwarded")] == 7
    assert samples[("headwater_bridge_messages_total", "south", "in", "forwarded")] == 0


def test_a_running_bridge_is_in_the_metrics() -> None:
    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port, A)) as near:
            await until_up(near)
            assert registry_of_broker(near).get_sample_value("headwater_bridge_up", {"bridge": "north"}) == 1
            assert registry_of_broker(far).get_sample_value("headwater_bridge_up", {"bridge": "north"}) is None

    run(scenario())


def test_the_client_is_loaded_only_for_bridges() -> None:
    """A broker without them starts as light as before."""
    code = "import sys, headwater.node.run; print([m for m in sys.modules if m.startswith('headwater.client')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
