"""The public MQTT client: `async with Client(...) as client`, `async for message in client.messages`."""

from __future__ import annotations

from headwater.client.client import Client
from headwater.client.errors import ConnectError, Disconnected, MqttError, Rejected
from headwater.wire.packets import V5, V311, Properties, Publish, SubscribeRequest, Will

__all__ = [
    "V5",
    "V311",
    "Client",
    "ConnectError",
    "Disconnected",
    "MqttError",
    "Properties",
    "Publish",
    "Rejected",
    "SubscribeRequest",
    "Will",
]
