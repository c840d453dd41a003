"""Advice that is in force: taken from retained messages, until it expires, is withdrawn or replaced by a newer one.

Theory. Who makes advice may be killed at any time and do its last batch again, so the same advice may come any number
of times, also behind a newer one. It counts once because its number has to be greater than the last one's on its
subject; that number is remembered until its advice would have expired, also if it was withdrawn: by then all
repetitions of it have expired, too. So nothing has to be remembered for ever, and a number that is far too high does no
harm for longer.

    retained message ─► read, else counted and ignored ─► newer? ─► in force ─► handed to who takes this kind
    empty retained message, or one that expired ─► withdrawn

What is retained outlives the process (node/persistence), and is taken up again at the start. Bad advice is never an
error for anybody: not for who published it, who has an acknowledgement as for any message, and not for the members.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from headwater.message import Message
from headwater.node.advice.document import (
    PREFIX,
    READERS,
    SPLIT,
    WEIGHTS,
    Advice,
    BadAdvice,
    Expired,
    read_advice,
    subject_of,
)
from headwater.node.advice.settings import AdviceSettings
from headwater.node.advice.weights import AdvisedWeights
from headwater.node.plane.timers import Timer

if TYPE_CHECKING:
    from headwater.node.protocol.core import Core

log = logging.getLogger("headwater.advice")

MOST_SUBJECTS: Final = 1000
LOG_EVERY: Final = 1.0
"""Seconds between two lines on advice that is ignored."""
USED: Final = "used"
BAD: Final = "bad"
OLD: Final = "old"
EXPIRED: Final = "expired"

Receiver = Callable[[str, Advice | None], None]
"""Called with a subject and what is advised for it from now on; None: nothing."""


class _Known:
    """The newest advice on a subject; `withdrawn`: it is in force no longer."""

    def __init__(self, advice: Advice, timer: Timer) -> None:
        self.advice = advice
        self.timer = timer
        self.withdrawn = False


class Advising:
    """Uses what is retained below `$headwater/advice/`, from `start` on. `clock` gives seconds since 1970."""

    def __init__(self, core: Core, settings: AdviceSettings, clock: Callable[[], float] = time.time) -> None:
        self._server = core
        self._settings = settings
        self._clock = clock
        self._known: dict[tuple[str, str], _Known] = {}
        self._receivers: dict[str, list[Receiver]] = {WEIGHTS: [], SPLIT: []}
        self._silent_until = 0.0
        self.counts: dict[str, int] = dict.fromkeys((USED, BAD, OLD, EXPIRED), 0)
        """What became of messages with advice."""

    def start(self) -> None:
        """Take up what is retained, and look at what will be."""
        core = self._server
        self.hand_to(WEIGHTS, AdvisedWeights(core.router.groups, self._settings.max_change).take)
        for message in core.router.retained.match(PREFIX + "#", core.hot.now):
            self._retained(message)
        core.hooks.add("retain_message", self._retained)
        core.hooks.add("retained_expired", self._gone)

    def stop(self) -> None:
        self._server.hooks.remove("retain_message", self._retained)
        self._server.hooks.remove("retained_expired", self._gone)

    # ---- who takes it ------------------------------------------------------------------------------------------

    def hand_to(self, kind: str, receiver: Receiver) -> None:
        """From now on tell `receiver` of advice of this kind, of what is in force at once. ValueError: no such kind."""
        if kind not in READERS:
            raise ValueError(f"no such kind of advice: {kind!r}; there are {', '.join(READERS)}")
        self._receivers[kind].append(receiver)
        for advice in self.in_force():
            if advice.kind == kind:
                receiver(advice.subject, advice)

    def in_force(self) -> list[Advice]:
        return [known.advice for known in self._known.values() if not known.withdrawn]

    def _tell(self, kind: str, subject: str, advice: Advice | None) -> None:
        for receiver in self._receivers[kind]:
            try:
                receiver(subject, advice)
            except Exception:
                log.exception("who takes advice of kind %s failed at %r", kind, subject)

    # ---- retained messages -------------------------------------------------------------------------------------

    def _retained(self, message: Message) -> None:
        if not message.topic.startswith(PREFIX):
            return
        if not message.payload:
            self._gone(message)
            return
        try:
            advice = read_advice(message.topic, message.payload, self._clock(), self._settings.longest)
            self._use(advice)
        except Expired as error:
            self._ignore(EXPIRED, message, error)
        except BadAdvice as error:
            self._ignore(BAD, message, error)

    def _use(self, advice: Advice) -> None:
        key = advice.kind, advice.subject
        known = self._known.get(key)
        if known is not None and advice.number <= known.advice.number:
            self.counts[OLD] += 1
            log.debug("advice %d on %r is not newer than %d", advice.number, key, known.advice.number)
            return
        if known is not None:
            self._server.timers.cancel(known.timer)
        elif len(self._known) >= MOST_SUBJECTS:
            raise BadAdvice(f"there is advice on {MOST_SUBJECTS} subjects already")
        self.counts[USED] += 1
        due = self._server.hot.now + max(0.0, advice.expires - self._clock())
        self._known[key] = _Known(advice, self._server.timers.at(due, partial(self._expired, key)))
        log.info("advice %d on %s %r is in force: %.300s", advice.number, *key, advice.why)
        self._tell(advice.kind, advice.subject, advice)

    def _expired(self, key: tuple[str, str]) -> None:
        known = self._known.pop(key)
        if not known.withdrawn:
            log.info("advice %d on %s %r has expired", known.advice.number, *key)
            self._tell(*key, None)

    def _gone(self, message: Message) -> None:
        """Of a message that is not retained any more; what it said may have been no advice."""
        if not message.topic.startswith(PREFIX):
            return
        try:
            key = subject_of(message.topic)
        except BadAdvice:
            return
        known = self._known.get(key)
        if known is not None and not known.withdrawn:
            known.withdrawn = True
            log.info("advice %d on %s %r is withdrawn", known.advice.number, *key)
            self._tell(*key, None)

    def _ignore(self, outcome: str, message: Message, error: BadAdvice) -> None:
        self.counts[outcome] += 1
        now = self._server.hot.now
        if now >= self._silent_until:
            self._silent_until = now + LOG_EVERY
            log.warning("advice of %r in %.200r is ignored: %s", message.publisher, message.topic, error)
