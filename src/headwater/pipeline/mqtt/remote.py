"""The other end of the spooler's service: for the source on the driver, and for readers on executors.

An address can be pickled. Needs the standard library only.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from headwater.pipeline.mqtt.record import Arrival, DamagedRecord, RecordStream

TIMEOUT: Final = 30.0
PATIENCE: Final = 30.0
"""Seconds that an executor waits for a spooler that was killed and is started again by the driver."""
PAUSE: Final = 0.2
READ: Final = 1 << 18
CUT: Final = (OSError, http.client.HTTPException)


class SpoolerError(Exception):
    """The spooler says no, and why; `error` is one word for programs."""

    def __init__(self, error: str, detail: str) -> None:
        super().__init__(error, detail)
        self.error = error
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


class Address(NamedTuple):
    host: str
    port: int
    token: str

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}"


class Remote:
    """One connection that is kept, for one thread at a time; a cut is an OSError or HTTPException."""

    def __init__(self, address: Address, timeout: float = TIMEOUT) -> None:
        self.address = address
        self._connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout)

    def post(self, path: str, **asked: Any) -> dict[str, Any]:
        try:
            self._connection.request("POST", path, json.dumps(asked), {"Authorization": self.address.token})
            found: dict[str, Any] = _answer(self._connection.getresponse())
        except CUT:
            self._connection.close()
            raise
        return found

    def close(self) -> None:
        self._connection.close()


def records(address: Address, first: int, next: int, patience: float = PATIENCE) -> Iterator[Arrival]:
    """The records `first` to before `next`. When the spooler goes, reading goes on where it was as soon as it is there
    again; ConnectionError after `patience` seconds without."""
    failed_at: float | None = None
    while first < next:
        try:
            for arrival in _some(address, first, next):
                first += 1
                failed_at = None
                yield arrival
        except CUT as error:
            now = time.monotonic()
            failed_at = now if failed_at is None else failed_at
            if now - failed_at > patience:
                raise ConnectionError(
                    f"the spooler at {address!r} does not answer: {error!r}. If executors are on other machines, "
                    f"spoolerHost has to be an address of the driver's machine that they can reach"
                ) from error
            time.sleep(PAUSE)


def _some(address: Address, first: int, next: int) -> Iterator[Arrival]:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT)
    try:
        connection.request("GET", f"/records?first={first}&next={next}", headers={"Authorization": address.token})
        response = connection.getresponse()
        if response.status != 200:
            _answer(response)
        stream = RecordStream()
        while data := response.read1(READ):
            for arrival in stream.feed(data):
                first += 1
                yield arrival
        if first < next:
            raise ConnectionError("the answer was cut")
    except DamagedRecord as error:
        raise SpoolerError("damaged", f"{error}; the spool's disk may be failing") from error
    finally:
        connection.close()


def _answer(response: http.client.HTTPResponse) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(response.read())
    except ValueError as error:
        raise SpoolerError("strange", "something else than a spooler answers there") from error
    if response.status != 200:
        raise SpoolerError(found["error"], found["detail"])
    return found
