from __future__ import annotations

import asyncio

import pytest

from headwater.client.exchanges import HIGHEST_ID, Exchanges
from headwater.wire.packets import PUBACK, PUBCOMP, PUBREC, SUBACK, Puback, Pubcomp
from tests.client.scripted import run


def test_identifiers_in_use_are_passed_over() -> None:
    async def scenario() -> None:
        exchanges = Exchanges(10)
        first, _ = exchanges.open(SUBACK)
        for _ in range(HIGHEST_ID - 1):
            packet_id, _ = exchanges.open(PUBACK)
            exchanges.close(packet_id, Puback(packet_id))
        assert first == 1
        assert exchanges.open(SUBACK)[0] == 2
        assert len(exchanges) == 2

    run(scenario())


def test_publications_beyond_the_limit_wait_in_order() -> None:
    async def scenario() -> None:
        exchanges = Exchanges(2)
        order: list[str] = []

        async def publish(name: str) -> None:
            await exchanges.turn_to_publish()
            packet_id, answer = exchanges.open(PUBACK, is_publication=True)
            order.append(name)
            assert len(exchanges) <= 2
            asyncio.get_running_loop().call_soon(exchanges.close, packet_id, Puback(packet_id))
            await answer

        await asyncio.gather(*(publish(name) for name in "abcdef"))
        assert order == list("abcdef")
        assert len(exchanges) == 0

    run(scenario())


def test_nobody_overtakes_one_who_got_a_turn_but_has_not_run_yet() -> None:
    async def scenario() -> None:
        exchanges = Exchanges(2)
        order: list[str] = []

        async def publish(name: str) -> int:
            await exchanges.turn_to_publish()
            order.append(name)
            return exchanges.open(PUBACK, is_publication=True)[0]

        first, second = await publish("a"), await publish("b")
        waiting = asyncio.create_task(publish("c"))
        await asyncio.sleep(0)
        newcomer = asyncio.create_task(publish("d"))  # runs before the one that is woken up next
        exchanges.close(first, Puback(first))
        exchanges.close(second, Puback(second))
        await asyncio.gather(waiting, newcomer)
        assert order == ["a", "b", "c", "d"]

    run(scenario())


def test_who_gave_up_waiting_blocks_nobody() -> None:
    async def scenario() -> None:
        exchanges = Exchanges(1)
        await exchanges.turn_to_publish()
        packet_id, _ = exchanges.open(PUBACK, is_publication=True)
        impatient = asyncio.create_task(exchanges.turn_to_publish())
        unlucky = asyncio.create_task(exchanges.turn_to_publish())
        patient = asyncio.create_task(exchanges.turn_to_publish())
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.sleep(0)
        exchanges.close(packet_id, Puback(packet_id))
        unlucky.cancel()  # in the moment in which it got its turn
        await patient
        assert impatient.cancelled()

    run(scenario())


def test_an_abandoned_identifier_is_free_only_after_its_answer() -> None:
    async def scenario() -> None:
        exchanges = Exchanges(10)
        packet_id, answer = exchanges.open(PUBREC, is_publication=True)
        answer.cancel()
        assert exchanges.expects(packet_id, PUBREC)
        exchanges.advance(packet_id, PUBCOMP)
        assert not exchanges.expects(packet_id, PUBREC)
        exchanges.close(packet_id, Pubcomp(packet_id))
        assert not exchanges.expects(packet_id, PUBCOMP)

    run(scenario())


def test_the_end_reaches_everybody() -> None:
    async def scenario() -> None:
        exchanges = Exchanges(1)
        await exchanges.turn_to_publish()
        _, answer = exchanges.open(PUBACK, is_publication=True)
        waiting = asyncio.create_task(exchanges.turn_to_publish())
        await asyncio.sleep(0)
        exchanges.end(ConnectionError("gone"))
        for each in (answer, waiting, asyncio.ensure_future(exchanges.turn_to_publish())):
            with pytest.raises(ConnectionError, match="gone"):
                await each
        with pytest.raises(ConnectionError, match="gone"):
            exchanges.open(SUBACK)

    run(scenario())
