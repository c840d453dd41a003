"""Any order of connections, losses, kills, stops, cuts, half-moved bytes and passing time: each will once, or never."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.session.connection import CONNECTED
from tests.node.links.will_world import NAMES, World

PAIRS = [("a", "b"), ("a", "c"), ("b", "c")]


class Wills(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world: World
        self.number = 0
        self.at: dict[str, tuple[str, bytes, int]] = {}
        """Node, will and delay of the clients that are connected."""
        self.waiting: dict[str, tuple[str, bytes]] = {}
        """Node and will of those that are not, and whose delay may not be over."""
        self.has_to_be: set[bytes] = set()
        self.must_not_be: set[bytes] = set()
        """Wills that were dropped while nothing was wrong."""

    @initialize(sessions=st.booleans())
    def begin(self, sessions: bool) -> None:
        self.world = World(sessions=sessions)

    def _is_well(self) -> bool:
        world = self.world
        return not world.cuts and not world.stopped and len(world.nodes) == len(NAMES) and world.is_up()

    def _running(self) -> list[str]:
        return [name for name in NAMES if self.world.runs(name)]

    def _is_connected(self, client_id: str, name: str, payload: bytes, delay: int) -> None:
        """Unless it waits for other nodes, to be asked for its session: then its will may be set later, or never."""
        if self.world.clients[client_id].channel.state == CONNECTED:
            self.at[client_id] = (name, payload, delay)

    # ---- clients ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._running())
    @rule(data=st.data(), delay=st.sampled_from([0, 0, 15]), expiry=st.sampled_from([0, 1000]), settles=st.booleans())
    def connect(self, data: st.DataObject, delay: int, expiry: int, settles: bool) -> None:
        self.number += 1
        name = data.draw(st.sampled_from(self._running()))
        client_id, payload = f"x{self.number}", b"%d" % self.number
        self.world.connect(name, client_id, payload, delay, expiry)
        if settles:
            self.world.settle()
        else:
            self.world.sync()  # a kill may undo a connection whose CONNACK has not left
        self._is_connected(client_id, name, payload, min(delay, expiry))

    @precondition(lambda self: any(self.world.runs(name) for name, _, _ in self.at.values()))
    @rule(data=st.data(), settles=st.booleans())
    def lose(self, data: st.DataObject, settles: bool) -> None:
        client_id = data.draw(st.sampled_from([key for key, each in self.at.items() if self.world.runs(each[0])]))
        name, payload, delay = self.at.pop(client_id)
        self.world.lose(client_id)
        self.has_to_be.add(payload)
        if delay:
            self.waiting[client_id] = (name, payload)
        if settles:
            self.world.settle()

    @precondition(lambda self: any(self.world.runs(name) for name, _, _ in self.at.values()))
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        client_id = data.draw(st.sampled_from([key for key, each in self.at.items() if self.world.runs(each[0])]))
        _, payload, _ = self.at.pop(client_id)
        was_published = payload in self.world.published
        self.world.disconnect(client_id)
        if self._is_well() and not was_published:
            self.world.settle()
            self.must_not_be.add(payload)
        else:
            self.world.sync()

    @precondition(lambda self: any(self.world.runs(name) for name, _ in self.waiting.values()))
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        """While the delay is not over: the will is void."""
        client_id = data.draw(st.sampled_from([key for key, each in self.waiting.items() if self.world.runs(each[0])]))
        name, payload = self.waiting.pop(client_id)
        session = self.world.nodes[name].server.sessions.get(client_id)
        if session is None or session.will is None or session.will.payload != payload:
            return
        is_well = self._is_well() and payload not in self.world.published
        self.number += 1
        self.has_to_be.discard(payload)
        self.world.connect(name, client_id, b"%d" % self.number)
        self.world.settle()
        self._is_connected(client_id, name, b"%d" % self.number, 0)
        if is_well and client_id in self.at:
            self.must_not_be.add(payload)

    # ---- faults ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data(), keep=st.sampled_from([0, None]))
    def kill(self, data: st.DataObject, keep: int | None) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.nodes)))
        for client_id, (at, payload, _) in list(self.at.items()):
            if at == name:
                del self.at[client_id]
                self.has_to_be.add(payload)
        self.world.kill(name, keep)

    @precondition(lambda self: len(self.world.nodes) < len(NAMES))
    @rule(data=st.data(), settles=st.booleans())
    def restart(self, data: st.DataObject, settles: bool) -> None:
        self.world.restart(data.draw(st.sampled_from([name for name in NAMES if name not in self.world.nodes])))
        if settles:
            self.world.settle()

    @precondition(lambda self: self._running())
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        self.world.stop(data.draw(st.sampled_from(self._running())))

    @precondition(lambda self: self.world.stopped)
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        self.world.go_on(data.draw(st.sampled_from(sorted(self.world.stopped))))

    @rule(pair=st.sampled_from(PAIRS))
    def cut(self, pair: tuple[str, str]) -> None:
        self.world.cut(pair)

    @rule(name=st.sampled_from(NAMES))
    def isolate(self, name: str) -> None:
        self.world.isolate(name)

    @rule()
    def heal(self) -> None:
        self.world.heal()

    @rule(seconds=st.sampled_from([1, 3, 8, 12, 20, 45]))
    def later(self, seconds: int) -> None:
        self.world.later(seconds)

    @rule()
    def move(self) -> None:
        self.world.move()

    @rule()
    def sync(self) -> None:
        self.world.sync()

    # ---- what holds ------------------------------------------------------------------------------------------------

    @invariant()
    def nothing_twice(self) -> None:
        twice = [payload for payload, count in self.world.published.items() if count > 1]
        assert not twice, twice
        void = self.must_not_be & set(self.world.published)
        assert not void, void

    def teardown(self) -> None:
        self.world.heal()
        for name in list(self.world.stopped):
            self.world.go_on(name)
        for name in NAMES:
            if name not in self.world.nodes:
                self.world.restart(name)
        self.world.later(60)
        self.nothing_twice()
        missing = self.has_to_be - set(self.world.published)
        assert not missing, missing
        assert [node.wills.held for node in self.world.nodes.values()] == [0, 0, 0]


EXAMPLES = int(os.environ.get("HEADWATER_WILLS_EXAMPLES", "40"))
PHASES = (Phase.explicit, Phase.reuse, Phase.generate) if "HEADWATER_WILLS_EXAMPLES" in os.environ else tuple(Phase)
TestWills = Wills.TestCase
TestWills.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    phases=PHASES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
