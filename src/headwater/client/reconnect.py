"""When to connect again, and for which reasons it would be in vain."""

from __future__ import annotations

import random
import ssl
from dataclasses import dataclass
from typing import Final

from headwater.client.errors import MqttError
from headwater.wire import reasons

WORTH_ANOTHER_TRY: Final = frozenset(
    (
        None,  # nobody said why: the network, or a server that died
        reasons.SUCCESS,
        reasons.UNSPECIFIED_ERROR,
        reasons.IMPLEMENTATION_SPECIFIC_ERROR,
        reasons.SERVER_UNAVAILABLE,
        reasons.SERVER_BUSY,
        reasons.SERVER_SHUTTING_DOWN,
        reasons.KEEP_ALIVE_TIMEOUT,
        reasons.MESSAGE_RATE_TOO_HIGH,
        reasons.QUOTA_EXCEEDED,
        reasons.ADMINISTRATIVE_ACTION,
        reasons.CONNECTION_RATE_EXCEEDED,
        reasons.MAXIMUM_CONNECT_TIME,
    )
)
"""Reasons that may go away by themselves. The others (wrong credentials, a client id that somebody else uses, a broken
protocol, a server that names another one …) will not; another server is not followed but told in the error, because
whoever can answer for a server could send us anywhere."""


@dataclass(frozen=True)
class Reconnect:
    """How to connect again after a loss: at a random time up to `first` seconds, then up to twice that, and so on, but
    never more than `longest` seconds. The chance spreads the clients of a server that comes back. It starts anew once
    a connection has lasted longer than the last wait could have.

    The first connection fails at once unless `from_start` says that it is tried again, too. `always` goes on for any
    reason, also one that does not go away by itself, such as a wrong password: for programs that nobody watches.
    """

    first: float = 0.5
    longest: float = 30.0
    from_start: bool = False
    always: bool = False

    def longest_wait(self, failures: int) -> float:
        return float(min(self.longest, self.first * 2.0 ** min(failures, 60)))

    def wait(self, failures: int) -> float:
        return random.uniform(0.0, self.longest_wait(failures))

    def is_worth_another_try(self, error: MqttError) -> bool:
        return self.always or is_worth_another_try(error)


def is_worth_another_try(error: MqttError) -> bool:
    return error.reason in WORTH_ANOTHER_TRY and not isinstance(error.__cause__, ssl.SSLCertVerificationError)
