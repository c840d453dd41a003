"""Brings advice to a node. It may be sent any number of times: a node takes a number once.

    Sender.by_rest(StoreReader("http://localhost:8080", token="…")).send(rows)
    with SyncClient("localhost", username="pipeline", password="…") as client:
        Sender.by_mqtt(client).send(rows)

Who sends needs a right to `$headwater/advice/#`: a rule of access that names it, or the token of REST.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from headwater.client import Properties, Rejected, SyncClient
from headwater.pipeline.operations.advice import SPLIT, WEIGHTS
from headwater.store.reader import Refused, StoreReader

PREFIX: Final = "$headwater/advice/"
TAKEN: Final = (WEIGHTS, SPLIT)
"""What nodes take; other rows are for people."""
PATIENCE: Final = 30.0
NOT_AUTHORIZED: Final = 0x87
FORBIDDEN: Final = 403

Publish = Callable[[str, bytes, float], None]
"""Publishes a payload to a topic, retained, for so many seconds."""


class NotAllowed(Exception):
    """The node does not let us give advice; it says what is needed."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"the node does not take {topic!r} from us: it needs a rule of access, `topic write $headwater/advice/#`, "
            "for our user, or by REST the token of `rest.token`"
        )


class Sender:
    """`clock` gives seconds since 1970."""

    def __init__(self, publish: Publish, clock: Callable[[], float] = time.time) -> None:
        self._publish = publish
        self._clock = clock

    @classmethod
    def by_mqtt(cls, client: SyncClient, timeout: float = PATIENCE) -> Sender:
        """Through a client that is connected."""

        def publish(topic: str, payload: bytes, seconds: float) -> None:
            properties = Properties(message_expiry_interval=max(1, int(seconds)))
            try:
                client.publish(topic, payload, qos=1, retain=True, properties=properties, timeout=timeout)
            except Rejected as error:
                if error.reason == NOT_AUTHORIZED:
                    raise NotAllowed(topic) from error
                raise

        return cls(publish)

    @classmethod
    def by_rest(cls, reader: StoreReader) -> Sender:
        def publish(topic: str, payload: bytes, seconds: float) -> None:
            try:
                reader.publish(topic, payload, retain=True)
            except Refused as error:
                if error.status == FORBIDDEN:
                    raise NotAllowed(topic) from error
                raise

        return cls(publish)

    def send(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Send ADVICE's rows, as they are, of the kinds that nodes take and that have not expired; how many. What it
        raises is of whoever publishes: send all of them again then."""
        sent = 0
        for row in rows:
            if row["kind"] not in TAKEN:
                continue
            expires = datetime.fromisoformat(json.loads(row["advice"])["expires"]).timestamp()
            left = expires - self._clock()
            if left > 0:
                self._publish(topic_of(row["kind"], row["subject"]), row["advice"].encode(), left)
                sent += 1
        return sent


def topic_of(kind: str, subject: str) -> str:
    return f"{PREFIX}{kind}/{quote(subject, safe='')}"
