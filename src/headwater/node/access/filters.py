"""Two topic filters: do they have a topic in common, and does one hold all topics of the other?

Theory. Both are read level by level. As long as no `#` was met, a level of a filter stands for one level of a topic: a
name for itself, `+` for any. So two filters have a topic in common if at each level one is `+` or both are the same
name, and both end there, or one goes on with `#`, which takes whatever is left of the other. One holds the other if at
each level it is `+` or both are the same, until it says `#`. Wildcards at the beginning do not reach names that begin
with `$` [MQTT-4.7.2-1]. tests/node/access/test_filters.py compares both with all topics of a small world.
"""

from __future__ import annotations

WILDCARDS = ("+", "#")


def _apart_by_dollar(wild: str, name: str) -> bool:
    return wild in WILDCARDS and name.startswith("$")


def overlap(one: str, other: str) -> bool:
    """Whether a topic exists that both filters match."""
    a, b = one.split("/"), other.split("/")
    if _apart_by_dollar(a[0], b[0]) or _apart_by_dollar(b[0], a[0]):
        return False
    for left, right in zip(a, b, strict=False):
        if left == "#" or right == "#":
            return True
        if left != right and left != "+" and right != "+":
            return False
    if len(a) == len(b):
        return True
    longer, shorter = (a, b) if len(a) > len(b) else (b, a)
    return longer[len(shorter)] == "#"


def covers(wide: str, narrow: str) -> bool:
    """Whether `wide` matches every topic that `narrow` matches."""
    a, b = wide.split("/"), narrow.split("/")
    if _apart_by_dollar(a[0], b[0]):
        return False
    if narrow == "#":
        return wide in ("#", "+/#")  # a topic has at least one level
    for index, level in enumerate(a):
        if level == "#":
            return True
        if index == len(b) or b[index] == "#" or level not in ("+", b[index]):
            return False
    return len(a) == len(b)
