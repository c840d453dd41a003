"""What can be watched of shared groups, and the dispatcher each of them gets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.message import Message
from headwater.node.config import Config, ConfigError, load_config
from headwater.node.protocol.group_view import view_groups
from headwater.node.protocol.sys_topics import MOST_MEMBERS, SysTopics
from headwater.routing.dispatcher_rules import DispatcherRules, check_pattern, covers
from headwater.routing.topics import matches
from headwater.wire.packets import Properties, Puback, Publish, Subscribe, SubscribeRequest, Unsubscribe
from tests.node.memory import Client, MemoryBroker


def join(broker: MemoryBroker, name: str, filter: str = "$share/g/t/+", qos: int = 1) -> Client:
    client = broker.client(name, properties=Properties(session_expiry_interval=100))
    client.send(Subscribe(1, [SubscribeRequest(filter, qos)]))
    return client


def publish(broker: MemoryBroker, count: int, topic: str = "t/1") -> None:
    publisher = broker.client("p")
    publisher.send(*[Publish(topic, b"x", 1, packet_id=number + 1) for number in range(count)])


def test_a_group_and_its_members_can_be_seen() -> None:
    broker = MemoryBroker(Config(sys_interval=0, max_inflight=3))
    one = join(broker, "one")
    join(broker, "away").lose()
    publish(broker, 5)
    one.send(Puback(1))
    [group] = view_groups(broker.server)
    assert (group.name, group.dispatcher, group.sent, group.waiting, group.online) == (
        "$share/g/t/+",
        "adaptive",
        4,
        1,
        1,
    )
    seen, away = group.members
    assert (seen.client_id, seen.online, seen.ready, seen.sent, seen.in_flight) == ("one", True, False, 4, 3)
    assert (seen.waiting, seen.weight) == (None, 1)
    assert set(seen.believed) == {"seconds_per_message", "seconds_of_work", "seconds_away"}
    assert (away.client_id, away.online, away.ready, away.sent) == ("away", False, False, 0)


def sys_tree(broker: MemoryBroker, sys_topics: SysTopics) -> dict[str, str]:
    sys_topics.publish(broker.server.hot.now)
    found = broker.server.router.retained.match("$SYS/broker/shared/#", broker.server.hot.now)
    return {message.topic.removeprefix("$SYS/broker/shared/"): message.payload.decode() for message in found}


def test_groups_are_in_the_sys_tree_and_leave_it() -> None:
    broker = MemoryBroker()
    sys_topics = SysTopics(broker.server, 0.0)
    one = join(broker, "one/+", "$share/g/t/#")
    publish(broker, 2)
    tree = sys_tree(broker, sys_topics)
    place = "g/t%2F%23"
    member = json.loads(tree.pop(f"{place}/member/one%2F%2B"))
    assert (member["sent"], member["in_flight"], member["online"]) == (2, 2, True)
    assert tree == {f"{place}/dispatcher": "adaptive", f"{place}/messages/sent": "2", f"{place}/messages/waiting": "0"}
    one.send(Unsubscribe(2, ["$share/g/t/#"]))
    assert sys_tree(broker, sys_topics) == {}
    join(broker, "one/+", "$share/g/t/#")
    assert len(sys_tree(broker, sys_topics)) == 4


def test_the_sys_tree_shows_a_bounded_number_of_members() -> None:
    broker = MemoryBroker()
    for number in range(MOST_MEMBERS + 5):
        join(broker, f"m{number}")
    tree = sys_tree(broker, SysTopics(broker.server, 0.0))
    assert sum("/member/" in topic for topic in tree) == MOST_MEMBERS


@pytest.mark.parametrize("also", [None, "published"])
def test_every_choice_can_be_watched(also: str | None) -> None:
    """Also of what had to wait for room."""
    broker = MemoryBroker(Config(sys_interval=0, max_inflight=1, shared_dispatcher="round_robin"))
    told: list[tuple[str, str, bytes]] = []
    clients = {name: join(broker, name) for name in ("one", "other")}

    @broker.hooks.on("dispatched")
    def dispatched(group: str, client_id: str, message: Message) -> None:
        told.append((group, client_id, message.payload))

    if also is not None:
        broker.hooks.add(also, lambda *arguments: None)
    publish(broker, 3)
    clients["other"].send(Puback(1))
    assert told == [("$share/g/t/+", name, b"x") for name in ("one", "other", "other")]


# ---- which dispatcher ------------------------------------------------------------------------------------------


def dispatchers(broker: MemoryBroker) -> dict[str, str]:
    return {group.name: group.dispatcher for group in view_groups(broker.server)}


def test_groups_get_their_dispatcher_by_pattern() -> None:
    rules = {"$share/jobs/#": "hash_topic", "$share/+/a/b": "sticky", "$share/#": "random"}
    broker = MemoryBroker(Config(sys_interval=0, shared_dispatchers=rules))
    names = ["$share/jobs/x/+", "$share/jobs/a/b", "$share/other/a/b", "$share/other/a/b/#", "$share/other/x"]
    for number, name in enumerate(names):
        join(broker, f"m{number}", name)
    assert list(dispatchers(broker).values()) == ["hash_topic", "hash_topic", "sticky", "random", "random"]


def test_a_group_can_get_another_dispatcher_at_run_time() -> None:
    broker = MemoryBroker(Config(sys_interval=0))
    clients = [join(broker, name) for name in ("one", "other")]
    join(broker, "elsewhere", "$share/h/t/+")
    publish(broker, 4)
    assert broker.server.sharing.use_dispatcher("$share/g/#", "sticky") == 1
    assert broker.server.sharing.use_dispatcher("$share/g/#", "sticky") == 0
    for client in clients:
        client.messages()
    publish(broker, 6)
    assert sorted(len(client.messages()) for client in clients) == [0, 6]
    join(broker, "late", "$share/g/later")
    assert dispatchers(broker) == {"$share/g/t/+": "sticky", "$share/h/t/+": "adaptive", "$share/g/later": "sticky"}
    with pytest.raises(ValueError, match="there is no dispatcher 'best'"):
        broker.server.sharing.use_dispatcher("$share/g/#", "best")
    with pytest.raises(ValueError, match="does not begin with"):
        broker.server.sharing.use_dispatcher("jobs/#", "random")


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"jobs/#": "random"}, "does not begin with $share/"),
        ({"$share/g/a#": "random"}, "not written as a topic filter"),
        ({"$share/g/#": "best"}, "there is no dispatcher 'best'"),
    ],
)
def test_wrong_rules_are_refused_with_the_reason(rules: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {"shared_dispatchers": rules})
    assert said in str(caught.value)


levels = st.lists(st.sampled_from(["a", "b", "", "+"]), min_size=1, max_size=4)


@given(levels, levels, st.booleans())
def test_a_pattern_is_read_as_a_topic_filter_is(pattern: list[str], name: list[str], rest: bool) -> None:
    """Except that the levels of the name are taken as they are."""
    whole = "/".join(["$share", *pattern, *(["#"] if rest else [])])
    check_pattern(whole)
    group = "/".join(["$share", *name])
    assert covers(whole, group) == matches(whole, group.replace("+", "a b"))  # a level that nothing else is equal to


def test_a_rule_replaces_the_one_of_the_same_pattern() -> None:
    rules = DispatcherRules("random", [("$share/a/#", "sticky")])
    rules.put_first("$share/#", "score")
    rules.put_first("$share/a/#", "adaptive")
    assert rules.rules == [("$share/a/#", "adaptive"), ("$share/#", "score")]
    assert rules.name_for("$share/a/b") == "adaptive"
