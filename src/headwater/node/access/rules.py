"""Rules of who may publish, subscribe and receive what, in the form of Mosquitto's `acl_file`.

    topic read news/#                   before any `user`: for clients without a user name
    user alice
    topic readwrite home/alice/#
    topic deny home/alice/private/#
    pattern write devices/%c/state      for everybody; %c is the client id, %u the user name

Theory. A rule gives or denies some of three actions at the topics of a filter. Nothing is allowed that no rule gives,
and a rule that denies wins over all that give, wherever it stands. `pattern` rules are for everybody; in them `%c` and
`%u` are replaced by levels of their own: whoever's name has `/`, `+` or `#` in it, or who has none, has no part in them
when they give, and cannot escape by it when they deny (the rule then denies for any name in its place). Nor does who
is called `$headwater` get to the topics that steer the broker by a pattern that does not name them itself.

Publishing and receiving are about topic names, and exact. Subscribing is about filters: by default it is allowed if the
filter has a topic in common with what may be subscribed to and no single rule denies all of it, because what is
delivered is looked at again. A shared group cannot do that, as its messages are for any of its members: its filter must
be held by one rule, and no denial may touch it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from headwater.node.access.errors import AccessError
from headwater.node.access.filters import covers, overlap
from headwater.routing.topics import (
    ANY_LEVELS,
    InvalidTopicFilter,
    check_filter,
    has_wildcard,
    is_guarded,
    levels_match,
)
from headwater.session.rights import PUBLISH, RECEIVE, SUBSCRIBE, Remembered, Rights

ALL: Final = PUBLISH | SUBSCRIBE | RECEIVE
WORDS: Final[dict[str, int]] = {
    "read": SUBSCRIBE | RECEIVE,
    "write": PUBLISH,
    "readwrite": ALL,
    "publish": PUBLISH,
    "subscribe": SUBSCRIBE,
    "receive": RECEIVE,
    "deny": 0,
}
OVERLAP: Final = "overlap"
COVER: Final = "cover"
ALWAYS: Final = "always"


class Rule(NamedTuple):
    filter: str
    actions: int
    """What it gives, or what it denies."""
    denies: bool = False
    pattern: bool = False
    """Whether `%c` and `%u` are to be replaced."""


def deny(filter: str, pattern: bool = False) -> Rule:
    return Rule(filter, ALL, True, pattern)


class RuleSet:
    """All rules of a file: by user (None: clients without a user name), and those for everybody."""

    def __init__(self) -> None:
        self.users: dict[str | None, list[Rule]] = {}
        self.everybody: list[Rule] = []
        self.by_client = False

    def add(self, user: str | None, rule: Rule) -> None:
        self.users.setdefault(user, []).append(rule)

    def add_pattern(self, rule: Rule) -> None:
        self.everybody.append(rule)
        self.by_client = self.by_client or "%c" in rule.filter

    def of(self, username: str | None, client_id: str) -> list[Rule]:
        """The rules for one client, patterns filled in."""
        return [*self.users.get(username, ()), *filled_in(self.everybody, username, client_id)]


def filled_in(rules: Iterable[Rule], username: str | None, client_id: str) -> list[Rule]:
    found = []
    for rule in rules:
        filter = rule.filter
        for mark, name in (("%c", client_id), ("%u", username)):
            if rule.pattern and mark in filter:
                whole = bool(name) and not any(sign in name for sign in "/+#\0") if name else False
                if not whole and not rule.denies:
                    break
                filter = _put(filter, mark, name if whole and name else None)
        else:
            by_its_name = is_guarded(filter) and not is_guarded(rule.filter)
            if rule.denies or not by_its_name:
                found.append(Rule(filter, rule.actions, rule.denies))
    return found


def _put(filter: str, mark: str, name: str | None) -> str:
    """The filter with a name in the mark's place; without a name, any level in place of each that has the mark."""
    if name is not None:
        return filter.replace(mark, name)
    return "/".join("+" if mark in level else level for level in filter.split("/"))


def parse_rules(text: str, source: str) -> RuleSet:
    """The rules in a file of Mosquitto's form; AccessError says which line is wrong."""
    rules = RuleSet()
    user: str | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if not rest:
            raise AccessError(f"{source}, line {number}: nothing behind {word!r}")
        if word == "user":
            user = rest
        elif word in ("topic", "pattern"):
            rule = _rule(rest, word == "pattern", f"{source}, line {number}")
            if rule.pattern:
                rules.add_pattern(rule)
            else:
                rules.add(user, rule)
        else:
            raise AccessError(f"{source}, line {number}: {word!r} is none of user, topic, pattern")
    return rules


def _rule(rest: str, pattern: bool, where: str) -> Rule:
    word, _, filter = rest.partition(" ")
    filter = filter.strip()
    if not filter:
        word, filter = "readwrite", rest
    if word not in WORDS:
        raise AccessError(f"{where}: {word!r} is none of {', '.join(WORDS)}")
    try:
        check_filter(filter, ANY_LEVELS)
    except InvalidTopicFilter as error:
        raise AccessError(f"{where}: {error}") from error
    return deny(filter, pattern) if word == "deny" else Rule(filter, WORDS[word], False, pattern)


class RuleRights(Rights):
    """What a list of rules, patterns filled in, lets one client do."""

    def __init__(
        self,
        rules: list[Rule],
        subscribing: str = OVERLAP,
        of_token: bool = False,
        remembered: Remembered | None = None,
    ) -> None:
        super().__init__(remembered)
        self.subscribing = subscribing
        self.of_token = of_token
        self.rules = rules
        self._given = [rule for rule in rules if not rule.denies]
        self._denied = [rule for rule in rules if rule.denies]
        self._exact: dict[str, int] = {}
        self._wild: list[tuple[list[str], int]] = []
        self._exact_denied: dict[str, int] = {}
        self._wild_denied: list[tuple[list[str], int]] = []
        for rule in rules:
            exact = self._exact_denied if rule.denies else self._exact
            wild = self._wild_denied if rule.denies else self._wild
            if has_wildcard(rule.filter):
                wild.append((rule.filter.split("/"), rule.actions))
            else:
                exact[rule.filter] = exact.get(rule.filter, 0) | rule.actions

    def decide(self, topic: str, action: int) -> bool:
        levels = topic.split("/")
        if self._exact_denied.get(topic, 0) & action or _any_match(self._wild_denied, levels, action):
            return False
        return bool(self._exact.get(topic, 0) & action) or _any_match(self._wild, levels, action)

    def may_subscribe(self, filter: str, shared: bool) -> bool:
        given = [rule.filter for rule in self._given if rule.actions & SUBSCRIBE]
        denied = [rule.filter for rule in self._denied if rule.actions & SUBSCRIBE]
        if shared:
            readable = [rule.filter for rule in self._given if rule.actions & RECEIVE]
            return (
                any(covers(each, filter) for each in given)
                and any(covers(each, filter) for each in readable)
                and not any(overlap(each, filter) for each in denied)
            )
        if self.subscribing == ALWAYS:
            return True
        if self.subscribing == COVER:
            return any(covers(each, filter) for each in given) and not any(overlap(each, filter) for each in denied)
        return any(overlap(each, filter) for each in given) and not any(covers(each, filter) for each in denied)


def _any_match(rules: list[tuple[list[str], int]], levels: list[str], action: int) -> bool:
    for filter, actions in rules:
        if actions & action and levels_match(filter, levels):
            # [MQTT-4.7.2-1] A wildcard in the first level does not reach topics that begin with `$`.
            if filter[0] in ("+", "#") and levels[0].startswith("$"):
                continue
            return True
    return False
