"""The public MQTT client: `async with Client(...) as client`, `async for message in client.messages`.

`SyncClient` is the same for programs without an event loop.
"""

from __future__ import annotations

from headwater.client.authentication import Authentication
from headwater.client.client import Client
from headwater.client.errors import ConnectError, Disconnected, MqttError, Rejected
from headwater.client.message import Message
from headwater.client.ping import PingSender, StatusPingSender
from headwater.client.reconnect import Reconnect
from headwater.client.sync import Client as SyncClient
from headwater.wire.packets import V5, V311, Properties, Publish, SubscribeRequest, Will

__all__ = [
    "V5",
    "V311",
    "Authentication",
    "Client",
    "ConnectError",
    "Disconnected",
    "Message",
    "MqttError",
    "PingSender",
    "Properties",
    "Publish",
    "Reconnect",
    "Rejected",
    "StatusPingSender",
    "SubscribeRequest",
    "SyncClient",
    "Will",
]
