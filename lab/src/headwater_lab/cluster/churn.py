"""Subscriptions with wildcards that come and go at a node, at a fixed rate."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final

from headwater.wire.packets import Suback, Subscribe, SubscribeRequest, Unsuback, Unsubscribe
from headwater_lab.cluster.caller import Caller, ready
from headwater_lab.load import LoadError

CLIENTS: Final = 20
LIVE: Final = 300
"""Filters that are subscribed to at a time: a multiple of clients, so that each gives up what it has."""
TICK: Final = 0.01
LEAST: Final = 0.9
"""Of the changes that are due: a node that does not keep up has had another churn than was asked for."""


def filter_of(number: int) -> str:
    """It matches no topic of the load generator's, but looks like one from its first levels."""
    return f"+/topic/+/churn/{number}/#"


class Churn:
    """`rate` changes a second: as many filters are subscribed to as are given up. `acknowledged` counts both. Clients
    take turns, because each is served one SUBSCRIBE at a time, which waits until other nodes know."""

    def __init__(self, port: int, rate: float) -> None:
        self.rate = rate
        self.acknowledged = 0
        self.error = ""
        self._callers = [Caller(port, f"churn{number}") for number in range(CLIENTS)]
        self._number = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """LoadError: it could not go on."""
        self._ends.set()
        self._thread.join()
        for caller in self._callers:
            caller.close()
        if self.error:
            raise LoadError(f"the churn ended: {self.error}")

    def _run(self) -> None:
        began, done = time.monotonic(), 0
        try:
            while not self._ends.is_set():
                due = int((time.monotonic() - began) * self.rate)
                while done < due:
                    self._change()
                    done += 2
                for caller in ready(self._callers, TICK):
                    self.acknowledged += sum(isinstance(each, Suback | Unsuback) for each in caller.received(TICK))
                time.sleep(TICK / 2)
        except (OSError, LoadError) as error:
            self.error = str(error)

    def _change(self) -> None:
        """One more, and one less."""
        number = self._number
        self._number += 1
        come = Subscribe(2 * number % 65534 + 1, [SubscribeRequest(filter_of(number))])
        gone = Unsubscribe((2 * number + 1) % 65534 + 1, [filter_of(number - LIVE)])
        self._callers[number % CLIENTS].send(come, gone)


@contextlib.contextmanager
def churning(port: int, rate: float) -> Iterator[Churn]:
    """While the context is open. LoadError: the node was slower than `rate`."""
    churn = Churn(port, rate)
    began = time.monotonic()
    churn.start()
    try:
        yield churn
    finally:
        seconds = time.monotonic() - began
        churn.stop()
    if churn.acknowledged < LEAST * rate * seconds:
        raise LoadError(f"{churn.acknowledged / seconds:.0f} changes a second were acknowledged, not {rate:.0f}")
