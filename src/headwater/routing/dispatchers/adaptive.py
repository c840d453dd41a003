"""`adaptive`: each message goes to the member that can start on it first, by a model of each member's queue.

The model. A member works through a queue of messages, each of which takes it s seconds, and is d seconds away. Let F be
the time at which it will have done all that was given to it. A message dispatched at t is started at max(t + d, F), so

    choose   the member with the least  max(now + TOLL·d, F - (1 - TOLL)·d)
    then     F := max(now + d, F) + s

With TOLL = 1 that is the one that starts first. But who joins a queue makes all wait that come later, and a way makes
nobody wait but oneself; choosing selfishly, near members would always have queues as long as the way to the next one.
So a way counts less than waiting. Members that are free (F <= now + d) are taken by the way to them (d in steps of
GRAIN), then whoever has been free for longest; so a group that knows nothing (s the same for all) goes round robin. A
member of which nothing is known has the s of the others, their geometric mean, and no credit from the past: F = now.
Advice from outside (`Member.advised`) is a prior: its s is then that mean divided by it. What a member tells is better
than any prior, and when all are free nobody has to wait: so advice counts only in bursts and only until more is known.
As time goes its queue is thought to shrink twice as fast as that, for a wrong guess must not pile up; a burst it gets
like others. If it acknowledges, it gets a second message only after the first, as long as others are to be had.

What corrects it. Whatever a member tells:

  reports           waiting messages x, mean time y since the last. y goes into s, weighted by the number of messages
                    it is the mean of. x says that the work left is between x·s and (x + 1)·s: F is moved into that
                    range, and left alone if it is in there, so that a report, which counts whole messages, never
                    blurs a model that knows parts of them.
  acknowledgements  k are in flight. Time between two of them is s if the second message was there when the first was
                    done (sent 2d before that); a message sent when k = 0 was answered after s + 2d: so the way and
                    the processing are told apart. F = now - d + k·s. Who acknowledges before processing looks ever
                    idle and is served round robin; if it reports as well, more messages wait at it than are in
                    flight, and its acknowledgements are no longer listened to.
  unsent bytes u    F >= now + (u / mean size)·s; the rate at which a backlog shrinks gives s.

Silence. If the acknowledgement of the oldest message is late by o, it is expected to take as long again, or somewhat
longer: F >= now + o + what is behind. So a frozen member costs the group one message, not a queue of them, and the
first sign of life brings it back. A missing report means less: others that are free go first; only when MISSED of them
are missing in a row it means the same.

Lies. A report or an acknowledgement cannot be checked, but it is credited within bounds: by a second queue like F, that
no report can shorten, a member is never believed to be more than FACTOR times as fast as the others (their geometric
mean ŝ). So as long as the others keep up (less than FACTOR·ŝ of work waiting at each), a liar gets at most FACTOR
messages in the time ŝ in which an average member does one, that is at most FACTOR times an average share. When they do
not keep up, it gets what they cannot do. Nobody is believed to have more than LONGEST seconds of work: to claim to be
slow is to get little, but never to block anything.

No starvation. Every PROBE-th message goes to the next member in turn, if that has got none in the last PROBE·n messages
and is believed to be free: so who is far away or was slow shows from time to time what it can do.

Cost. Queues that are busy are in a heap by F, those that are free in another by way and F. Time only makes the start of
a queue later, so it is enough to look at the first of each again: O(log n) for each message and event. For the same
reason a queue that has become longer may stay where it is in the heap until it is the first. The geometric means are
made anew only when somebody's s has changed by more than NOTABLE, so most messages need neither exp nor log.
"""

from __future__ import annotations

from math import exp, log
from typing import Final, cast, final

from mypy_extensions import i64

from headwater.message import NEVER, Subscription
from headwater.routing.dispatcher import Dispatcher, Member
from headwater.routing.dispatchers.heap import LineHeap
from headwater.routing.dispatchers.member_queue import NOWHERE, QUICKEST, MemberQueue

GRAIN: Final = 0.002  # seconds; ways that differ by less are equally long
TOLL: Final = 0.15  # of the way counts
PROBE: Final[i64] = 64
SHORT: Final = 0.0005  # seconds; work that a member may be given without looking at the others
NOTABLE: Final = 1.05  # factor; times per message that differ by less are taken for the same in the group's mean


@final
class Adaptive(Dispatcher):
    """Who can start first is next. A topic's order holds for each member but not across them."""

    def __init__(self) -> None:
        self.wants_samples = True
        self._members: list[Member] = []
        self._free = LineHeap()
        self._busy = LineHeap()
        self._choices: i64 = 0
        self._probe_at: i64 = PROBE
        self._probed: i64 = 0
        self._known = 0  # members whose time per message is known ...
        self._logarithms = 0.0  # ... and the sum of its logarithms ...
        self._epoch: i64 = 0  # ... which has changed so many times
        self._typical = QUICKEST

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        if members is not self._members:
            self._renew(members, now)
        self._choices += 1
        queue = self._first(now)
        if self._choices >= self._probe_at:
            self._probe_at = self._choices + PROBE
            queue = self._to_be_probed(queue, now)
        self._give(queue, now)
        return queue.member

    def also(self, member: Member, left: int, now: float) -> int:
        """What comes in one turn starts and ends at the same times whoever of several equal ones gets it. So a member
        gets several at once, but no more than half of its equal share, nor than SHORT seconds of work."""
        queue = _queue(member)
        service = self._service(queue)
        count = min(left // (2 * len(self._members)), int(SHORT / service))
        if count > 0:
            self._choices += count
            queue.visited = self._choices
            queue.dispatched_also(count, now, service, queue.others)
            self._put(queue, now)
        return count

    def taken(self, member: Member, now: float) -> None:
        self._choices += 1
        self._give(_queue(member), now)

    def beliefs(self, member: Member, now: float) -> dict[str, float]:
        """Its time per message only if something has told it: a guess, or advice, is no belief of ours to be advised
        by."""
        queue = _queue(member)
        believed = {"seconds_of_work": max(0.0, queue.free_at - now), "seconds_away": queue.delay}
        if queue.service > 0.0:
            believed["seconds_per_message"] = queue.service
        return believed

    def outlook(self, member: Member, now: float) -> tuple[float, float]:
        queue = _queue(member)
        return queue.can_start_at(now) + TOLL * queue.delay, queue.service

    def readied(self, member: Member, now: float) -> None:
        self._put(_queue(member), now)

    def joined(self, member: Member) -> None:
        member.model = MemberQueue(member)

    def left(self, member: Member) -> None:
        queue = _queue(member)
        self._learn(queue, 0.0, False, 0.0)
        queue.gone = True
        queue.member = NOBODY  # they know each other: both would wait for the garbage collector

    def sent(self, member: Member, size: int, qos: int, now: float) -> None:
        _queue(member).sent(qos, now)

    def acknowledged(self, member: Member, sent_at: float, now: float) -> None:
        queue = _queue(member)
        self._learn(queue, queue.acknowledged(sent_at, 0, self._service(queue), now), True, now)
        self._changed(queue, now)

    def acknowledged_together(self, member: Member, sent_at: list[float], now: float) -> None:
        queue = _queue(member)
        more: i64 = len(sent_at) - 1
        self._learn(queue, queue.acknowledged(sent_at[0], more, self._service(queue), now), True, now)
        self._changed(queue, now)

    def reported(self, member: Member, waiting: int, seconds_per_message: float | None, now: float) -> None:
        queue = _queue(member)
        service = queue.reported(waiting, seconds_per_message, self._service(queue), now)
        if seconds_per_message is not None or queue.service > 0.0:
            self._learn(queue, service, True, now)
        self._changed(queue, now)

    def sampled(self, member: Member, unsent_bytes: int, now: float) -> None:
        queue = _queue(member)
        service = self._service(queue)
        learnt = queue.sampled(unsent_bytes, service, now)
        if learnt != service:
            self._learn(queue, learnt, queue.counts, now)
        self._changed(queue, now)

    def given_back(self, member: Member, count: int, now: float) -> None:
        queue = _queue(member)
        queue.free_at = max(now, queue.free_at - count * self._service(queue))
        if member.in_flight == 0:
            queue.ack_due = NEVER
        self._changed(queue, now)

    def _give(self, queue: MemberQueue, now: float) -> None:
        queue.visited = self._choices
        if queue.others_epoch != self._epoch:
            self._compare(queue)
        service = queue.service if queue.service > 0.0 else self._typical / queue.member.advised
        queue.dispatched(now, service, queue.others)
        self._put(queue, now)

    # ---- what is believed of the members together ------------------------------------------------------------

    def _service(self, queue: MemberQueue) -> float:
        return queue.service if queue.service > 0.0 else self._typical / queue.member.advised

    def _learn(self, queue: MemberQueue, service: float, counts: bool, now: float) -> None:
        """Believe its time per message; 0.0: it is not known any more. What it told itself counts for the others; what
        only its unsent bytes told does not, as they tell of the slow ones alone."""
        if queue.gone:
            return
        before = queue.service
        queue.service = service
        if counts != queue.counts:
            self._note(queue, service, counts)
        elif counts and now != queue.noted_at:
            # Many acknowledgements may come in one turn of the broker's loop, and what they tell is known after the
            # last of them: so what is noted once in a turn is what was known before.
            queue.noted_at = now
            if queue.noted > before * NOTABLE or before > queue.noted * NOTABLE:
                self._note(queue, before, True)

    def _note(self, queue: MemberQueue, service: float, counts: bool) -> None:
        if queue.counts:
            self._known -= 1
            self._logarithms -= queue.logarithm
        queue.counts = counts
        if counts:
            queue.noted = service
            queue.logarithm = log(service)
            self._known += 1
            self._logarithms += queue.logarithm
        self._typical = exp(self._logarithms / self._known) if self._known else QUICKEST
        self._epoch += 1

    def _compare(self, queue: MemberQueue) -> None:
        """Find out what is typical of the others."""
        queue.others_epoch = self._epoch
        if not queue.counts or self._known < 2:
            queue.others = self._typical
        else:
            queue.others = exp((self._logarithms - queue.logarithm) / (self._known - 1))

    # ---- which queue is first ---------------------------------------------------------------------------------

    def _renew(self, members: list[Member], now: float) -> None:
        before = set(self._members)
        for member in self._members:
            _queue(member).place = NOWHERE
        self._members = members
        self._free = LineHeap()
        self._busy = LineHeap()
        for member in members:
            queue = _queue(member)
            if member not in before:
                queue.start(now)
            queue.free = False
            self._busy.add(queue)
            self._put(queue, now)

    def _put(self, queue: MemberQueue, now: float) -> None:
        """Set its key, and it into the heap where it belongs; not if it is not among those to choose from."""
        if queue.place == NOWHERE:
            return
        delay = queue.delay
        key = queue.can_start_at(now) - (1.0 - TOLL) * delay
        queue.keyed_at = now
        queue.blocked = not queue.member.ready
        if key > now + TOLL * delay:
            if queue.free:
                self._free.remove(queue)
                queue.free = False
                queue.level = 0
                queue.key = key
                self._busy.add(queue)
            elif key != queue.key:
                queue.key = key
                self._busy.moved(queue)
            return
        level: i64 = 0
        if delay > 0.0:
            level = int(delay * (1.0 / GRAIN))
        if not queue.free:
            self._busy.remove(queue)
            queue.free = True
            queue.level = level
            queue.key = key
            self._free.add(queue)
        elif key != queue.key or level != queue.level:
            queue.level = level
            queue.key = key
            self._free.moved(queue)

    def _changed(self, queue: MemberQueue, now: float) -> None:
        """Something came that changes when it can start. A queue that is in its place unless it can start sooner stays
        there, to be looked at when it is the first."""
        if queue.place == NOWHERE:
            return
        if queue.free or queue.can_start_at(now) - (1.0 - TOLL) * queue.delay < queue.key:
            self._put(queue, now)
        else:
            queue.keyed_at = -1.0

    def _first(self, now: float) -> MemberQueue:
        """Each turn of the loops makes one queue's key right, for `now` and for its having room or not, and they end
        with a right one in front: so they do end. Nothing here depends on how numbers are rounded."""
        busy = self._busy.queues
        while busy:
            top = busy[0]
            if top.keyed_at == now and top.blocked != top.member.ready:
                break
            self._put(top, now)
        free = self._free.queues
        while free:
            top = free[0]
            if top.keyed_at == now and top.blocked != top.member.ready:
                if busy and busy[0].key < now + TOLL * top.delay:
                    return busy[0]  # sooner than the way to one that is free
                return top
            self._put(top, now)
        return busy[0]

    def _to_be_probed(self, first: MemberQueue, now: float) -> MemberQueue:
        """The next in turn, if it has not been chosen for long and is free; else the one that is `first`."""
        self._probed += 1
        if self._probed >= len(self._members):
            self._probed = 0
        queue = _queue(self._members[self._probed])
        if queue.visited > self._choices - PROBE * len(self._members):
            return first
        return queue if queue.can_start_at(now) <= now + queue.delay else first


NOBODY: Final = Member(None, Subscription("", 0), False)


def _queue(member: Member) -> MemberQueue:
    return cast(MemberQueue, member.model)
