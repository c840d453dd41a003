"""Retained messages: the same at the home broker and at all other nodes.

Theory. The node holds all retained messages of the fabric (node/links/retaining.py: the last writer wins, by stamps).
What others write is published at the home broker with the retain flag. What the home broker's clients write is caught
with the flag, where that comes with the message (5.0, or as a bridge); else the tap has seen it go by (`tapped`). The
tap also tells of topics that no other node wants: these are caught from then on. It is believed in nothing else: what a
client says it deletes there, the home broker is asked for (doubts.py).

When the home broker comes, it may have others than the fabric: it has begun anew, or clients wrote while the proxy was
away. All that it has is read (reading.py) and compared, message by message:

    the fabric has none                                  the broker's is taken, as written now
    both, and the fabric's is older than the absence     the broker's is taken: a client of it has written it meanwhile
    both, the fabric's is younger, or the broker is new  the fabric's is published there
    the broker has none                                  the fabric's is published there

So a message that a client deletes while the proxy is away comes back: a broker that lost it says the same as one where
it was deleted.
"""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from headwater.message import Message
from headwater.node.links.retaining import is_shared
from headwater.node.plane.background import BackgroundTask
from headwater.node.proxy.channel import OWN_TOPICS, HomeChannel
from headwater.node.proxy.client import OwnClient
from headwater.node.proxy.doubts import Doubts
from headwater.node.proxy.echo import digest
from headwater.node.proxy.reading import Reader
from headwater.node.proxy.wanting import Wanting
from headwater.wire.packets import V5, Connect

log = logging.getLogger("headwater.proxy")

MOST_TAPPED: Final = 10_000
"""Retained messages that were seen to go to the home broker and have not been caught yet."""
REMEMBERED: Final = 10.0
"""Seconds that such a one is known."""
FRESH: Final = 1.0
"""Seconds after a subscription in which the home broker may send what is retained already."""
AGAIN: Final = 5.0
"""Seconds until what the home broker has is read again, if that failed."""
SOON: Final = 0.05
"""The same until it is looked again whether this node has caught up."""
SOME: Final = 100
"""Messages that are compared at a time."""
ENOUGH: Final = 1000
"""Messages that wait for the home broker, above which no more are compared."""
FILE: Final = "home-seen"


class Retention:
    def __init__(
        self, home: OwnClient, wanting: Wanting, folder: Path | None, is_caught_up: Callable[[], bool]
    ) -> None:
        """`is_caught_up`: whether this node has what other nodes have."""
        self.home = home
        self._is_caught_up = is_caught_up
        self.server = home.server
        self.topics = wanting.topics
        """Those that are caught for their retained messages, though no other node may want them."""
        self.differences = 0
        """Messages that were not the same when the home broker came."""
        self.reads = 0
        self._file = None if folder is None else folder / FILE
        self._away_since = self._last_seen()
        self._tapped: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        self.fresh = wanting.fresh
        """Topics that have just been added to these, and whether their messages were deleted: the home broker is asked
        for what it has."""
        self.doubts = Doubts(home, self._deleted)
        self._reader: Reader | None = None
        self._seen: set[str] = set()
        self._is_new = True

    def start(self) -> None:
        self.home.links.retaining.kept = self._kept

    # ---- from other nodes ----------------------------------------------------------------------------------------

    def _kept(self, message: Message) -> None:
        """Another node has written it, or deleted it."""
        self.home.hand_over(message)

    # ---- from the home broker ------------------------------------------------------------------------------------

    def tapped(self, topic: str, payload: bytes | None, qos: int) -> None:
        """A client is about to write it."""
        if not is_shared(topic) or topic.startswith(OWN_TOPICS):
            return
        connection = self.home.connection
        if payload is not None and connection is not None and connection.connect.version != V5:
            self._note(digest(topic, payload))
        if topic in self.topics or len(self.topics) > self.home.settings.max_filters:
            return  # beyond, everything is caught
        if not self.home.is_caught(topic):
            self.fresh[topic] = payload == b""
            self.server.timers.at(self.server.hot.now + FRESH, partial(self._is_fresh_no_more, topic))
        self.topics.add(topic)
        self.home.look_soon()

    def _note(self, key: bytes) -> None:
        now = self.server.hot.now
        count, _ = self._tapped.pop(key, (0, 0.0))
        self._tapped[key] = (count + 1, now + REMEMBERED)
        oldest = next(iter(self._tapped))
        if len(self._tapped) > MOST_TAPPED or self._tapped[oldest][1] <= now:
            del self._tapped[oldest]

    def was_tapped(self, message: Message) -> bool:
        """Whether the tap has seen it go by with the flag; asked once for each."""
        key = digest(message.topic, message.payload)
        count, until = self._tapped.get(key, (0, 0.0))
        if count > 1:
            self._tapped[key] = (count - 1, until)
        elif count:
            del self._tapped[key]
        return count > 0 and until > self.server.hot.now

    def is_known(self, message: Message) -> bool:
        """Whether a message with the flag is no news: the home broker tells it because it was subscribed to."""
        home, topic = self.home, message.topic
        was_tapped = bool(self._tapped) and self.was_tapped(message)
        is_fresh = self.fresh.pop(topic, None) is not None
        there = self.server.router.retained.alive(topic, self.server.hot.now)
        is_same = there is not None and there.payload == message.payload
        if home.abilities is not None and not home.abilities.retain_as_published:
            return is_same or not is_fresh  # a message that was written just now has no flag
        if was_tapped or not message.payload or not (is_fresh or home.tells_again):
            return False
        return is_same or (not is_fresh and self._away_since > 0)  # what differs is read, and compared

    def _look_again(self) -> None:
        """The home broker may have one that was written shortly before it was subscribed to."""
        if not self._away_since:
            self._away_since = _wall() - int(2000 * FRESH)
            self._is_new = False
            self._read()

    def _is_fresh_no_more(self, topic: str) -> None:
        """If nothing came and a client has said that it is deleted, it may be; else it was not asked for after all, a
        wider filter was."""
        is_deleted = self.fresh.pop(topic, None)
        if is_deleted is False:
            self._look_again()
        elif is_deleted and self.server.router.retained.alive(topic, self.server.hot.now) is not None:
            self.doubts.add(topic)

    def _deleted(self, topic: str) -> None:
        """The home broker has none."""
        if self.server.router.retained.alive(topic, self.server.hot.now) is not None:
            self.home.caught(Message(topic, b"", 0, True))

    # ---- the home broker comes and goes --------------------------------------------------------------------------

    def up(self, is_new: bool) -> None:
        """It is there; `is_new`: it does not know the own client any more."""
        self._is_new = is_new
        self._read()

    def down(self) -> None:
        self._away_since = self._away_since or _wall()
        self.doubts.down()
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def alive(self) -> None:
        """It answers; said from time to time."""
        if self._file is not None:
            self._file.touch()
            os.utime(self._file)

    def _last_seen(self) -> int:
        """In an earlier life of this node; 0: never."""
        try:
            return 0 if self._file is None else int(1000 * self._file.stat().st_mtime)
        except OSError:
            return 0

    def _read(self) -> None:
        if self.home.connection is None or self._reader is not None:
            return
        if not self._is_caught_up():
            self.server.timers.at(self.server.hot.now + SOON, self._read)
            return
        self._seen = set()
        self.home.caller.call(self._called)

    def _called(self, channel: HomeChannel | None, reason: str) -> None:
        connection = self.home.connection
        if channel is None:
            self._was_read(reason)
        elif connection is None:
            self.server.lost(channel)
        else:
            own = connection.connect
            connect = Connect(f"{own.client_id}-read", own.version, True, 60, own.username, own.password)
            self._reader = Reader(self.home, channel, connect, ["#"], self._found, self._was_read)

    def _found(self, message: Message) -> None:
        topic = message.topic
        if not is_shared(topic) or topic.startswith(OWN_TOPICS):
            return
        self._seen.add(topic)
        retaining = self.home.links.retaining
        entry = retaining.replica.get(topic)
        there = self.server.router.retained.alive(topic, self.server.hot.now)
        if there is not None and there.payload == message.payload:
            return
        self.differences += 1
        written_while_away = not self._is_new and entry.stamp.time < self._away_since
        if not entry.stamp.time or written_while_away:
            self.home.caught(message)
        else:
            self.home.hand_over(there or Message(topic, b"", 0, True))

    def _was_read(self, why: str) -> None:
        self._reader = None
        if why:
            self.home.tell(f"read {why}", f"the retained messages of the home broker cannot be read: {why}")
            self.server.timers.at(self.server.hot.now + AGAIN, self._read)
            return
        self.server.background.add(_Rest(self, self._seen))

    def read_to_end(self) -> None:
        """All is the same now."""
        self._away_since = 0
        self.reads += 1
        self.alive()


class _Rest(BackgroundTask):
    """What the fabric has and the home broker has not is published there, some at a time."""

    def __init__(self, retention: Retention, seen: set[str]) -> None:
        self._retention = retention
        self._seen = seen
        self._at = 0

    def piece(self) -> bool:
        retention = self._retention
        home = retention.home
        if home.connection is None:
            return False
        if home.session.outbound.waiting() > ENOUGH:
            home.server.timers.at(home.server.hot.now + 0.02, partial(home.server.background.add, self))
            return False
        retained = home.server.router.retained
        some = retained.some(self._at, SOME)
        for message in some:
            if is_shared(message.topic) and message.topic not in self._seen:
                retention.differences += 1
                home.hand_over(message)
        self._at += SOME
        if self._at < len(retained):
            return True
        retention.read_to_end()
        return False


def _wall() -> int:
    return int(time.time() * 1000)
