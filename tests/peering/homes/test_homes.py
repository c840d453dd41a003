"""Where a client is served: proxies that are simulated with their brokers, links that are slow, cut and come back."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.homes.homes import CLEAN, HERE, LEAD, REFUSE, Homes, Visit
from headwater.peering.homes.residents import Resident, Residents, record_of, resident_in
from headwater.peering.retained.clock import Stamp
from headwater.peering.sessions.messages import Answer, Claim, Held, Holds, Move, Released
from headwater.wire.primitives import FOR_EVER

WAIT = 2.0
Note = Claim | Answer | Holds | Released


class Client(Visit):
    """A connection of a client, first at the proxy where it came in (`node`), then at a broker (`home`)."""

    def __init__(self, world: World, node: str, client_id: str, resumes: bool, lasts: bool) -> None:
        super().__init__(client_id, resumes, lasts, FOR_EVER if lasts else 0)
        self.world = world
        world.all.append(self)
        self.node = node
        self.led: Client | None = None
        self.entry: Client | None = None
        self.session = ""
        """The one that the broker has given."""
        self.present = False
        self.outcome = ""
        self.is_answered = False
        """The broker has sent CONNACK, and it was not read yet."""
        self.is_gone = False

    def decided(self) -> None:
        decision = self.decision
        assert decision is not None and not self.is_gone
        if decision.kind == LEAD:
            self.world.todo.append(lambda: self.world.lead(self, decision.node))
        elif decision.kind == REFUSE:
            self.outcome = "refused"
            self.world.leave(self)
        else:
            self.world.todo.append(lambda: self.world.ask_broker(self, decision.kind == CLEAN))

    def close(self) -> None:
        self.world.todo.append(lambda: self.world.leave(self))


class World:
    def __init__(self, nodes: str, lost: str, random: Random) -> None:
        self.random = random
        self.lost = lost
        self.now = 1000.0
        self.kept: dict[str, dict[str, bytes]] = {node: {} for node in nodes}
        self.brokers: dict[str, dict[str, str]] = {node: {} for node in nodes}
        """Sessions by client id."""
        self.connected: dict[str, dict[str, Client]] = {node: {} for node in nodes}
        self.wires: dict[tuple[str, str], deque[Note]] = {}
        self.todo: list = []
        self.made = 0
        self.all: list[Client] = []
        self.homes: dict[str, Homes] = {}
        for node in nodes:
            self.start(node)
        for one in nodes:
            for other in nodes:
                if one < other:
                    self.link(one, other)

    def start(self, node: str) -> None:
        def note(to: str, what: Note) -> None:
            if (node, to) in self.wires:
                self.wires[node, to].append(what)

        def keep(client_id: str, resident: Resident | None) -> None:
            if resident is None:
                self.kept[node].pop(client_id, None)
            else:
                self.kept[node][client_id] = record_of(resident)

        homes = self.homes[node] = Homes(node, note, keep, lambda client_id: None, self.lost, WAIT, 1 << 20)
        for client_id, record in self.kept[node].items():
            homes.restore(client_id, resident_in(record, node, self.now))
        homes.never_heard = set(self.brokers) - {node}

    def restart(self, node: str) -> None:
        for other in self.brokers:
            if other != node:
                self.cut(node, other)
        crashed = [each for each in self.all if each.node == node and not each.is_gone]
        self.connected[node].clear()
        for client in crashed:
            client.is_gone = True
        self.start(node)
        for client in crashed:
            for part in (client.led, client.entry):
                if part is not None:
                    self.leave(part)

    def clients(self) -> list[Client]:
        return [each for found in self.connected.values() for each in found.values()]

    # ---- links -----------------------------------------------------------------------------------------------------

    def link(self, one: str, other: str) -> None:
        if (one, other) not in self.wires:
            self.wires[one, other] = deque()
            self.wires[other, one] = deque()
            self.homes[one].link_up(other)
            self.homes[other].link_up(one)

    def cut(self, one: str, other: str) -> None:
        if (one, other) in self.wires:
            del self.wires[one, other], self.wires[other, one]
            self.homes[one].link_down(other)
            self.homes[other].link_down(one)

    def step(self) -> bool:
        """Something that is under way goes on; False: nothing is."""
        for homes in self.homes.values():
            homes.tell(*homes.take_news())
        wires = [each for each, notes in self.wires.items() if notes]
        choices = len(wires) + len(self.todo)
        if not choices:
            return False
        self.now += 0.001
        chosen = self.random.randrange(choices)
        if chosen < len(wires):
            sender, receiver = wires[chosen]
            self.homes[receiver].received(sender, self.wires[sender, receiver].popleft(), self.now)
        else:
            self.todo.pop(chosen - len(wires))()
        return True

    def settle(self) -> None:
        while self.step():
            pass

    # ---- clients ---------------------------------------------------------------------------------------------------

    def come(self, node: str, client_id: str, resumes: bool = True, lasts: bool = True) -> Client:
        client = Client(self, node, client_id, resumes, lasts)
        self.homes[node].arrives(client, self.now, self.now)
        return client

    def lead(self, client: Client, home: str) -> None:
        if client.is_gone:
            return
        if (client.node, home) not in self.wires:
            self.homes[client.node].not_reached(client)
            return
        led = client.led = Client(self, home, client.client_id, client.resumes, client.lasts)
        led.outcome = "led"
        led.entry = client
        self.homes[home].is_led_here(led, self.now)

    def ask_broker(self, client: Client, is_clean: bool) -> None:
        if client.is_gone:
            return
        node, client_id = client.node, client.client_id
        before = self.connected[node].pop(client_id, None)
        if before is not None:
            self.leave(before)
        sessions = self.brokers[node]
        if is_clean or not client.resumes:
            sessions.pop(client_id, None)
        client.present = client_id in sessions
        if not client.present:
            self.made += 1
            sessions[client_id] = f"{node}{self.made}"
        client.session = sessions[client_id]
        client.outcome = client.outcome or "here"
        self.connected[node][client_id] = client
        if not client.lasts:
            del sessions[client_id]
        client.is_answered = True
        self.todo.append(lambda: self.read_connack(client))

    def read_connack(self, client: Client) -> None:
        """Of two connections, not always in the order in which the broker has accepted them."""
        if client.is_answered and not client.is_gone:
            client.is_answered = False
            self.homes[client.node].opened(client, client.client_id, client.lasts, client.expiry, self.now)

    def leave(self, client: Client) -> None:
        if client.is_gone:
            return
        self.read_connack(client)  # it comes before the end
        client.is_gone = True
        if self.connected[client.node].get(client.client_id) is client:
            del self.connected[client.node][client.client_id]
        self.homes[client.node].closed(client, not client.lasts, client.expiry, self.now)
        for other in (client.led, client.entry):
            if other is not None:
                self.leave(other)

    def comes(self, node: str, client_id: str, resumes: bool = True, lasts: bool = True) -> Client:
        """And all comes to rest; what it gets."""
        client = self.come(node, client_id, resumes, lasts)
        self.settle()
        if client.decision is None:
            self.homes[node].is_late(client)
            self.settle()
        return client.led or client


def world(nodes: str = "abc", lost: str = "home", seed: int = 0) -> World:
    made = World(nodes, lost, Random(seed))
    made.settle()
    return made


# ---- one after another -----------------------------------------------------------------------------------------


def test_a_session_is_resumed_from_anywhere() -> None:
    w = world()
    first = w.comes("a", "x")
    assert first.outcome == "here" and not first.present
    again = w.comes("b", "x")
    assert (again.outcome, again.session, again.present) == ("led", first.session, True)
    assert first.is_gone  # the older connection
    w.leave(again)
    assert w.comes("c", "x").session == first.session


def test_a_session_that_was_just_made_is_found_though_nobody_was_told() -> None:
    w = world()
    first = w.come("a", "x")
    while not first.is_open:
        w.step()
    assert w.homes["a"].has_news  # it is accepted, and no note of it has left
    assert w.comes("b", "x").session == first.session


def test_a_clean_start_ends_the_session_where_it_is() -> None:
    w = world()
    first = w.comes("a", "x")
    anew = w.comes("b", "x", resumes=False)
    assert anew.outcome == "led" and not anew.present and w.brokers["a"]["x"] != first.session
    w.leave(anew)
    gone = w.comes("c", "x", resumes=False, lasts=False)
    assert gone.outcome == "led" and "x" not in w.brokers["a"]
    w.leave(gone)
    w.settle()
    assert w.comes("b", "x").outcome == "here"  # nobody has one


def test_connections_without_sessions_end_each_other() -> None:
    w = world()
    one = w.comes("a", "x", False, False)
    other = w.comes("b", "x", False, False)
    assert one.is_gone and not other.is_gone


@pytest.mark.parametrize("lost", ["home", "clean"])
def test_a_home_that_is_away(lost: str) -> None:
    w = world(lost=lost)
    first = w.comes("a", "x")
    w.leave(first)
    w.settle()
    w.cut("a", "b")
    w.cut("a", "c")
    waiting = w.come("b", "x")
    w.settle()
    assert waiting.decision is None
    w.homes["b"].is_late(waiting)
    assert waiting.decision is not None and waiting.decision.node == "a"
    assert waiting.decision.kind == (REFUSE if lost == "home" else CLEAN)
    w.settle()
    assert w.comes("b", "y").outcome == "here"
    if lost == "home":
        assert w.comes("b", "x", resumes=False).outcome == "here"
    w.link("a", "b")
    w.link("a", "c")
    w.settle()
    assert w.homes["a"].residents.get("x") is None  # the later one counts
    assert w.comes("a", "x").session == w.brokers["b"]["x"]


def test_it_is_waited_for() -> None:
    w = world()
    first = w.comes("a", "x")
    w.leave(first)
    w.settle()
    w.cut("a", "b")
    waiting = w.come("b", "x")
    w.settle()
    w.link("a", "b")
    w.settle()
    assert waiting.led is not None and waiting.led.session == first.session


def test_what_is_known_outlives_a_restart() -> None:
    w = world()
    first = w.comes("a", "x")
    w.restart("a")
    for other in "bc":
        w.link("a", other)
    w.settle()
    assert w.comes("b", "x").session == first.session
    w.restart("b")
    w.restart("a")
    w.link("b", "c")  # which knows
    w.settle()
    client = w.come("b", "x")
    w.settle()
    w.homes["b"].is_late(client)
    assert client.outcome == "refused"


def test_a_proxy_that_was_never_heard_is_waited_for_and_no_longer() -> None:
    w = world("ab")
    w.cut("a", "b")
    w.restart("b")
    client = w.come("b", "x")
    assert client.decision is None
    w.homes["b"].is_late(client)
    assert client.decision is not None and client.decision.kind == HERE
    other = w.come("b", "y")
    w.homes["b"].forgotten("a")
    assert other.decision is not None and other.decision.kind == HERE


def test_who_was_refused_leaves_nothing() -> None:
    w = world()
    stranger = w.come("a", "x")
    stranger.is_gone = True  # before the broker has answered
    w.homes["a"].closed(stranger, False, FOR_EVER, w.now)
    w.settle()
    assert len(w.homes["a"].residents) == 0 and not w.homes["a"].has_news
    assert w.comes("b", "x").outcome == "here"


def test_two_that_come_at_once_find_one_home() -> None:
    for seed in range(40):
        w = world(seed=seed)
        first, second = w.come("a", "x"), w.come("b", "x")
        w.settle()
        assert sum("x" in sessions for sessions in w.brokers.values()) == 1, seed
        assert len(w.clients()) == 1
        assert first.is_gone or second.is_gone


# ---- anything --------------------------------------------------------------------------------------------------

MOVES = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 20)), max_size=12)
STEPS = st.lists(st.integers(0, 1 << 30), min_size=5, max_size=60)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.integers(0, 1 << 30), st.sampled_from(["home", "clean"]))
def test_in_the_end_there_is_one_home_and_one_connection(steps: list[int], seed: int, lost: str) -> None:
    w = World("abc", lost, Random(seed))
    comers: list[Client] = []
    for step in steps:
        what, rest = step % 10, step // 10
        node, other, client_id = "abc"[rest % 3], "abc"[(rest // 3) % 3], "xy"[(rest // 9) % 2]
        if what < 3:
            comers.append(w.come(node, client_id, bool(rest & 64), bool(rest & 128)))
        elif what == 3 and comers:
            w.leave(comers[rest % len(comers)])
        elif what == 4 and node != other:
            w.cut(node, other)
        elif what == 5 and node != other:
            w.link(node, other)
        elif what == 6:
            w.restart(node)
        elif what == 7:
            for client in [each for each in comers if each.decision is None and not each.is_gone]:
                if rest & 512:
                    w.homes[client.node].is_late(client)
        else:
            for _ in range(rest % 12):
                w.step()
    for one, other in ("ab", "ac", "bc"):
        w.link(one, other)
    w.settle()
    for client in comers:
        if client.decision is None and not client.is_gone:
            w.homes[client.node].is_late(client)
    w.settle()
    for client_id in "xy":
        assert len([each for each in w.clients() if each.client_id == client_id]) <= 1
        having = [node for node, homes in w.homes.items() if homes.residents.get(client_id) is not None]
        assert len(having) <= 1
        if having:
            # A proxy that crashed has not seen that its broker had ended the session: then it begins there.
            expected = w.brokers[having[0]].get(client_id)
            found = {w.comes(node, client_id).session for node in "abc"}
            assert found == {expected or w.brokers[having[0]][client_id]}
    for homes in w.homes.values():
        assert not homes._waiting


@settings(max_examples=200, deadline=None)
@given(MOVES, st.integers(0, 1 << 30))
def test_while_links_are_up_no_session_is_lost(moves: list[tuple[str, bool, int]], seed: int) -> None:
    """Of a client that comes back as soon as it has CONNACK, or the connection was ended."""
    w = world(seed=seed)
    session = ""
    for node, leaves, steps in moves:
        client = w.come(node, "x")
        while not (client.is_open or (client.led and client.led.is_open)):
            assert w.step()
        found = client.led or client
        assert found.session == session or not session
        session = found.session
        for _ in range(steps):
            w.step()
        if leaves:
            w.leave(client)


# ---- parts -----------------------------------------------------------------------------------------------------


def test_notes_that_make_no_sense() -> None:
    homes = world().homes["a"]
    with pytest.raises(MalformedFrame):
        homes.received("b", Claim(Move("x", Stamp(5, "c")), False), 1.0)
    with pytest.raises(MalformedFrame):
        homes.received("b", Answer(Move("x", Stamp(5, "b")), 1, Stamp(1, "b")), 1.0)


def test_residents_end_and_are_bounded() -> None:
    residents = Residents(1000)
    for number in range(5):
        is_kept = residents.put(f"c{number}", Resident(Stamp(1, "a"), 10, 100.0 + number))
        assert is_kept == (number < 2)
    assert residents.put("c0", Resident(Stamp(2, "a"), 10, 0.0))
    assert residents.ended(100.5) is None
    assert residents.ended(101.5) == "c1"
    residents.remove("c1")
    residents.remove("c0")
    assert residents.bytes == 0 and len(residents) == 0


def test_a_record() -> None:
    away = Resident(Stamp(77, "a"), 30, 1234.5)
    assert resident_in(record_of(away), "a", 1.0) == away
    there = Resident(Stamp(77, "a"), 30, 0.0)
    assert resident_in(record_of(there), "a", 1.0) == there._replace(until=31.0)
    assert resident_in(record_of(there._replace(expiry=FOR_EVER)), "a", 1.0).until == 0.0
    with pytest.raises(MalformedFrame):
        resident_in(b"short", "a", 1.0)


def test_heap_of_many_changes_stays_small() -> None:
    residents = Residents(1 << 20)
    for number in range(10_000):
        residents.put("c", Resident(Stamp(number + 1, "a"), 10, 100.0 + number))
    assert len(residents._ends) < 200


def test_a_session_whose_time_is_over_is_nobodys() -> None:
    w = world()
    client = w.comes("a", "x")
    client.expiry = 5
    w.leave(client)
    w.settle()
    homes = w.homes["a"]
    homes.sweep(w.now + 4, 10)
    assert homes.residents.get("x") is not None
    homes.sweep(w.now + 6, 10)
    assert homes.residents.get("x") is None and homes.take_news()[1] == [Move("x", client.stamp)]
    assert Held("x", client.stamp, True) in list(w.homes["b"].others)
