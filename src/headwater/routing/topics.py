"""Topic names and topic filters: what is well formed, and which filter matches which name (MQTT 5.0, section 4.7).

A name or filter is a sequence of levels between slashes; empty levels count, so `/a` has two. In a filter, `+` stands
for exactly one level and `#`, only at the end, for the level before it and everything below. `matches` is the plain
meaning of that; the trie and the retained store are faster ways to the same answer.
"""

from __future__ import annotations

from typing import Final

SHARE_PREFIX: Final = "$share/"
LONG: Final = 1000
LONGEST_TOPIC: Final = 65535
"""Bytes of a topic name or filter: on the wire, two bytes say how many there are."""
ANY_LEVELS: Final = 65536
"""No topic has more, as it would be longer; for those that leave the limit to a broker."""
USUAL_LEVELS: Final = 128
"""Levels that a broker takes unless `max_topic_levels` says otherwise."""
LEVELS_ASKED: Final = 1000
"""Levels of a topic or filter by which a store or a lake is asked."""


class InvalidTopicFilter(ValueError):
    """A topic filter that the standard, or the broker's limit of levels, does not allow."""


class FilterTooDeep(InvalidTopicFilter):
    """A topic filter that is well formed as far as was looked, with more levels than the broker takes."""


class InvalidTopicName(ValueError):
    """A topic name that the standard, or the broker's limit of levels, does not allow."""


def is_reserved(name: str) -> bool:
    """Whether clients may not publish to a topic: `$SYS` is the broker's own, but for what bridges say of themselves,
    and to `$share/…` nobody could subscribe."""
    if name != "$SYS" and not name.startswith("$SYS/"):
        return name.startswith("$share/")
    levels = name.split("/")
    return len(levels) != 5 or levels[1:3] != ["broker", "connection"] or levels[4] != "state"


def is_guarded(name: str) -> bool:
    """Whether a topic, or all that a filter matches, steers the broker: `$headwater/…` is only for those to whom a rule
    of access gives it by its name."""
    return name == "$headwater" or name.startswith("$headwater/")


def has_wildcard(filter: str) -> bool:
    """Whether a well-formed filter can match more than the one topic it spells."""
    return "+" in filter or "#" in filter


def split_shared(filter: str) -> tuple[str | None, str]:
    """Split `$share/name/filter` into (name, filter); any other filter comes back as (None, filter).

    The inner filter is only known not to be empty: `check_filter` judges the rest of it.
    """
    if not filter.startswith(SHARE_PREFIX):
        return None, filter
    start = len(SHARE_PREFIX)
    slash = filter.find("/", start)
    if slash < 0:
        raise InvalidTopicFilter("a shared subscription needs a filter behind its share name")  # [MQTT-4.8.2-2]
    if slash == start:
        raise InvalidTopicFilter("the share name is empty")  # [MQTT-4.8.2-1]
    share = filter[start:slash]
    if has_wildcard(share):
        raise InvalidTopicFilter("the share name has a wildcard")  # [MQTT-4.8.2-2]
    if slash + 1 == len(filter):
        raise InvalidTopicFilter("the filter behind the share name is empty")  # [MQTT-4.8.2-2]
    return share, filter[slash + 1 :]


def check_filter(filter: str, max_levels: int) -> None:
    """Raise InvalidTopicFilter unless the filter (without any `$share/name/`) is well formed and not too deep."""
    if not filter:
        raise InvalidTopicFilter("the topic filter is empty")  # [MQTT-4.7.3-1]
    if "\0" in filter:
        raise InvalidTopicFilter("the topic filter has a null character")  # [MQTT-4.7.3-2]
    # Before the split below: a refused filter should cost little.
    if _has_more_levels(filter, max_levels):
        raise FilterTooDeep(f"the topic filter has more than {max_levels} levels")
    if not has_wildcard(filter):
        return
    levels = levels_of(filter)
    last = len(levels) - 1
    for index, level in enumerate(levels):
        if level == "#":
            if index != last:
                raise InvalidTopicFilter("'#' must be the last level of a topic filter")  # [MQTT-4.7.1-1]
        elif "#" in level:
            raise InvalidTopicFilter("'#' must stand alone in its level")  # [MQTT-4.7.1-1]
        elif "+" in level and level != "+":
            raise InvalidTopicFilter("'+' must stand alone in its level")  # [MQTT-4.7.1-2]


def _has_more_levels(name: str, most: int) -> bool:
    if len(name) < LONG:
        return name.count("/") >= most
    # `find` uses the processor's wide registers and stops where it must; `count` and `split` look at each character,
    # which takes 15 µs for 64 KiB.
    at = -1
    for _ in range(most):
        at = name.find("/", at + 1)
        if at < 0:
            return False
    return True


def levels_of(name: str) -> list[str]:
    """What stands between the slashes of a name or filter."""
    if len(name) < LONG:
        return name.split("/")
    levels: list[str] = []
    start = 0
    while True:
        end = name.find("/", start)
        if end < 0:
            levels.append(name[start:])
            return levels
        levels.append(name[start:end])
        start = end + 1


def check_name(topic: str, max_levels: int) -> None:
    """Raise InvalidTopicName unless the topic name is well formed and not too deep."""
    if not topic:
        raise InvalidTopicName("the topic name is empty")  # [MQTT-4.7.3-1]
    if has_wildcard(topic):
        raise InvalidTopicName("the topic name has a wildcard")  # [MQTT-3.3.2-2]
    if "\0" in topic:
        raise InvalidTopicName("the topic name has a null character")  # [MQTT-4.7.3-2]
    if _has_more_levels(topic, max_levels):
        raise InvalidTopicName(f"the topic name has more than {max_levels} levels")


def matches(filter: str, topic: str) -> bool:
    """Whether a well-formed filter matches a well-formed topic name."""
    # [MQTT-4.7.2-1]: a wildcard in the first level does not reach topics that begin with `$`.
    if topic.startswith("$") and filter.startswith(("+", "#")):
        return False
    return levels_match(levels_of(filter), levels_of(topic))


def levels_match(filter_levels: list[str], topic_levels: list[str]) -> bool:
    """Whether the levels agree, leaving aside the rule for `$`."""
    for index, level in enumerate(filter_levels):
        # All levels before agreed, so the topic is the parent level of `#` or something below it.
        if level == "#":
            return True
        if index == len(topic_levels):
            return False
        if level not in ("+", topic_levels[index]):
            return False
    return len(filter_levels) == len(topic_levels)  # [MQTT-4.7.3-4]: nothing is normalised, empty levels count
