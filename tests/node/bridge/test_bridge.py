"""A bridge between two brokers of ours."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trustme

from headwater.client import V5, V311, Client, ConnectError, Properties
from headwater.message import Message
from headwater.node import Broker
from headwater.node.bridge.path import PATH
from headwater.node.plane.channel import Channel
from headwater.wire.packets import SubscribeRequest
from headwater.wire.reasons import SERVER_BUSY
from tests.client.scripted import run, until
from tests.node.bridge.scene import HOST, bridge, broker, client, reload, said, take, until_up

PROTOCOLS = pytest.mark.parametrize("protocol", ["5.0", "3.1.1"])
BOTH = {"filter": "#", "direction": "both", "qos": 2, "local_prefix": "here/", "remote_prefix": "there/"}


@PROTOCOLS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_go_both_ways_under_new_names_and_do_not_come_back(protocol: str, qos: int) -> None:
    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port, BOTH, protocol=protocol)) as near:
            await until_up(near)
            async with client(far.port, "#") as there, client(near.port, "#") as here:
                await here.publish("elsewhere/a", "no", qos=qos)
                await here.publish("here/a", "out", qos=qos)
                assert said(await take(there, 1)) == [("there/a", b"out")]
                # What would come back of it has to come before this.
                await there.publish("there/b", "in", qos=qos)
                *own, came = await take(here, 3)
                assert said(own) == [("elsewhere/a", b"no"), ("here/a", b"out")]
                assert (came.topic, came.payload, came.qos) == ("here/b", b"in", qos)
                await here.publish("here/c", "end", qos=qos)
                assert said(await take(there, 2)) == [("there/b", b"in"), ("there/c", b"end")]
                assert said(await take(here, 1)) == [("here/c", b"end")]
                [view] = near.bridges.views()
                await until(lambda: near.bridges.views()[0].waiting == 0)
                assert (view.sent.forwarded, view.received.forwarded) == (2, 1)
                assert (view.sent.dropped, view.received.dropped) == (0, 0)
                assert (view.up, view.error) == (True, "")

    run(scenario())


@PROTOCOLS
def test_each_topic_is_subscribed_to_by_a_packet_of_its_own(protocol: str) -> None:
    """Some brokers take only a few filters in one."""
    topics = [{"filter": f"{name}/#", "direction": "in", "qos": 1} for name in "abc"]
    asked: list[list[str]] = []

    def note(requests: list[SubscribeRequest], _: object) -> list[SubscribeRequest]:
        asked.append([request.filter for request in requests])
        return requests

    async def scenario() -> None:
        async with broker() as far:
            far.hooks.add("subscribe", note)
            async with broker(bridge(far.port, *topics, protocol=protocol)) as near:
                await until_up(near)

    run(scenario())
    assert asked == [["a/#"], ["b/#"], ["c/#"]]


def test_qos_is_that_of_the_entry_at_most() -> None:
    topics = [{"filter": f"q{qos}/#", "direction": "both", "qos": qos} for qos in (0, 1, 2)]

    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port, *topics)) as near:
            await until_up(near)
            async with client(far.port, "#") as there, client(near.port) as here:
                for entry in (0, 1, 2):
                    for qos in (0, 1, 2):
                        await here.publish(f"q{entry}/a", b"", qos=qos)
                        [came] = await take(there, 1)
                        assert (came.topic, came.qos) == (f"q{entry}/a", min(entry, qos))

    run(scenario())


def test_what_belongs_to_a_message_goes_with_it() -> None:
    properties = Properties(
        payload_format_indicator=1,
        message_expiry_interval=100,
        content_type="text/plain",
        response_topic="answers",
        correlation_data=b"17",
        user_properties=[("colour", "red"), ("colour", "blue")],
    )

    async def scenario() -> None:
        async with broker(broker_id="far") as far, broker(bridge(far.port), broker_id="near") as near:
            await until_up(near)
            async with client(far.port, "#") as there, client(near.port, "#") as here:
                for publisher, reader, left in ((here, there, "near"), (there, here, "far")):
                    await publisher.publish("a", "x", qos=1, properties=properties)
                    [came] = await take(reader, 1)
                    expected = [*properties.user_properties, (PATH, left)]
                    assert came.properties == Properties(
                        **{**vars_of(properties), "user_properties": expected, "message_expiry_interval": 100}
                    )
                    await take(publisher, 1)

    run(scenario())


def vars_of(properties: Properties) -> dict[str, Any]:
    names = ("payload_format_indicator", "content_type", "response_topic", "correlation_data")
    return {name: getattr(properties, name) for name in names}


@PROTOCOLS
def test_retained_messages_are_retained_on_both_sides(protocol: str) -> None:
    """Those that were there before the bridge, those that come over it, and their end. The remote keeps the flag in
    3.1.1 because it is told that this is a bridge."""

    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port, protocol=protocol)) as near:
            far.publish(Message("old/far", b"1", 0, True))
            near.publish(Message("old/near", b"2", 0, True))
            await until_up(near)
            async with client(far.port) as there, client(near.port) as here:
                await there.publish("new/far", "3", retain=True)
                await here.publish("new/near", "4", retain=True)
                topics = ["old/far", "old/near", "new/far", "new/near"]
                for each in (far, near):
                    await until(lambda each=each: all(held(each, topic) for topic in topics))  # type: ignore[misc]
                await here.publish("new/far", "", retain=True)
                await there.publish("new/near", "", retain=True)
                for each in (far, near):
                    await until(lambda each=each: not held(each, "new/far") and not held(each, "new/near"))  # type: ignore[misc]
                assert held(far, "old/near") and held(near, "old/far")

    run(scenario())


def held(found: Broker, topic: str) -> bytes | None:
    message = found.server.router.retained.get(topic)
    return None if message is None else message.payload


def test_retained_messages_may_be_sent_as_ordinary_ones() -> None:
    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port, outgoing_retain=False)) as near:
            await until_up(near)
            async with client(far.port, "#") as there, client(near.port) as here:
                await here.publish("a", "x", qos=1, retain=True)
                [came] = await take(there, 1)
                assert not came.retain and held(far, "a") is None and held(near, "a") == b"x"

    run(scenario())


def test_a_remote_that_has_forgotten_us_gets_our_retained_messages_again() -> None:
    async def scenario() -> None:
        async with broker() as far:
            port = far.port
            async with broker(bridge(port)) as near:
                await until_up(near)
                near.publish(Message("a", b"x", 1, True))
                await until(lambda: held(far, "a"))
                await far.stop()
                async with broker(port=port) as again:
                    await until(lambda: held(again, "a"))

    run(scenario())


def test_a_broker_that_comes_back_without_its_sessions_sends_its_retained_messages_again() -> None:
    """The remote still knows the bridge; but what happened here meanwhile, no session has kept."""

    async def scenario() -> None:
        async with broker() as far:
            entry = bridge(far.port, client_id="me")
            async with broker(entry) as near:
                await until_up(near)
            async with broker() as near:
                near.publish(Message("a", b"x", 1, True))
                reload(near, entry)
                await until(lambda: held(far, "a"))
                assert "me" in far.server.sessions

    run(scenario())


def test_what_the_remote_does_not_take_is_lost_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port)) as near:
            far.hooks.add("acl_check", lambda channel, topic, write: topic != "no")
            await until_up(near)
            async with client(far.port, "#") as there, client(near.port) as here:
                for topic in ("no", "no", "yes"):
                    await here.publish(topic, "x", qos=1)
                assert said(await take(there, 1)) == [("yes", b"x")]
                [view] = near.bridges.views()
                await until(lambda: near.bridges.views()[0].sent.forwarded == 1)
                assert view.sent.rejected == 2

    run(scenario())
    assert [each.message for each in caplog.records if "was not taken" in each.message] != []
    assert len([each for each in caplog.records if "was not taken" in each.message]) == 1


def test_what_is_too_large_for_the_remote_is_dropped() -> None:
    async def scenario() -> None:
        async with (
            broker(max_packet_size=2000) as far,
            broker(bridge(far.port), bridge(far.port, name="small", client_id="s", max_packet_size=300)) as near,
        ):
            await until_up(near)
            async with client(far.port, "#") as there, client(near.port) as here:
                for size in (5000, 1000, 10):
                    await here.publish("a", b"x" * size, qos=1)
                assert sorted(len(each.payload) for each in await take(there, 3)) == [10, 10, 1000]
                large, small = near.bridges.views()
                assert (large.sent.rejected, small.sent.dropped) == (1, 2)

    run(scenario())


def test_what_our_own_broker_would_not_take_is_dropped() -> None:
    """A topic with too many levels would end the local connection, again and again."""

    async def scenario() -> None:
        entry = {"filter": "#", "direction": "in", "local_prefix": "a/b/"}
        async with broker() as far, broker(bridge(far.port, entry), max_topic_levels=4, max_topic_length=20) as near:
            await until_up(near)
            async with client(far.port) as there, client(near.port, "#") as here:
                await there.publish("c/d/e", "no", qos=1)
                await there.publish("c" * 20, "no", qos=1)
                await there.publish("c/d", "yes", qos=1)
                assert said(await take(here, 1)) == [("a/b/c/d", b"yes")]
                [view] = near.bridges.views()
                assert view.received.dropped == 2 and view.received.rejected == 0

    run(scenario())


def test_a_broker_that_does_less_gets_what_it_can() -> None:
    async def scenario() -> None:
        async with (
            broker(max_qos=1, retain_available=False) as far,
            broker(bridge(far.port, notifications="none")) as near,
        ):
            await until_up(near)
            async with client(far.port, "#") as there, client(near.port) as here:
                await here.publish("a", "x", qos=2, retain=True)
                [came] = await take(there, 1)
                assert (came.qos, came.retain) == (1, False)
                await until(lambda: near.bridges.views()[0].waiting == 0)

    run(scenario())


def test_a_subscription_that_was_refused_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    refused = {"a/#"}
    asked: list[str] = []
    topics = [{"filter": f"{name}/#", "direction": "in", "qos": 1} for name in "ab"]

    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port, *topics, client_id="me")) as near:
            far.hooks.add("acl_check", lambda channel, topic, write: topic not in refused)
            far.hooks.add("subscribe", lambda requests, channel: asked.extend(each.filter for each in requests))
            await until_up(near)
            assert set(far.server.sessions["me"].subscriptions) == {"b/#"}
            refused.clear()
            far.disconnect("me", SERVER_BUSY)
            await until(lambda: set(far.server.sessions["me"].subscriptions) == {"a/#", "b/#"})

    run(scenario())
    assert asked == ["a/#", "b/#", "a/#"]
    assert "bridge 'north' may not subscribe to 'a/#' at the remote" in caplog.text


# ---- who may ---------------------------------------------------------------------------------------------------


def test_the_rules_of_access_do_not_hold_for_the_bridge_at_its_own_broker(tmp_path: Path) -> None:
    """They hold for whom it serves; and nobody else comes in by its name."""
    rules = tmp_path / "acl"
    rules.write_text("topic readwrite open/#\n")
    settings = {"access": {"acl_file": str(rules), "message_rate": 1}}

    async def scenario() -> None:
        async with broker() as far, broker(bridge(far.port), allow_anonymous=True, **settings) as near:
            await until_up(near)
            async with client(far.port) as there, client(near.port) as here:
                await here.subscribe("open/#", qos=1)
                for number in range(5):
                    await there.publish("secret/a", f"{number}", qos=1)
                await there.publish("open/a", "x", qos=1)
                await take(here, 1)
                await until(lambda: near.bridges.views()[0].received.forwarded == 6)
                connection = near.server.sessions["$bridge/north"].connection
                assert isinstance(connection, Channel)
                assert connection.meter is None and connection.rights is None
                near.reload_access()
                assert connection.meter is None and connection.rights is None
                await there.publish("secret/b", "x", qos=1)
                await until(lambda: near.bridges.views()[0].received.forwarded == 7)
                with pytest.raises(ConnectError, match="client identifier not valid"):
                    await Client(HOST, near.port, client_id="$bridge/north").connect()
                assert near.bridges.views()[0].up

    run(scenario())


def test_user_name_and_password(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker() as far:

            def check(channel: Any, packet: Any) -> bool:
                return bool(packet.username == "bridge" and packet.password == b"secret")

            far.hooks.add("connect_authenticate", check)
            wrong = bridge(far.port, name="wrong", username="bridge", password="x", client_id="w")
            async with broker(bridge(far.port, username="bridge", password="secret"), wrong) as near:
                await until(lambda: near.bridges.views()[0].up and "refused" in near.bridges.views()[1].error)
                assert "not authorized" in near.bridges.views()[1].error
                assert not near.bridges.views()[1].up

    run(scenario())


def test_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    files = {name: str(tmp_path / name) for name in ("ca", "other", "server", "server.key", "client", "client.key")}
    authority.cert_pem.write_to_path(files["ca"])
    other.cert_pem.write_to_path(files["other"])
    for name, certificate in (("server", authority.issue_cert("127.0.0.1")), ("client", authority.issue_cert("me"))):
        certificate.cert_chain_pems[0].write_to_path(files[name])
        certificate.private_key_pem.write_to_path(files[f"{name}.key"])
    listener = {
        "host": HOST,
        "port": 0,
        "tls": {
            "certificate": files["server"],
            "key": files["server.key"],
            "client_certificates": "required",
            "ca": files["ca"],
            "username": "san",
        },
    }
    ours = {"certificate": files["client"], "key": files["client.key"]}

    async def scenario() -> None:
        async with broker(listeners=[listener]) as far:
            port = far.listeners[1].port
            good = bridge(port, tls={"ca": files["ca"], **ours, "alpn": "mqtt"})
            stranger = bridge(port, name="stranger", client_id="s", tls={"ca": files["other"], **ours})
            async with broker(good, stranger) as near:
                await until(
                    lambda: (
                        near.bridges.views()[0].up and "certificate is not accepted" in near.bridges.views()[1].error
                    )
                )

    run(scenario())


def test_over_websocket() -> None:
    listener = {"host": HOST, "port": 0, "protocol": "websocket", "websocket_path": "/mqtt"}

    async def scenario() -> None:
        async with (
            broker(listeners=[listener]) as far,
            broker(bridge(far.listeners[1].port, websocket_path="/mqtt")) as near,
        ):
            await until_up(near)

    run(scenario())


# ---- what can be seen ------------------------------------------------------------------------------------------


def test_the_state_is_published_here_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headwater.bridge")
    topic = "$SYS/broker/connection/me/state"

    async def scenario() -> None:
        async with broker() as far:
            port = far.port
            async with broker(bridge(port, client_id="me")) as near, client(near.port, topic) as here:
                assert (await take(here, 2))[-1].payload == b"1" or held(near, topic) == b"1"
                await far.stop()
                while (await anext(here.messages)).payload != b"0":
                    pass
                assert held(near, topic) == b"0"
                await until(lambda: "nobody listens there" in near.bridges.views()[0].error)
                assert not near.bridges.views()[0].up
                async with broker(port=port):
                    assert (await anext(here.messages)).payload == b"1"

    run(scenario())
    said = [each.getMessage() for each in caplog.records if each.name == "headwater.bridge"]
    assert [text.split(":")[0] for text in said] == ["bridge 'north' is up", "bridge 'north' is down"] * 2


def test_another_topic_for_the_state_and_none() -> None:
    async def scenario() -> None:
        async with broker() as far:
            several = [
                bridge(far.port, notification_topic="bridges/north"),
                bridge(far.port, name="b", client_id="b", notification_topic="bridges/b", notifications="local"),
                bridge(far.port, name="c", client_id="c", notification_topic="bridges/c", notifications="none"),
            ]
            for each in several:
                each["topics"] = [{"filter": "none"}]
            async with broker(*several) as near:
                await until_up(near)
                await until(lambda: held(far, "bridges/north") == b"1")
                assert [held(near, f"bridges/{name}") for name in ("north", "b", "c")] == [b"1", b"1", None]
                assert [held(far, f"bridges/{name}") for name in ("b", "c")] == [None, None]
                session = far.server.sessions[near.bridges.views()[2].client_id]
                assert session.will is not None and session.will.payload == b"0"
            assert held(far, "bridges/north") == b"0"  # it has left, and said so

    run(scenario())


@pytest.mark.parametrize("version", [V311, V5])
def test_the_id_of_a_bridge_is_told_to_bridges_only(version: int) -> None:
    async def scenario() -> None:
        async with broker(broker_id="far") as far, client(far.port, version=version) as there:
            assert there.server.user_properties is None

    run(scenario())
