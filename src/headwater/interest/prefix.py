"""`prefix`, the paper's method: every prefix of a filter is stored, the whole of it with a mark at its end.

Theory. The prefixes of all filters form a tree in the Bloom filter. A topic is searched for as in a trie: at each level
`#` with the end mark, `+`, and the name are asked for behind each prefix that was found, depth first, `#` first; the
search ends where no prefix goes on.

Three of them, by name. `prefix-printed` is Algorithm 1 as it stands in the paper, which loses messages: it follows only
the first branch that goes on, and asks for `/#$`, `/+` and `/name` at the first level, where registration has stored
them without the slash. `prefix-paper` is what the paper's prose and its figures describe, a full search; it does not
find `sport/#` for `sport`, takes `$` for its end mark, which a topic may contain, and lets wildcards match topics that
begin with `$`. `prefix` is mended: the end mark is a character that no topic has.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.interest.elements import Asking, Method

PAPERS_MARK = "$"
MARK = "\0"


def prefixes(levels: list[str], mark: str) -> list[str]:
    """Of a filter, the whole of it last."""
    found = ["/".join(levels[:count]) for count in range(1, len(levels))]
    return [*found, "/".join(levels) + mark]


class Prefix(Method):
    def __init__(self, is_mended: bool = True) -> None:
        self.name = "prefix" if is_mended else "prefix-paper"
        self.is_mended = is_mended
        self._mark = MARK if is_mended else PAPERS_MARK

    def elements(self, levels: list[str]) -> Iterable[str]:
        return prefixes(levels, self._mark)

    def search(self, levels: list[str], asking: Asking) -> bool:
        is_system = self.is_mended and levels[0].startswith("$")
        last = len(levels) - 1
        waiting: list[tuple[str, int]] = [("", 0)]
        while waiting:
            before, at = waiting.pop()
            only_names = is_system and at == 0
            if not only_names and asking.has(f"{before}#{self._mark}"):
                return True
            going_on = []
            for level in ([] if only_names else ["+"]) + [levels[at]]:
                here = before + level
                if at < last:
                    if asking.has(here):
                        going_on.append((f"{here}/", at + 1))
                elif asking.has(here + self._mark) or (self.is_mended and asking.has(f"{here}/#{self._mark}")):
                    return True
            waiting += reversed(going_on)
        return False


class PrintedPrefix(Method):
    """Algorithm 1, line by line."""

    name = "prefix-printed"

    def elements(self, levels: list[str]) -> Iterable[str]:
        return prefixes(levels, PAPERS_MARK)

    def search(self, levels: list[str], asking: Asking) -> bool:
        return self._helper("", 0, [*levels[:-1], levels[-1] + PAPERS_MARK], asking)

    def _helper(self, prefix: str, level: int, levels: list[str], asking: Asking) -> bool:
        plus = f"{prefix}/+{PAPERS_MARK}" if level == len(levels) - 1 else f"{prefix}/+"
        for each in (f"{prefix}/#{PAPERS_MARK}", plus, f"{prefix}/{levels[level]}"):
            if asking.has(each):
                return each.endswith(PAPERS_MARK) or self._helper(each, level + 1, levels, asking)
        return False
