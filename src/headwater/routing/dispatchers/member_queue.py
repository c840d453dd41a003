"""What `adaptive` believes of one member's queue. The theory is at the head of adaptive.py."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headwater.message import NEVER
from headwater.routing.dispatcher import Member

FACTOR: Final = 8.0  # nobody is believed to be faster than the others by more
GAIN: Final = 0.125  # of one message's time in the moving means
QUICKEST: Final = 1e-6  # seconds per message; nobody is believed to be faster
SLOWEST: Final = 60.0  # seconds per message; nobody is believed to be slower
LONGEST: Final = 60.0  # seconds; nobody's queue is believed to be longer, so everybody is tried again
PUNCTUAL: Final = 1.2  # report intervals; a report that takes longer is missing
SILENT: Final = 0.5  # messages more that are believed to wait at a member whose reports are missing: others go first
BLOCKED: Final = 2.0 * LONGEST  # seconds; who has no room is behind all who have some
NOWHERE: Final[i64] = -1  # the place of a queue that is in no heap
MISSED: Final = 8.0  # report intervals without a report, after which its silence is taken as seriously as any other
LATE: Final = 0.125  # of its time per message: the first step by which an acknowledgement is late
LEAST_LATE: Final = 1e-5  # seconds
TOGETHER: Final = 0.1  # of its time per message; acknowledgements that are less apart came together
SURE_COUNT: Final = 8  # messages done between two reports, from which on their rate says more than the mean time


@final
class MemberQueue:
    """The queue of one member, as it is modelled. What stands first is its place among others."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.key = 0.0
        self.keyed_at = -1.0  # the time for which the key is right; -1.0: it may be later by now
        self.level: i64 = 0
        self.place: i64 = NOWHERE
        self.blocked = False  # it had no room when the key was made
        self.free = True  # the heap it is in is that of the free ones
        self.gone = False  # it has left the group; what still comes of it is nothing to the others
        self.visited: i64 = -1  # number of the choice in which it was last chosen

        self.free_at = 0.0  # the member's clock: when it will have done all that was given to it
        self.bound_at = 0.0  # the same at the highest rate it is credited with, whatever it says ...
        self.patience = 0.0  # ... which counts up to so many seconds of work
        self.busy_since = 0.0
        self.dispatched_at = 0.0
        self.service = 0.0  # seconds per message; 0.0: nothing known yet
        self.counts = False  # in the mean of the group, and with what:
        self.noted = 0.0
        self.noted_at = -1.0
        self.logarithm = 0.0
        self.others = 0.0  # the mean of the others, as it was when ...
        self.others_epoch: i64 = -1  # ... so many changes of what is noted had been seen
        self.delay = 0.0  # seconds to the member, one way

        self.acks_tell = True  # False: it acknowledges before it processes
        self.acknowledged_at = -1.0
        self.busy_gap = 0.0  # mean time between acknowledgements while it had something to do; 0.0: none yet
        self.gap_before = 0.0  # the same without those that came at the same time as the last one ...
        self.gap_weight = 0.0  # ... which are to have this weight in it ...
        self.together = 0.0  # ... as so many ...
        self.span = 0.0  # ... that were done in so many seconds
        self.in_pairs = False  # it may acknowledge a message only when the next one is done
        self.idle_response = 0.0  # mean time until a message was acknowledged that found it idle; 0.0: none yet
        self.ack_due = NEVER
        self.late_since = NEVER  # the `ack_due` that has passed ...
        self.late_by = 0.0  # ... by less than so many seconds
        self.sent_at = 0.0  # the newest that is to be acknowledged

        self.reported_at = -1.0
        self.report_due = NEVER
        self.silent_until = 0.0
        self.progress_at = 0.0

        self.sampled_at = -1.0
        self.sent_count: i64 = 0
        self.sent_count_then: i64 = 0
        self.sent_bytes_then = 0
        self.unsent_since = NEVER

    def start(self, now: float) -> None:
        """It is offered for the first time, or again after it was away: no credit from the past."""
        self.free_at = max(self.free_at, now)
        self.bound_at = max(self.bound_at, now)
        self.busy_since = now
        self.progress_at = now
        self.ack_due = NEVER
        self.report_due = NEVER
        self.sampled_at = -1.0
        self.unsent_since = NEVER

    def can_start_at(self, now: float) -> float:
        """When it would start to process a message that is at it by then. Grows with `now`, never falls."""
        if not self.member.ready:
            return now + BLOCKED
        at = self.free_at
        if self.bound_at > at:
            at = max(at, min(self.bound_at, now + self.patience))
        if now > self.ack_due or now > self.report_due:
            return max(at, self._silent_until(now))
        return at

    def _silent_until(self, now: float) -> float:
        """What is late by so much will be late by as much again, and up to three times: true of anything whose end
        nobody can foresee. It is foreseen in steps that double, so that it has to be done anew only a few times."""
        if now <= self.ack_due:
            if now >= self.silent_until:
                late = now - self.report_due
                most = SILENT * self.service if late <= MISSED * self.member.report_interval else LONGEST
                self.silent_until = now + min(late, most)
            return self.silent_until
        if self.late_since != self.ack_due:
            self.late_since = self.ack_due
            self.late_by = max(LATE * self.service, LEAST_LATE)
        while now > self.ack_due + self.late_by:
            self.late_by *= 2.0
        in_flight = self.member.in_flight
        behind = (in_flight - 1) * self.service if in_flight > 1 else 0.0
        return min(self.ack_due + 2.0 * self.late_by + behind, now + LONGEST)

    def dispatched(self, now: float, service: float, typical: float) -> None:
        """A message is on its way to it, and will take it that long, and others a `typical` time."""
        arrives = now + self.delay
        if self.service <= 0.0:
            self.free_at -= now - self.dispatched_at  # nothing speaks against its being faster than it is taken for
        self.dispatched_at = now
        if self.free_at <= arrives:
            self.free_at = arrives
            self.busy_since = now
        self.free_at = min(self.free_at + service, now + LONGEST)
        self.bound_at = max(self.bound_at, now) + typical * (1.0 / FACTOR)
        self.patience = typical * FACTOR

    def dispatched_also(self, count: int, now: float, service: float, typical: float) -> None:
        """So many more messages of QoS 0 are on their way to it, sent together with the last one."""
        self.free_at = min(self.free_at + count * service, now + LONGEST)
        self.bound_at += count * typical * (1.0 / FACTOR)
        self.sent_count += count

    def sent(self, qos: int, now: float) -> None:
        """It was sent. If nothing is known of its time per message, it is late from the beginning: it gets no second
        message before the first is done, as long as there are others to choose."""
        self.sent_count += 1
        if qos:
            self.sent_at = now
            if self.ack_due == NEVER and self.acks_tell and self.member.in_flight == 1:
                self.ack_due = now + 2.0 * self.delay + self.service
            elif self.in_pairs and self.member.in_flight == 2 and self.ack_due != NEVER:
                self.ack_due += self.service

    # ---- acknowledgements ------------------------------------------------------------------------------------

    def acknowledged(self, sent_at: float, more: int, service: float, now: float) -> float:
        """The time per message to be believed from now on; `service` is the one believed so far. `more` have ended
        together with the one that was dispatched at `sent_at`."""
        before = self.acknowledged_at
        self.acknowledged_at = now
        if not self.acks_tell:
            return service
        if self.member.waiting < 0:
            service = self._learn(sent_at, before, more, service, now)
        member = self.member
        in_flight = member.in_flight
        delay = self.delay
        if in_flight == 0:
            self.free_at = now - delay
            self.ack_due = NEVER
            return service
        head = now - delay
        if delay > 0.0:
            head = max(head, member.in_flight_since[0] + delay)  # it is done only after it has come there
        self.ack_due = head + service + delay
        if self.in_pairs and in_flight > 1:
            self.ack_due += service
        self.free_at = max(head + in_flight * service, self.sent_at + delay + service)
        return service

    def _learn(self, sent_at: float, before: float, more: int, service: float, now: float) -> float:
        """Acknowledgements that come together, because the client or the broker deals with many at once, are one
        measurement: so many were done since the one before. Together is what comes sooner than it could have been
        done: a client may write two and the network send the second one later."""
        if sent_at < before and now - before < TOGETHER * service:
            if self.together > 0.0:
                self.span += now - before
                service = self._join(1 + more)
            self.in_pairs = True
            return min(max(service, QUICKEST), SLOWEST)
        response = now - sent_at
        self.together = 0.0
        if sent_at >= before:  # nothing was in flight: it went there, was processed, and the answer came back
            none_left = self.member.in_flight + more == 0
            alone = none_left or response <= self.idle_response or self.idle_response <= 0.0
            if alone:  # else its acknowledgement may have waited for the next one's
                self.idle_response = _mean(self.idle_response, response)
            self._begin(response - 2.0 * self.delay)
            service = self.idle_response - 2.0 * self.delay if alone else self._mean_gap()
        elif sent_at <= before - 2.0 * self.delay:  # it was there when its predecessor was done: the ways cancel out
            self._begin(now - before)
            service = self._mean_gap()
            if self.idle_response > 0.0:
                wish = max(0.0, self.idle_response - self.busy_gap) / 2.0
                self.delay += (wish - self.delay) * GAIN
        if more:
            self.in_pairs = True
            if self.together > 0.0:
                service = self._join(more)
        service = min(max(service, QUICKEST), SLOWEST)
        if self.member.way > 0.0:
            self.delay = self.member.way
        else:
            self.delay = min(self.delay, max(0.0, response - service) / 2.0)
        return service

    def _begin(self, span: float) -> None:
        self.span = span
        self.together = 1.0
        self.gap_before = self.busy_gap
        self.gap_weight = GAIN

    def _join(self, count: int) -> float:
        """So many more belong to the measurement."""
        self.together += count
        if count == 1:
            self.gap_weight += (1.0 - self.gap_weight) * GAIN
        else:
            left: float = (1.0 - GAIN) ** count
            self.gap_weight = 1.0 - (1.0 - self.gap_weight) * left
        return self._mean_gap()

    def _mean_gap(self) -> float:
        gap = self.span / self.together
        before = self.gap_before
        self.busy_gap = before + (gap - before) * self.gap_weight if before > 0.0 else gap
        return self.busy_gap

    # ---- reports ---------------------------------------------------------------------------------------------

    def reported(self, waiting: int, seconds: float | None, service: float, now: float) -> float:
        """The time per message to be believed from now on."""
        member = self.member
        if member.way > 0.0:
            self.delay = member.way
        if waiting > member.in_flight > 0:
            self.acks_tell = False  # there are messages that wait and are acknowledged already
            self.ack_due = NEVER
        first = member.waiting < 0  # of this connection
        elapsed = 0.0 if first else now - self.reported_at
        done = 0 if first else member.sent_since_report + member.waiting - waiting
        unseen = 0.0
        if elapsed > 0.0:
            unseen = min(1.0, 2.0 * self.delay / elapsed) * member.sent_since_report
        if member.report_interval > 0.0:
            self.report_due = now + PUNCTUAL * member.report_interval
        self.reported_at = now
        stuck = 0.0
        if seconds is not None:
            service = self._believe(seconds, done, elapsed) if not first else min(max(seconds, QUICKEST), SLOWEST)
            self.progress_at = now
        elif waiting == 0 or done > 0:
            self.progress_at = now
        else:
            stuck = now - max(self.progress_at, self.busy_since)
        if not self.acks_tell or member.in_flight == 0:
            self._correct(waiting + unseen, service, stuck, now)
        return service

    def _believe(self, seconds: float, done: int, elapsed: float) -> float:
        if done >= SURE_COUNT and elapsed > 0.0:
            seconds = min(seconds, elapsed / (done - 2))  # it works on several at once
        seconds = min(max(seconds, QUICKEST), SLOWEST)
        if self.service <= 0.0:
            return seconds
        keep: float = (1.0 - GAIN) ** max(done, SURE_COUNT)  # a mean that it sent is worth some messages at least
        return seconds + (self.service - seconds) * keep

    def _correct(self, waiting: float, service: float, stuck: float, now: float) -> None:
        """As many wait and perhaps one is being processed: what the model says beyond that is wrong."""
        there = now - self.delay
        least = max(there + waiting * service, now + stuck) if waiting >= 1.0 else 0.0
        most = there + (waiting + 1.0) * service + stuck
        self.free_at = min(max(self.free_at, least), most, now + LONGEST)

    # ---- what the connection tells ---------------------------------------------------------------------------

    def sampled(self, unsent: int, service: float, now: float) -> float:
        """The time per message to be believed from now on. Bytes that wait are messages that it does not take."""
        member = self.member
        if member.way > 0.0:
            self.delay = member.way
        elapsed = now - self.sampled_at if self.sampled_at >= 0.0 else 0.0
        count = self.sent_count - self.sent_count_then
        taken = member.sent_bytes - self.sent_bytes_then - (unsent - member.unsent_bytes)
        self.sampled_at = now
        self.sent_count_then = self.sent_count
        self.sent_bytes_then = member.sent_bytes
        size = member.sent_bytes / self.sent_count if self.sent_count and member.sent_bytes else 1.0
        silent = self.acknowledged_at < 0.0 and member.waiting < 0
        if unsent == 0:
            self.unsent_since = NEVER
            if silent and self.service > 0.0 and count > 0 and elapsed > 0.0:
                service = max(0.9 * service, QUICKEST)  # it takes all of it: perhaps it can do more
            return service
        if member.unsent_bytes == 0 or elapsed <= 0.0:
            self.unsent_since = now
        elif taken > 0:
            self.unsent_since = now
            if silent:
                sample = elapsed * size / taken
                service = (self.service + sample) / 2.0 if self.service > 0.0 else sample
                service = min(max(service, QUICKEST), SLOWEST)
        stuck = now - self.unsent_since
        self.free_at = min(max(self.free_at, now + stuck + unsent / size * service), now + LONGEST)
        return service


def _mean(mean: float, sample: float) -> float:
    return mean + (sample - mean) * GAIN if mean > 0.0 else sample
