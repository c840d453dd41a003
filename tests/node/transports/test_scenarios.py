"""A slice of the wire scenarios (tests/broker), exact bytes and all, over TLS, WebSocket and both."""

from __future__ import annotations

import inspect
import secrets
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.broker import test_05_headers, test_11_disconnect, test_40_qos_exchanges, test_43_order
from tests.broker.peer import Target

from .serving import HOST, Authority, Served, WebSocketClient, raw, secured, serving

OWN_BROKER = {"own_broker", "broker_with"}
MODULES = (test_05_headers, test_11_disconnect, test_40_qos_exchanges, test_43_order)


def scenarios() -> Iterator[tuple[str, object]]:
    """Those of the modules that need no broker of their own; two modules may use the same name."""
    for module in MODULES:
        number = module.__name__.rpartition("test_")[2][:2]
        for name, found in vars(module).items():
            if name.startswith("test_") and not OWN_BROKER & inspect.signature(found).parameters.keys():
                yield f"test_{number}_{name.removeprefix('test_')}", found


globals().update(scenarios())


class Door(Target):
    """A listener of the broker; `layers` are what its clients have to speak."""

    layers: tuple[Authority, bool, bool]

    def open(self, deadline: float) -> socket.socket:
        authority, tls, web = self.layers
        connection: Any = raw(self.port)
        if tls:
            connection = secured(connection, authority.trusting())
        return cast(socket.socket, WebSocketClient(connection, frame=1000) if web else connection)


@pytest.fixture(scope="module")
def served(authority: Authority) -> Iterator[Served]:
    with serving(
        {"tls": authority.server()},
        {"protocol": "websocket"},
        {"protocol": "websocket", "tls": authority.server()},
    ) as served:
        yield served


@pytest.fixture(params=[0, 1, 2], ids=["tls", "ws", "wss"])
def target(request: pytest.FixtureRequest, served: Served, authority: Authority) -> Target:
    door = Door(HOST, served.port(request.param), True)
    door.layers = (authority, request.param != 1, request.param != 0)
    return door


@pytest.fixture
def name() -> str:
    return "s" + secrets.token_hex(5)
