"""`summary`, ours and the default: the paper's prefixes with one line of memory for each.

Theory. Filters are stored by their prefixes, as in the paper; they form a tree. Known of a prefix are up to four facts
(`lines`): a name may follow, `+` may, `#` does, a filter ends here. All of them are in one line, so that to stand on a
prefix and know where to go costs one read, where the paper asks the filter three times. On the way down:

- **The hash grows with the prefix** (`hashing`): nothing is hashed twice.
- **`+` lies with its parent.** Whoever stands on a prefix goes on to its `+` most of the time, so that child has its
  facts in the same line, unless the parent lies with its own parent already: of a run of `+`, every second is free.
- **What occurs at which level** is known exactly (`kinds`): there is no `#` to look for at a level where no filter has
  one, and a topic deeper than all filters is not looked at any further.
- **Answers are kept**, as devices publish to the same topics again and again, until the filter changes.

`#` is a fact of the prefix before it, so `sport/#` is found for `sport`; wildcards at the first level are not looked at
for topics that begin with `$`. The search is depth first, `#` before `+` before names, and goes on behind branches that
failed, of which the printed algorithm forgets all but the first. A topic and filters that were made for it can still
cost 2^levels reads: after `most_probes` the answer is "maybe".
"""

from __future__ import annotations

from sys import getsizeof
from typing import Final

from mypy_extensions import i64

from headwater.interest.filter import MOST_PROBES, Incompatible, Interest, Statistics
from headwater.interest.hashing import extended, level_hash, root_hash
from headwater.interest.lines import END, LITERAL, PAGE_LINES, PLUS, REST, Lines, fact_hash, has, line_of
from headwater.interest.sizing import LINE_BYTES, MOST, Geometry
from headwater.interest.written import Reading, Writing
from headwater.routing.topics import ANY_LEVELS

KIND: Final = "summary"
MOST_ANSWERS: Final = 10_000


class SharedSummary(Interest):
    """What can be asked. Others have sent it, or it is the part of a `Summary` that is sent."""

    def __init__(self, seed: int, made: Geometry, kinds: bytes, most_probes: int = MOST_PROBES) -> None:
        super().__init__(most_probes)
        self.seed = seed
        self.geometry = made
        self.kinds = kinds
        """For each number of levels which facts there are of prefixes that long."""
        self.lines = Lines(made.lines)
        self._root = root_hash(seed)
        self._plus = level_hash(b"+", seed)
        self._answers: dict[str, bool] = {}

    # ---- asking ------------------------------------------------------------------------------------------------

    def may_match(self, topic: str) -> bool:
        known = self._answers.get(topic)
        if known is not None:
            self.probes = 0
            self.lookups += 1
            return known
        found = self._search(topic)
        if len(self._answers) >= MOST_ANSWERS:
            self._answers.clear()
        self._answers[topic] = found
        return found

    def forget_answers(self) -> None:
        """The filter has changed."""
        self._answers.clear()

    def _search(self, topic: str) -> bool:
        kinds = self.kinds
        names = topic.encode().split(b"/", len(kinds))  # no filter has more levels than that
        hashes: list[int] = []
        depth: i64 = 0
        levels: i64 = len(names)
        prefix: i64 = self._root
        plus: i64 = self._plus
        pages = self.lines.pages
        count: i64 = self.lines.count
        inner: i64 = self.geometry.inner
        terminal: i64 = self.geometry.terminal
        probes: i64 = 1
        most: i64 = self.most_probes
        line = line_of(prefix >> 30, count)
        page = pages[line // PAGE_LINES]
        base = line % PAGE_LINES * LINE_BYTES
        lies_with_parent = False
        is_system = topic.startswith("$")  # [MQTT-4.7.2-1]
        others: list[tuple[int, int]] = []
        while True:
            kind: i64 = kinds[depth]
            if is_system and depth == 0:
                kind &= LITERAL
            if kind & REST and has(page, base, fact_hash(prefix, REST), terminal):
                return self._answered(True, probes)
            has_name = has_plus = False
            if depth < levels:
                has_name = kind & LITERAL != 0 and has(page, base, fact_hash(prefix, LITERAL), inner)
                has_plus = kind & PLUS != 0 and has(page, base, fact_hash(prefix, PLUS), inner)
            elif kind & END and has(page, base, fact_hash(prefix, END), terminal):
                return self._answered(True, probes)
            if has_name:
                while len(hashes) <= depth:
                    hashes.append(level_hash(names[len(hashes)], self.seed))
                others.append((extended(prefix, hashes[depth]), depth + 1))
            if has_plus:
                prefix = extended(prefix, plus)
                depth += 1
                lies_with_parent = not lies_with_parent
                if lies_with_parent:
                    continue
            elif others:
                prefix, depth = others.pop()
                lies_with_parent = False
            else:
                return self._answered(False, probes)
            if probes == most:
                return self._gave_up(probes)
            probes += 1
            line = line_of(prefix >> 30, count)
            page = pages[line // PAGE_LINES]
            base = line % PAGE_LINES * LINE_BYTES

    # ---- as a whole --------------------------------------------------------------------------------------------

    def merge(self, other: Interest) -> None:
        if not isinstance(other, SharedSummary):
            raise Incompatible("a summary takes only summaries")
        if (self.seed, self.geometry) != (other.seed, other.geometry):
            raise Incompatible("these summaries have different seeds or sizes: keep them side by side")
        self.lines.merge(other.lines)
        self.kinds = _either(self.kinds, other.kinds)
        self.forget_answers()

    def encode(self) -> bytes:
        made = Writing(KIND)
        for number in (self.seed, *self.geometry):
            made.number(number)
        made.runs(self.kinds)
        made.block(self.lines.whole())
        return made.done()

    def statistics(self) -> Statistics:
        shared = self.lines.count * LINE_BYTES
        return Statistics(
            filters=None,
            elements=None,
            shared_bytes=shared,
            kept_bytes=sum(map(getsizeof, self.lines.pages)) + getsizeof(self.lines.pages) + len(self.kinds),
            lookups=self.lookups,
            probes=self.total_probes,
            given_up=self.given_up,
        )


def read_summary(data: Reading) -> SharedSummary:
    """Raises Incompatible."""
    seed, lines, inner, terminal = (data.number() for _ in range(4))
    kinds = data.runs(ANY_LEVELS)
    content = data.block()
    data.end()
    if not kinds or not lines or len(content) != lines * LINE_BYTES or not 0 < inner <= MOST >= terminal > 0:
        raise Incompatible("malformed summary")
    made = SharedSummary(seed, Geometry(lines, inner, terminal), kinds)
    made.lines.read(content)
    return made


def _either(one: bytes, two: bytes) -> bytes:
    size = max(len(one), len(two))
    return bytes(a | b for a, b in zip(one.ljust(size, b"\0"), two.ljust(size, b"\0"), strict=True))
