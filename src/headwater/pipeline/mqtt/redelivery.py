"""Messages that the broker sends again to a new spooler, though the spool has them: they get no second number.

Theory. A broker sends a message again, marked as a duplicate, under the same packet id, as long as it has no
acknowledgement and keeps the session. The spool's records from `released` on were never acknowledged (see `spool`), so
their packet ids are not free: within the same session, a duplicate under such an id with the same content is the same
message. A session that the broker has lost gets another number, and its records are compared with nothing.

Without this nothing would be lost; every kill of a spooler would repeat what Spark has not committed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from headwater.pipeline.mqtt.record import Arrival

NO_SESSION = 0


class Redelivery:
    """What the broker may send again: made from the records that a former spooler left."""

    def __init__(self, left: Iterable[tuple[int, Arrival]]) -> None:
        self._known = {_name(each): (number, _content(each)) for number, each in left if each.qos}

    def number_of(self, arrival: Arrival, is_duplicate: bool) -> int | None:
        """The number that the spool has it under; None: it is new."""
        if not self._known or arrival.qos == 0 or arrival.session == NO_SESSION:
            return None
        number, content = self._known.pop(_name(arrival), (0, b""))
        return number if is_duplicate and content == _content(arrival) else None


def _name(arrival: Arrival) -> tuple[int, int, int]:
    return arrival.connection, arrival.session, arrival.packet_id


def _content(arrival: Arrival) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(b"%d %d " % (arrival.qos, len(arrival.topic)))
    digest.update(arrival.topic.encode())
    digest.update(arrival.payload)
    return digest.digest()
