"""Clients that come with a secret: helpers for a broker in memory whose files say who may do what."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from pathlib import Path
from typing import Any

from headwater.node.access.settings import AccessSettings
from headwater.node.config import Config
from headwater.wire.packets import Connack, Connect, Packet
from tests.node.memory import Client, MemoryBroker

SECRET = "a secret of at least thirty-two bytes, for tests"


def quick_hash(password: str) -> str:
    """Of the kind that costs nothing to verify."""
    salt = b"salt-of-tests"
    digest = hashlib.sha512(password.encode() + salt).digest()
    return f"$6${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def users_file(folder: Path, **passwords: str) -> str:
    path = folder / "users"
    path.write_text("".join(f"{user}:{quick_hash(password)}\n" for user, password in passwords.items()))
    path.chmod(0o600)
    return str(path)


def rules_file(folder: Path, text: str) -> str:
    path = folder / "rules"
    path.write_text(text)
    return str(path)


def key_file(folder: Path, text: str = SECRET) -> str:
    path = folder / "key"
    path.write_text(text)
    return str(path)


def broker_with(
    *, hot: bool = True, hooks: Any = None, others: dict[str, Any] | None = None, **access: Any
) -> MemoryBroker:
    config = Config(**{"sys_interval": 0, **(others or {}), "access": AccessSettings(**access)})
    return MemoryBroker(config, hooks, hot=hot)


async def settled(client: Client) -> None:
    """Until it is decided whether the client may come in."""
    while client.channel.busy:
        await asyncio.sleep(0.001)
    client.broker.turn()


async def arrive(broker: MemoryBroker, packet: Connect, identity: str | None = None) -> tuple[Client, Connack]:
    """A client connects and is answered; `identity` is what its certificate says."""
    client = Client(broker)
    client.channel.identity = identity
    client.version = packet.version
    client.send(packet)
    await settled(client)
    answer, *behind = client.packets()
    assert isinstance(answer, Connack)
    client._behind_connack = behind
    return client, answer


def of_kind(client: Client, kind: type[Packet]) -> list[Packet]:
    return [packet for packet in client.packets() if isinstance(packet, kind)]
