"""Conditions as subscriptions have them: read once, and evaluated once for all that have the same.

Theory. A condition is split in two. What depends on the message alone is a `Predicate`, of which there is one for each
normal form: its truth is found once for each message, however many subscriptions have it. What depends on what a
subscription was sent before (`changed`, `limit`) is asked for each subscription, after its predicate has held. Only the
tests that `and` connects at the top are split; where `changed` is below an `or`, all of it is asked for each.

`Conditions` has all of a node, each once, as long as subscriptions have them.
"""

from __future__ import annotations

from typing import Final

from headwater.message import Condition, Message, Subscription, UserProperties
from headwater.routing.conditions.memory import MEMORY, Memory, MemoryBudget
from headwater.routing.conditions.nodes import And, Changed, Test
from headwater.routing.conditions.parser import Parsed, parse
from headwater.routing.conditions.reading import MOST, Reading
from headwater.routing.conditions.values import TRUE

CONDITION: Final = 1024
"""Bytes of a condition beside its tree."""
PER_CHARACTER: Final = 96
"""Bytes of the tree for each character of its text."""
SIEVE_MEMORY: Final = 1 << 20
"""Bytes that one remembers that is no subscription's."""


class Predicate:
    """Belongs to one `Conditions`, whose readings have numbers of their own."""

    def __init__(self, test: Test) -> None:
        self.test = test
        self.text = test.text()
        self.users = 0
        """Conditions that have it."""
        self._reading = 0
        self._holds = False

    def holds(self, reading: Reading, tally: Tally | None = None) -> bool:
        """Whether it is true; found out once for consecutive questions about the same message."""
        if reading.number != self._reading:
            self._reading = reading.number
            self._holds = self.test.test(reading) == TRUE
            if tally is not None:
                tally.evaluated += 1
                if reading.is_too_long:
                    reading.is_too_long = False
                    tally.unread += 1
        return self._holds


class Tally:
    """What conditions have done."""

    def __init__(self) -> None:
        self.evaluated = 0
        self.passed = 0
        self.suppressed = 0
        self.refused = 0
        self.unread = 0
        self.not_sent = 0


class ContentCondition(Condition):
    """`predicate` and `stateful`: None, where there is nothing of the kind."""

    def __init__(self, parsed: Parsed) -> None:
        plain: list[Test] = []
        stateful: list[Test] = []
        test = parsed.test
        if test is not None:
            for part in test.parts if isinstance(test, And) else [test]:
                (stateful if part.is_stateful else plain).append(part)
        self.predicate = None if not plain else Predicate(_together(plain))
        self.stateful = None if not stateful else _together(stateful)
        self.weight = max(1, parsed.terms)
        """Tests that it has, which are about alike."""
        self.changes: list[Changed] = parsed.changes
        self.count = parsed.count
        self.seconds = parsed.seconds
        super().__init__(_text_of(parsed), parsed.source)
        self.users = 0
        """Subscriptions that have it."""

    @property
    def remembers(self) -> bool:
        return self.stateful is not None or self.count > 0

    def may_hold(self, reading: Reading, tally: Tally | None = None) -> bool:
        """As far as the message alone says."""
        return self.predicate is None or self.predicate.holds(reading, tally)

    def holds_first(self, reading: Reading, tally: Tally | None = None) -> bool:
        """Whether it lets a message through of which nothing was sent before."""
        if not self.may_hold(reading, tally):
            return False
        if self.stateful is None:
            return True
        reading.remembered = None
        return self.stateful.test(reading) == TRUE

    def sent(self, reading: Reading, memory: Memory, now: float) -> None:
        memory.sent(reading.topic, [each.current(reading) for each in self.changes], self.seconds, now)

    def lets_through(self, reading: Reading, memory: Memory | None, now: float, tally: Tally | None = None) -> bool:
        """Whether a message goes to who has this `memory`; it is remembered as sent if so."""
        if self.predicate is not None and not self.predicate.holds(reading, tally):
            return False
        if memory is None:
            return True
        sent = memory.of(reading.topic)
        if self.stateful is not None:
            reading.remembered = None if sent is None else sent.values
            if self.stateful.test(reading) != TRUE:
                return False
        if (
            self.count
            and sent is not None
            and sent.count >= self.count
            and sent.since <= now < sent.since + self.seconds
        ):
            return False
        self.sent(reading, memory, now)
        return True


def _together(tests: list[Test]) -> Test:
    return tests[0] if len(tests) == 1 else And(tests)


def _text_of(parsed: Parsed) -> str:
    test = "" if parsed.test is None else parsed.test.text()
    if not parsed.count:
        return test
    return f"{test} limit {parsed.count} per {round(parsed.seconds * 1000)}ms".lstrip()


def condition_of(text: str) -> ContentCondition:
    """Raises ConditionError."""
    return ContentCondition(parse(text))


class Sieve:
    """One condition with a memory of its own, for what is no subscription: a bridge, the store, a question by REST."""

    def __init__(self, text: str, most: int = MOST, memory: int = SIEVE_MEMORY) -> None:
        """Raises ConditionError."""
        self.condition = condition_of(text)
        self.most = most
        self._memory = Memory(MemoryBudget(memory)) if self.condition.remembers else None
        self._number = 0

    def passes(
        self,
        topic: str,
        payload: bytes,
        user_properties: UserProperties | None,
        content_type: str | None,
        now: float,
    ) -> bool:
        self._number += 1
        reading = Reading(self._number, topic, payload, user_properties, content_type, self.most)
        return self.condition.lets_through(reading, self._memory, now)


def check_condition(text: str) -> str:
    """A setting that is a condition, or empty. Raises ValueError."""
    if text:
        condition_of(text)
    return text


class Conditions:
    def __init__(self, most: int = MOST, memory: int = 0) -> None:
        """`most`: bytes of a payload that is looked at; `memory`: for what subscriptions remember, of all together."""
        self.most = most
        self.budget = MemoryBudget(memory)
        self.tally = Tally()
        self.by_text: dict[str, ContentCondition] = {}
        self.predicates: dict[str, Predicate] = {}
        self._number = 0
        self._message: Message | None = None
        self._reading = Reading(0, "", b"")

    def reading(self, message: Message) -> Reading:
        """The same one for whoever asks about the same message, as long as nobody asks about another one."""
        if message is not self._message:
            self._message = message
            self._number += 1
            self._reading = Reading(
                self._number, message.topic, message.payload, message.user_properties, message.content_type, self.most
            )
        return self._reading

    def adopt(self, subscription: Subscription) -> None:
        """A subscription is there: if its condition is known already, it gets that one."""
        condition = subscription.condition
        if not isinstance(condition, ContentCondition):
            return
        known = self.by_text.get(condition.text)
        if known is None:
            known = self.by_text[condition.text] = condition
            predicate = condition.predicate
            if predicate is not None:
                predicate = condition.predicate = self.predicates.setdefault(predicate.text, predicate)
                predicate.users += 1
        known.users += 1
        subscription.condition = known
        subscription.memory = Memory(self.budget) if known.remembers else None

    def release(self, subscription: Subscription) -> None:
        """An adopted one has ended."""
        condition = subscription.condition
        if not isinstance(condition, ContentCondition):
            return
        if isinstance(subscription.memory, Memory):
            subscription.memory.clear()
            subscription.memory = None
        condition.users -= 1
        if condition.users == 0:
            del self.by_text[condition.text]
            predicate = condition.predicate
            if predicate is not None:
                predicate.users -= 1
                if predicate.users == 0:
                    del self.predicates[predicate.text]

    def replace(self, old: Subscription, new: Subscription) -> None:
        """`new` takes the place of `old`, and goes on with what that remembers if it has the same condition."""
        self.adopt(new)
        if new.memory is not None and old.condition is new.condition:
            new.memory, old.memory = old.memory, None
        self.release(old)

    def holds_first(self, subscription: Subscription, message: Message) -> bool:
        """Whether the subscription lets a retained message through, which is the first of its topic. If it is sent,
        `sent` follows."""
        condition = subscription.condition
        if not isinstance(condition, ContentCondition):
            return True
        return self._counted(condition.holds_first(self.reading(message), self.tally))

    def sent(self, subscription: Subscription, message: Message, now: float) -> None:
        condition = subscription.condition
        memory = subscription.memory
        if isinstance(condition, ContentCondition) and isinstance(memory, Memory):
            condition.sent(self.reading(message), memory, now)

    def passes(self, subscription: Subscription, message: Message, now: float) -> bool:
        """Whether the subscription lets the message through. One that was let through counts as sent."""
        condition = subscription.condition
        if not isinstance(condition, ContentCondition):
            return True
        memory = subscription.memory
        reading = self.reading(message)
        held = condition.lets_through(reading, memory if isinstance(memory, Memory) else None, now, self.tally)
        return self._counted(held)

    def _counted(self, held: bool) -> bool:
        if held:
            self.tally.passed += 1
        else:
            self.tally.suppressed += 1
        return held


def size_of(condition: Condition | None) -> int:
    """Bytes that a subscription counts with for it, as if nobody else had the same."""
    return 0 if condition is None else CONDITION + len(condition.source) * PER_CHARACTER + MEMORY
