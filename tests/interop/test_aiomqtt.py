"""aiomqtt against our broker."""

from __future__ import annotations

import asyncio
import contextlib

import aiomqtt
import pytest

PATIENCE = 15.0


@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5], ids=["3.1.1", "5.0"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_and_receive(port: int, version: aiomqtt.ProtocolVersion, qos: int) -> None:
    async def main() -> list[bytes]:
        received = []
        async with aiomqtt.Client("127.0.0.1", port, protocol=version) as client:
            await client.subscribe("aiomqtt/#", qos)
            for number in range(20):
                await client.publish(f"aiomqtt/{number}", f"{number}", qos)
            async for message in client.messages:
                assert str(message.topic) == f"aiomqtt/{len(received)}"
                assert isinstance(message.payload, bytes)
                received.append(message.payload)
                if len(received) == 20:
                    break
        return received

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE)) == [b"%d" % number for number in range(20)]


def test_will(port: int) -> None:
    async def main() -> bytes:
        async with aiomqtt.Client("127.0.0.1", port) as reader:
            await reader.subscribe("aiomqtt-will", 1)
            dying = aiomqtt.Client("127.0.0.1", port, will=aiomqtt.Will("aiomqtt-will", "gone", 1))
            await dying.__aenter__()
            socket = dying._client.socket()
            assert socket is not None
            socket.shutdown(2)
            async for message in reader.messages:
                assert isinstance(message.payload, bytes)
                break
            with contextlib.suppress(aiomqtt.MqttError):
                await dying.__aexit__(None, None, None)
            return message.payload

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE)) == b"gone"
