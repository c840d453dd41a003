"""`bf`: the filter as it is, and a search for every filter that could match the topic.

A topic of d levels matches 2^d filters without `#`, and 2^i with `#` behind i levels. `bf-paper` counts as the paper
does and leaves out `#` behind all d levels, so it does not find `sport/#` for `sport`; nor does it know that wildcards
at the first level leave topics that begin with `$` alone. General forms are asked for first: they match most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.interest.elements import Asking, Method


def forms(levels: list[str], count: int) -> Iterator[list[str]]:
    """The first levels with `+` for some of them: all, then fewer and fewer."""
    for chosen in range((1 << count) - 1, -1, -1):
        yield ["+" if chosen >> (count - 1 - at) & 1 else levels[at] for at in range(count)]


class Bf(Method):
    def __init__(self, is_mended: bool = True) -> None:
        self.name = "bf" if is_mended else "bf-paper"
        self.is_mended = is_mended

    def elements(self, levels: list[str]) -> Iterable[str]:
        return ["/".join(levels)]

    def search(self, levels: list[str], asking: Asking) -> bool:
        is_system = self.is_mended and levels[0].startswith("$")
        deepest = len(levels) + 1 if self.is_mended else len(levels)
        for count in range(deepest):
            for form in forms(levels, count):
                if not (is_system and (not form or form[0] == "+")) and asking.has("/".join([*form, "#"])):
                    return True
        for form in forms(levels, len(levels)):
            if not (is_system and form[0] == "+") and asking.has("/".join(form)):
                return True
        return False
