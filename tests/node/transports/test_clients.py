"""Other people's clients over each transport: paho, and mosquitto_pub and mosquitto_sub."""

from __future__ import annotations

import queue
import subprocess
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.brokers import find_mosquitto

from .serving import HOST, PATIENCE, Authority, Served, serving

TRANSPORTS = ("tcp", "tls", "ws", "wss", "unix")


def listener(transport: str, authority: Authority, folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"unix": str(folder / "mqtt.sock")} if transport == "unix" else {}
    if transport in ("ws", "wss"):
        row["protocol"] = "websocket"
    if transport in ("tls", "wss"):
        row["tls"] = authority.server()
    return row


def paho_client(transport: str, authority: Authority, served: Served, version: int) -> paho.Client:
    kinds: dict[str, Any] = {"ws": "websockets", "wss": "websockets", "unix": "unix"}
    client = paho.Client(
        CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion(version), transport=kinds.get(transport, "tcp")
    )
    if transport in ("tls", "wss"):
        client.tls_set_context(authority.trusting())
    if transport == "unix":
        client.connect(served.broker.listeners[0].settings.unix, 1883)
    else:
        client.connect(HOST, served.port())
    return client


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_paho(transport: str, version: int, authority: Authority, tmp_path: Path) -> None:
    with serving(listener(transport, authority, tmp_path)) as served:
        client = paho_client(transport, authority, served, version)
        subscribed: queue.Queue[object] = queue.Queue()
        messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        client.on_subscribe = lambda *arguments: subscribed.put(arguments)
        client.on_message = lambda client, data, message: messages.put(message)
        client.loop_start()
        try:
            client.subscribe("t/#", 2)
            subscribed.get(timeout=PATIENCE)
            sent = [(f"t/{qos}", bytes(range(256)) * size, qos) for qos in (0, 1, 2) for size in (0, 1, 300)]
            for topic, payload, qos in sent:
                client.publish(topic, payload, qos).wait_for_publish(PATIENCE)
            got = [messages.get(timeout=PATIENCE) for _ in sent]
            assert [(each.topic, each.payload, each.qos) for each in got] == sent
        finally:
            client.disconnect()
            client.loop_stop()
        served.wait_until(lambda: not served.broker.server.channels)


@pytest.mark.parametrize("certificate", [False, True], ids=["anonymous", "client certificate"])
def test_mosquitto_over_tls(certificate: bool, authority: Authority) -> None:
    tls = authority.server() | ({"client_certificates": "required", "ca": authority.file} if certificate else {})
    with serving({"tls": tls}) as served:
        common = ["-h", "localhost", "-p", str(served.port()), "--cafile", authority.file, "-t", "t", "-q", "1"]
        if certificate:
            client = authority.client("mosquitto")
            common += ["--cert", client["certificate"], "--key", client["key"]]
        reader = subprocess.Popen(
            [find_mosquitto("mosquitto_sub"), *common, "-C", "1", "-i", "r"], stdout=subprocess.PIPE
        )
        try:
            served.wait_until(lambda: served.broker.statistics().subscriptions == 1)
            subprocess.run([find_mosquitto("mosquitto_pub"), *common, "-m", "hello"], check=True, timeout=PATIENCE)
            assert reader.communicate(timeout=PATIENCE)[0] == b"hello\n"
        finally:
            reader.kill()
            reader.communicate()
