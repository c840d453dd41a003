"""What a broker can do, found out before the load: what it does not offer is not judged, and is said.

Only what the broker itself denies counts as missing (it refuses the version, grants less, ends the connection): what it
accepts and then does wrong is for the judges. Shared subscriptions are no part of 3.1.1: there, one that delivers
nothing is missing.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import V5, V311, Connack
from headwater_lab.check_broker.client import Client, Surroundings
from headwater_lab.check_broker.connection import Connection, Target
from headwater_lab.check_broker.history import Delivery, History, Outcome, Publication, Subscription

PATIENCE: Final = 3.0
VERSION_NAMES: Final = {V311: "3.1.1", V5: "5.0"}


class CannotRun(Exception):
    """Why there is nothing to judge, and what to do."""


@dataclass(slots=True)
class Features:
    version: int
    qos: int
    """The highest that is taken and granted."""
    retained: bool = True
    shared: bool = True
    remarks: list[str] = field(default_factory=list)


async def find_features(surroundings: Surroundings, version: int | None, wait: float) -> Features:
    """Of the first target; all of them have to answer within `wait` seconds. Raises CannotRun."""
    answers = [await _answer(surroundings, target, version, wait) for target in surroundings.targets]
    surroundings.version = min(found for found, _ in answers)
    features = Features(surroundings.version, 2)
    if version is None and surroundings.version == V311:
        features.remarks.append("MQTT 5.0 is refused: checked with 3.1.1")
    connack = answers[0][1]
    probe = Client(dataclasses.replace(surroundings, history=History()), "probe")
    try:
        await _subscribed(probe, surroundings.targets[0], wait)
        await _probe_qos(probe, surroundings.targets[0], features)
        await _probe_shared(probe, surroundings.targets[0], features)
    finally:
        probe.cut()
    offered = connack.properties
    if offered is not None and offered.retain_available == 0:
        features.retained = False
        features.remarks.append("retained messages are not available: not checked")
    if offered is not None and offered.shared_subscription_available == 0:
        features.shared = False
    if not features.shared:
        features.remarks.append("shared subscriptions are not available: not checked")
    return features


async def _answer(surroundings: Surroundings, target: Target, version: int | None, wait: float) -> tuple[int, Connack]:
    """The version that a target speaks, and its CONNACK."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    problem = "nobody listens"
    while loop.time() < deadline:
        for tried in (V5, V311) if version is None else (version,):
            connack, problem = await _try(surroundings, target, tried)
            if connack is not None:
                return tried, connack
        await asyncio.sleep(0.2)
    raise CannotRun(
        f"{target} does not accept MQTT clients: {problem}. Start the broker first; if it asks for a login, give "
        "--username and --password."
    )


async def _try(surroundings: Surroundings, target: Target, version: int) -> tuple[Connack | None, str]:
    of_version = dataclasses.replace(surroundings, version=version)
    connection = Connection(0, target, version)
    try:
        async with asyncio.timeout(PATIENCE):
            await connection.open()
            connection.send(of_version.connect_packet(f"{surroundings.prefix}-hello", clean=True))
            answer = await connection.receive()
    except (OSError, TimeoutError, RemoteProtocolError) as error:
        return None, str(error) or "no answer"
    finally:
        connection.close(by_us=True)
    if not isinstance(answer, Connack):
        return None, "it closed the connection"
    if answer.reason:
        return None, f"CONNECT of MQTT {VERSION_NAMES[version]} was refused with 0x{answer.reason:02x}"
    return answer, ""


async def _subscribed(probe: Client, target: Target, wait: float) -> None:
    """A cluster may accept clients before it can serve them. Raises CannotRun."""
    topic = f"{probe.surroundings.prefix}/probe"
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    while True:
        if await probe.connect(target, clean=True):
            subscription = await probe.subscribe(topic, 2)
            if subscription is not None and subscription.outcome is Outcome.OK:
                return
        if loop.time() > deadline:
            raise CannotRun(f"{target} refuses a subscription to {topic}: allow clients topics below check-….")
        await asyncio.sleep(0.2)


async def _probe_qos(probe: Client, target: Target, features: Features) -> None:
    topic = f"{probe.surroundings.prefix}/probe"
    granted = max(subscription.granted for subscription in probe.history.of(Subscription) if subscription.granted < 3)
    if granted < 2:
        features.remarks.append(f"QoS 2 is not granted, only {granted}")
        features.qos = granted
    if probe.connection is None and not await probe.connect(target, clean=True):
        raise CannotRun(f"{target} accepted a client, and then none any more.")
    sent = probe.publish(topic, 2)
    if not await _happens(probe, lambda: sent.outcome is not Outcome.UNKNOWN) or sent.outcome is not Outcome.OK:
        features.remarks.append("a PUBLISH of QoS 2 is not taken: checked with QoS 0 and 1")
        features.qos = min(features.qos, 1)
    elif features.qos < 2:
        features.remarks.append("PUBLISH of QoS 2 is taken, and delivered with less: checked with QoS 0 and 1")
        features.qos = 1
    if features.qos < 1:
        raise CannotRun(f"{target} grants QoS 0 only: there is nothing that it promises.")


async def _probe_shared(probe: Client, target: Target, features: Features) -> None:
    topic = f"{probe.surroundings.prefix}/probe-shared"
    await probe.connect(target, clean=True)
    subscription = await probe.subscribe(f"$share/probe/{topic}", 1)
    if subscription is None or subscription.outcome is not Outcome.OK:
        features.shared = False
    elif features.version == V311 and probe.connection is not None:
        sent = probe.publish(topic, 1)
        features.shared = await _happens(probe, lambda: _came(probe, sent))


def _came(probe: Client, sent: Publication) -> bool:
    return any(delivery.message == sent.message for delivery in probe.history.of(Delivery))


async def _happens(probe: Client, what: Callable[[], bool]) -> bool:
    """Within some seconds, and on this connection."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not what():
                if probe.connection is None:
                    return False
                await asyncio.sleep(0.01)
    except TimeoutError:
        return False
    return True
