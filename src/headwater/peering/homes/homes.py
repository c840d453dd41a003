"""Where a client is served that comes to one of many proxies: at the broker that has its session.

Theory. The brokers behind proxies know nothing of each other and cannot be asked for a session, so a client is led to
where its session is (its home). Who knows? Two simple ways are each wrong once:

    told     each proxy tells all others which sessions its broker has. A client that has just connected here and comes
             there before that has been heard gets a second session.
    asked    a CONNECT asks all other proxies. One that is away cannot answer, and nobody knows what it has.

So both are done. What is asked comes behind what was told before, on one link, so the answer is right; what was told is
for the time when a proxy cannot answer. A CONNECT (`Visit`) gets a stamp when its broker accepts it, and of two of one
client the later one counts: whoever hears of it lets go of its own session, and ends the older connection (`close`). So
when all links are up again there is one home, and of many CONNECTs of one client id one connection remains.

Asking changes nothing at other proxies: a CONNECT is a stranger's until its broker has accepted it. Only then
(`opened`) others are told of it, and give way. A session counts as being here from the moment when its CONNECT goes to
the broker, so that another CONNECT cannot find two proxies without one: of two that wait at the same time, the earlier
one's proxy says that it has the session.

A home that is away: a client that does not want its session back is served where it is. One that does waits, `wait`
seconds at most, and then `lost` says whether it is refused (`home`) or gets a new session where it is (`clean`). Of a
proxy that has told nothing since this one started nobody knows what it has; it is waited for as long, no longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.homes.residents import Resident, Residents
from headwater.peering.retained.clock import NEVER_WRITTEN, HybridClock, Stamp
from headwater.peering.sessions.holders import Holders
from headwater.peering.sessions.messages import HELD, NOBODY, Answer, Claim, Held, Holds, Move, Released
from headwater.wire.primitives import FOR_EVER

HERE: Final = 0
LEAD: Final = 1
REFUSE: Final = 2
CLEAN: Final = 3
"""Here, although there is a session elsewhere: it cannot be reached."""

HOME_OR_NOBODY: Final = "home"
PORTION: Final = 512
"""Sessions in one note."""


class Decision(NamedTuple):
    kind: int
    node: str = ""
    """Where the session is."""


class Visit:
    """A CONNECT. `resumes`: it wants the session that there is; `lasts`: its session will outlive the connection."""

    def __init__(self, client_id: str, resumes: bool, lasts: bool, expiry: int) -> None:
        self.client_id = client_id
        self.resumes = resumes
        self.lasts = lasts
        self.expiry = expiry
        self.claim = NEVER_WRITTEN
        """When it came."""
        self.stamp = NEVER_WRITTEN
        """When its broker accepted it."""
        self.asked: set[str] = set()
        """Proxies that have not answered."""
        self.answers: dict[str, Stamp] = {}
        """The claims of those that have a session."""
        self.silent: set[str] = set()
        """Proxies that could not be asked, or did not answer."""
        self.decision: Decision | None = None
        self.deadline = 0.0
        self.is_open = False

    def decided(self) -> None:
        """`decision` is there now."""

    def close(self) -> None:
        """The client has connected elsewhere: end this connection."""


class Homes:
    """`note` sends one to a proxy; `keep` puts a resident on disk, or takes it off; `ended` is told of a session at the
    own broker that is the client's no more."""

    def __init__(
        self,
        node: str,
        note: Callable[[str, Claim | Answer | Holds | Released], None],
        keep: Callable[[str, Resident | None], None],
        ended: Callable[[str], None],
        lost: str,
        wait: float,
        most_bytes: int,
    ) -> None:
        self.node = node
        self.lost = lost
        self.wait = wait
        self.clock = HybridClock(node)
        self.residents = Residents(most_bytes)
        self.others = Holders(most_bytes)
        self.proxies: set[str] = set()
        """Those that are linked."""
        self.told_all: set[str] = set()
        """Those that have told all that they have, since they were linked."""
        self.never_heard: set[str] = set()
        """Other proxies that have told nothing since this one started."""
        self.visits: dict[str, list[Visit]] = {}
        """Those that the own broker has accepted, the latest last. Of several it ends all but one; two CONNACKs may be
        seen in another order than they were sent."""
        self.without_room = 0
        self._untold: dict[str, set[str]] = {}
        """What a proxy that is telling everything had told before, and not yet again."""
        self._waiting: dict[str, list[Visit]] = {}
        """Not decided, or not accepted yet."""
        self._news: dict[str, Held | Move] = {}
        self._note = note
        self._keep = keep
        self._ended = ended

    # ---- a CONNECT ---------------------------------------------------------------------------------------------------

    def arrives(self, visit: Visit, now: float, wall: float) -> None:
        """A client has come to this proxy. `visit.decided` may be called before this returns."""
        self._enter(visit, wall)
        visit.deadline = now + self.wait
        if self.residents.get(visit.client_id) is None or self.proxies - self.told_all:
            visit.asked = set(self.proxies)
        for node in sorted(visit.asked):
            self._note(node, Claim(Move(visit.client_id, visit.claim), not visit.resumes))
        self._look(visit, False)

    def is_led_here(self, visit: Visit, wall: float) -> None:
        """Another proxy has led it here, where its session is."""
        self._enter(visit, wall)
        self._settle(visit, Decision(HERE))

    def _enter(self, visit: Visit, wall: float) -> None:
        visit.claim = self._stamp(visit.client_id, wall)
        self._waiting.setdefault(visit.client_id, []).append(visit)

    def _stamp(self, client_id: str, wall: float) -> Stamp:
        """Later than all that is known of the client."""
        latest = self.others.latest(client_id)
        resident = self.residents.get(client_id)
        if resident is not None:
            latest = max(latest, resident.stamp)
        for visit in self.visits.get(client_id, ()):
            latest = max(latest, visit.stamp)
        return self.clock.stamp(int(wall * 1000), latest)

    def _look(self, visit: Visit, is_late: bool) -> None:
        """Decide, if that can be done."""
        if visit.decision is not None or (visit.asked and not is_late):
            return
        decision = self._decide(visit, is_late)
        if decision is not None:
            self._settle(visit, decision)

    def _settle(self, visit: Visit, decision: Decision) -> None:
        visit.decision = decision
        if decision.kind in (LEAD, REFUSE):
            self._forget_waiting(visit)
        visit.decided()

    def _decide(self, visit: Visit, is_late: bool) -> Decision | None:
        resident = self.residents.get(visit.client_id)
        best, node = NEVER_WRITTEN if resident is None else resident.stamp, self.node
        for each, stamp in visit.answers.items():
            if stamp > best:
                best, node = stamp, each
        held = self.others.get(visit.client_id)
        if held is not None and held.lasts and held.stamp > best and self._is_silent(visit, held.stamp.node):
            best, node = held.stamp, held.stamp.node
        if node == self.node:
            is_known = resident is not None or not visit.resumes or not self.never_heard
            return Decision(HERE) if is_known or is_late else None
        if node in visit.answers:
            return Decision(LEAD, node)
        if not visit.resumes:
            return Decision(CLEAN, node)
        if not is_late:
            return None
        return Decision(REFUSE if self.lost == HOME_OR_NOBODY else CLEAN, node)

    def _is_silent(self, visit: Visit, node: str) -> bool:
        return node not in self.proxies or node in visit.asked or node in visit.silent

    def not_reached(self, visit: Visit) -> None:
        """The proxy that it was to be led to does not take it."""
        assert visit.decision is not None
        node = visit.decision.node
        is_refused = visit.resumes and self.lost == HOME_OR_NOBODY
        if not is_refused:
            self._waiting.setdefault(visit.client_id, []).append(visit)
        self._settle(visit, Decision(REFUSE if is_refused else CLEAN, node))

    def opened(self, visit: Visit, client_id: str, lasts: bool, expiry: int, wall: float) -> None:
        """The own broker has accepted it, under this name."""
        self._forget_waiting(visit)
        visit.client_id, visit.lasts, visit.expiry = client_id, lasts, expiry
        visit.stamp = self._stamp(client_id, wall)
        visit.is_open = True
        self.visits.setdefault(client_id, []).append(visit)
        self._is_served(visit)

    def _is_served(self, visit: Visit) -> None:
        """The client, by this connection, the latest of its."""
        client_id = visit.client_id
        if visit.lasts:
            self._put(client_id, Resident(visit.stamp, visit.expiry, 0.0))
        elif self.residents.remove(client_id):
            self._keep(client_id, None)
        self._news[client_id] = Held(client_id, visit.stamp, visit.lasts)

    def _put(self, client_id: str, resident: Resident) -> None:
        if self.residents.put(client_id, resident):
            self._keep(client_id, resident)
        else:
            self.without_room += 1

    def closed(self, visit: Visit, session_ended: bool, expiry: int, wall: float) -> None:
        """Its connection has ended, at whatever stage."""
        self._forget_waiting(visit)
        if not visit.is_open:
            return
        visit.is_open = False
        client_id = visit.client_id
        visits = self.visits[client_id]
        was_latest = visits[-1] is visit
        visits.remove(visit)
        if visits:
            if was_latest:  # the broker has kept the other one
                visits[-1].stamp = visit.stamp
                self._is_served(visits[-1])
            return
        del self.visits[client_id]
        resident = self.residents.get(client_id)
        if resident is not None and resident.stamp == visit.stamp:
            if not session_ended:
                until = 0.0 if expiry == FOR_EVER else wall + expiry
                self._put(client_id, Resident(resident.stamp, expiry, until))
                return
            self._remove(client_id, resident.stamp)
        elif resident is None:
            self._news[client_id] = Move(client_id, visit.stamp)

    def _remove(self, client_id: str, stamp: Stamp) -> None:
        self.residents.remove(client_id)
        self._keep(client_id, None)
        self._news[client_id] = Move(client_id, stamp)

    def _forget_waiting(self, visit: Visit) -> None:
        visits = self._waiting.get(visit.client_id)
        if visits is not None and visit in visits:
            visits.remove(visit)
            if not visits:
                del self._waiting[visit.client_id]

    # ---- what others say ---------------------------------------------------------------------------------------------

    def received(self, node: str, note: Claim | Answer | Holds | Released, wall: float) -> None:
        """Raises MalformedFrame."""
        if isinstance(note, Claim):
            if note.move.stamp.node != node:
                raise MalformedFrame("a claim in another node's name")
            self.clock.see(note.move.stamp, int(wall * 1000))
            stamp = self._held_here(note.move)
            self._note(node, Answer(note.move, HELD if stamp.time else NOBODY, stamp))
        elif isinstance(note, Answer):
            self._answered(node, note)
        elif isinstance(note, Holds):
            for held in note.sessions:
                self._heard(node, held, wall)
            if note.is_all:
                self._has_told_all(node)
        else:
            for move in note.sessions:
                self.others.release(move.client_id, move.stamp)

    def _held_here(self, move: Move) -> Stamp:
        resident = self.residents.get(move.client_id)
        if resident is not None:
            return resident.stamp
        for visit in self._waiting.get(move.client_id, ()):
            is_here = visit.decision is None or visit.decision.kind in (HERE, CLEAN)
            if visit.lasts and is_here and visit.claim < move.stamp:
                return visit.claim
        return NEVER_WRITTEN

    def _answered(self, node: str, answer: Answer) -> None:
        if answer.move.stamp.node != self.node:
            raise MalformedFrame("an answer to another node's claim")
        for visit in list(self._waiting.get(answer.move.client_id, ())):
            if visit.claim == answer.move.stamp and node in visit.asked:
                visit.asked.discard(node)
                if answer.outcome == HELD:
                    visit.answers[node] = answer.known
                self._look(visit, False)

    def _has_told_all(self, node: str) -> None:
        for client_id in self._untold.pop(node, set()):
            self.others.release(client_id, self.others.latest(client_id))
        self.told_all.add(node)
        self.never_heard.discard(node)
        self._look_again()

    def _heard(self, node: str, held: Held, wall: float) -> None:
        client_id = held.client_id
        if node in self._untold:
            self._untold[node].discard(client_id)
        self.clock.see(held.stamp, int(wall * 1000))
        if held.stamp.node == self.node:
            return  # from an earlier life, or what this node has said itself
        self.others.tell(held)
        resident = self.residents.get(client_id)
        is_stale = resident is not None and resident.stamp < held.stamp
        if is_stale:
            self.residents.remove(client_id)
            self._keep(client_id, None)
            self._news.pop(client_id, None)
        for visit in list(self.visits.get(client_id, ())):
            if visit.stamp < held.stamp:
                visit.close()
        if is_stale:
            self._ended(client_id)

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def link_up(self, node: str) -> None:
        """A proxy is linked: tell it everything, in portions, then that it is all."""
        self.proxies.add(node)
        self._untold[node] = {each.client_id for each in self.others.of(node)}
        held = [Held(name, each[-1].stamp, each[-1].lasts) for name, each in self.visits.items()]
        held += [Held(name, each.stamp, True) for name, each in self.residents.items() if name not in self.visits]
        held += [each for each in self.others if each.stamp.node != node]
        while len(held) > PORTION:
            self._note(node, Holds(tuple(held[:PORTION])))
            del held[:PORTION]
        self._note(node, Holds(tuple(held), True))
        for visits in list(self._waiting.values()):
            for visit in list(visits):
                if visit.decision is None:
                    visit.silent.discard(node)
                    visit.asked.add(node)
                    self._note(node, Claim(Move(visit.client_id, visit.claim), not visit.resumes))

    def link_down(self, node: str) -> None:
        self.proxies.discard(node)
        self.told_all.discard(node)
        self._untold.pop(node, None)
        for visits in list(self._waiting.values()):
            for visit in list(visits):
                visit.asked.discard(node)
                if visit.decision is None and visit.answers.pop(node, None) is not None:
                    visit.silent.add(node)
                self._look(visit, False)

    def forgotten(self, node: str) -> None:
        """It is no member any more: what it had is gone."""
        self.never_heard.discard(node)
        self.others.forget(node)
        self.link_down(node)
        self._look_again()

    def _look_again(self) -> None:
        for visits in list(self._waiting.values()):
            for visit in list(visits):
                self._look(visit, False)

    # ---- time --------------------------------------------------------------------------------------------------------

    def take_news(self) -> tuple[list[Held], list[Move]]:
        """What all proxies are to be told, when what was kept until now is on disk."""
        news, self._news = self._news, {}
        held = [each for each in news.values() if isinstance(each, Held)]
        return held, [each for each in news.values() if isinstance(each, Move)]

    @property
    def has_news(self) -> bool:
        return bool(self._news)

    def tell(self, held: list[Held], ended: list[Move]) -> None:
        for node in sorted(self.proxies):
            if held:
                self._note(node, Holds(tuple(held)))
            if ended:
                self._note(node, Released(tuple(ended)))

    def is_late(self, visit: Visit) -> None:
        """Its deadline is there: who has not answered is taken for away."""
        if visit.decision is None:
            visit.silent |= visit.asked
            visit.asked = set()
            self._look(visit, True)

    def sweep(self, wall: float, most: int) -> None:
        """Sessions whose time is over, so many at most."""
        for _ in range(most):
            client_id = self.residents.ended(wall)
            if client_id is None:
                return
            resident = self.residents.get(client_id)
            assert resident is not None
            self._remove(client_id, resident.stamp)
            self._ended(client_id)

    def restore(self, client_id: str, resident: Resident) -> None:
        """What was on disk at the start."""
        if self.residents.put(client_id, resident):
            self.clock.last = max(self.clock.last, resident.stamp.time)
