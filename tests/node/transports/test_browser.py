"""MQTT over WebSocket from a real browser (Chromium), alone and together with Paho."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from .browser import Browser, browsing
from .serving import HOST, PATIENCE, Authority, Served, serving

WEB: dict[str, Any] = {"protocol": "websocket"}
CLOSED = {"code": 1000, "clean": True}
REFUSED = {"code": 1006, "clean": False}

every_way = pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
both_versions = pytest.mark.parametrize("version", [4, 5], ids=["3.1.1", "5.0"])


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> dict[str, str]:
    return authority.server("browsed")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, certificate: dict[str, str]) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser"), [certificate["certificate"]]) as browser:
        yield browser


def web(secure: bool, certificate: dict[str, str]) -> dict[str, Any]:
    return WEB | ({"tls": certificate} if secure else {})


def url(served: Served, secure: bool, path: str = "/mqtt") -> str:
    return f"{'wss' if secure else 'ws'}://{HOST}:{served.port()}{path}"


@both_versions
@every_way
def test_messages(browser: Browser, certificate: dict[str, str], secure: bool, version: int) -> None:
    sizes = [0, 1, 256, 65_535, 100_000, 1_000_000]
    with serving(web(secure, certificate)) as served:
        said = browser.run("messages", url=url(served, secure), version=version, sizes=sizes)
        served.wait_until(lambda: not served.broker.server.channels)
    assert said["protocol"] == "mqtt"  # [MQTT-6.0.0-4]
    assert said["granted"] == 1
    assert said["got"] == [[f"browser/{size}", 1, size, True, number] for number, size in enumerate(sizes, 1)]
    assert said["closed"] == CLOSED


@both_versions
@every_way
def test_packets_in_pieces(browser: Browser, certificate: dict[str, str], secure: bool, version: int) -> None:
    """[MQTT-6.0.0-2] A packet may span frames."""
    with serving(web(secure, certificate)) as served:
        said = browser.run("pieces", url=url(served, secure), version=version, size=100_000)
    assert said["large"] == [100_000, True]
    assert said["lengths"] == list(range(50))
    assert said["frames"] < 50, "several messages in one frame are not what was tested"
    assert said["closed"] == CLOSED


@every_way
def test_with_paho(browser: Browser, authority: Authority, certificate: dict[str, str], secure: bool) -> None:
    payload = bytes((number * 7 + 3) & 255 for number in range(100_000))
    with serving(web(secure, certificate)) as served:
        client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5, transport="websockets")
        if secure:
            client.tls_set_context(authority.trusting())
        messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        subscribed: queue.Queue[object] = queue.Queue()

        def arrived(client: paho.Client, data: object, message: paho.MQTTMessage) -> None:
            messages.put(message)
            client.publish("to/browser", message.payload, 1)

        client.on_message = arrived
        client.on_subscribe = lambda *arguments: subscribed.put(arguments)
        client.connect(HOST, served.port())
        client.loop_start()
        try:
            client.subscribe("from/browser", 2)
            subscribed.get(timeout=PATIENCE)
            said = browser.run("exchange", url=url(served, secure), version=4, size=100_000)
            message = messages.get(timeout=PATIENCE)
        finally:
            client.disconnect()
            client.loop_stop()
    assert (message.payload, message.qos) == (payload, 1)
    assert said == {"got": ["to/browser", 100_000, True], "closed": CLOSED}


def test_only_pages_of_named_origins_are_let_in(browser: Browser) -> None:
    with serving(WEB | {"websocket_origins": [browser.origin]}) as served:
        assert browser.run("open", url=url(served, False), protocol="mqtt") == {"opened": True, "closed": CLOSED}
    with serving(WEB | {"websocket_origins": ["https://example.org"]}) as served:
        assert browser.run("open", url=url(served, False), protocol="mqtt") == {"opened": False, "closed": REFUSED}


@pytest.mark.parametrize(("path", "protocol"), [("/other", "mqtt"), ("/mqtt", "wamp")])
def test_what_is_not_served(browser: Browser, path: str, protocol: str) -> None:
    """[MQTT-6.0.0-3] among others."""
    with serving(WEB) as served:
        said = browser.run("open", url=url(served, False, path), protocol=protocol)
    assert said == {"opened": False, "closed": REFUSED}


@every_way
def test_the_broker_ends_it_in_good_order(browser: Browser, certificate: dict[str, str], secure: bool) -> None:
    with serving(web(secure, certificate)) as served:
        said = browser.run("ended", url=url(served, secure))
    assert said == {"reason": 0x82, "closed": CLOSED}
