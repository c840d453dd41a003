"""Which filter matches which topic (MQTT 5.0, 4.7)."""

from __future__ import annotations

import pytest

from . import build
from .marks import V5, both_versions, clause, clause311
from .peer import Target, connected

# In both, N stands for a level that no other scenario uses.
MATCHES: dict[str, tuple[list[str], list[str]]] = {
    "N/a/b": (["N/a/b"], ["N/a", "N/a/b/", "N/a/b/c", "/N/a/b", "N/A/b", "N/a/B", "N//a/b"]),
    "N/a/#": (["N/a", "N/a/", "N/a/b", "N/a/b/c", "N/a//"], ["N", "N/", "N/ab", "N/b"]),
    "N/#": (["N", "N/", "N/a", "N/a/b", "N//", "N/$x"], ["NN", "/N", "x/N"]),
    "N/+": (["N/a", "N/", "N/$x"], ["N", "N/a/b", "N//", "NN"]),
    "N/+/b": (["N/a/b", "N//b"], ["N/b", "N/a/b/", "N/a/c", "N/a/a/b"]),
    "N/+/+": (["N/a/b", "N//", "N/a/"], ["N/a", "N/", "N/a/b/c"]),
    "N/+/#": (["N/a", "N/", "N/a/b", "N//b", "N/a/b/c"], ["N"]),
    "+/N": (["a/N", "/N"], ["N", "a/b/N", "a/N/", "a/NN"]),
    "+/N/#": (["a/N", "a/N/b", "/N"], ["N", "a/b/N"]),
    "+/+/N": (["a/b/N", "//N", "/b/N"], ["a/N", "N"]),
    "/N": (["/N"], ["N", "//N", "/N/"]),
    "/N/#": (["/N", "/N/a"], ["N", "N/a", "//N"]),
    "/+/N": (["/a/N", "//N"], ["a/N", "/N"]),
    "N/": (["N/"], ["N", "N//"]),
    "N//b": (["N//b"], ["N/b", "N/a/b"]),
    "N/ /b": (["N/ /b"], ["N//b", "N/b"]),
}


@clause("MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-3.3.2-3")
@clause311("MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-3.3.2-3")
@both_versions
@pytest.mark.parametrize("filter", MATCHES)
def test_a_filter_matches_these_topics_and_not_those(target: Target, name: str, version: int, filter: str) -> None:
    """Each topic is published; exactly the matching ones arrive."""
    yes, no = ([topic.replace("N", name) for topic in topics] for topics in MATCHES[filter])
    sub = connected(target, f"{name}s", version)
    sub.subscribe(filter.replace("N", name))
    pub = connected(target, f"{name}p", version)
    pub.send(*(build.publish(topic, version=version) for topic in [*no, *yes, *no]))
    pub.expect_nothing()
    sub.expect(*(build.publish(topic, version=version) for topic in yes))
    sub.expect_nothing()


@clause("MQTT-4.7.2-1")
@clause311("MQTT-4.7.2-1")
@both_versions
@pytest.mark.parametrize("filter", ["#", "+/{}", "+/{}/#", "+/+", "+/#", "+/+/x"])
def test_leading_wildcards_do_not_match_dollar_topics(target: Target, name: str, version: int, filter: str) -> None:
    """`#` and `+` at the first level do not see topics that begin with `$`; others they see."""
    sub = connected(target, f"{name}s", version)
    options = build.options(retain_handling=2) if version == V5 else 0
    sub.send(build.subscribe(filter.format(name), qos=options, version=version))
    while sub.packet()[0] != build.SUBACK:
        pass
    pub = connected(target, f"{name}p", version)
    for topic in (f"$d{name}", f"$d/{name}", f"$d/{name}/x", f"$/{name}"):
        pub.send(build.publish(topic, version=version))
    pub.publish(f"{name}/{name}/x" if filter.endswith(("/x", "#")) else f"d/{name}", b"seen")
    while (got := sub.publication()).payload != b"seen":
        assert not got.topic.startswith("$") and got.retain


@clause311("MQTT-4.7.2-1")
@both_versions
@pytest.mark.parametrize("filter", ["$d{0}/#", "$d{0}/+", "$d{0}/x", "$d{0}/+/#"])
def test_dollar_topics_are_matched_by_name(target: Target, name: str, version: int, filter: str) -> None:
    """A filter that begins with the `$` level itself matches, with wildcards behind it."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(filter.format(name))
    connected(target, f"{name}p", version).publish(f"$d{name}/x", b"seen")
    sub.expect(build.publish(f"$d{name}/x", b"seen", version=version))


@clause("MQTT-4.7.2-1")
@both_versions
def test_leading_wildcards_do_not_bring_retained_dollar_topics(target: Target, name: str, version: int) -> None:
    """The rule holds for retained messages as well."""
    pub = connected(target, f"{name}p", version)
    pub.publish(f"$d{name}/{name}", b"hidden", retain=True)
    pub.publish(f"d{name}/{name}", b"seen", retain=True)
    sub = connected(target, f"{name}s", version)
    sub.subscribe(f"+/{name}")
    sub.expect(build.publish(f"d{name}/{name}", b"seen", retain=True, version=version))
    sub.expect_nothing()
    named = connected(target, f"{name}n", version)
    named.subscribe(f"$d{name}/+")
    named.expect(build.publish(f"$d{name}/{name}", b"hidden", retain=True, version=version))


@clause("MQTT-4.7.3-4")
@clause311("MQTT-4.7.3-4")
@both_versions
def test_topics_are_not_normalised(target: Target, name: str, version: int) -> None:
    """Composed and decomposed characters, case, spaces and a byte order mark all make different topics."""
    topics = [f"{name}/{end}" for end in ("é", "e\u0301", "E", "e", " e", "e ", "\ufeffe", "ﬁ", "fi")]
    subs = [connected(target, f"{name}{number}", version) for number in range(len(topics))]
    for sub, topic in zip(subs, topics, strict=True):
        sub.subscribe(topic)
    pub = connected(target, f"{name}p", version)
    pub.send(*(build.publish(topic, b"x", version=version) for topic in topics))
    pub.expect_nothing()
    for sub, topic in zip(subs, topics, strict=True):
        sub.expect(build.publish(topic, b"x", version=version))
        sub.expect_nothing()


@both_versions
def test_a_topic_that_was_quiet_finds_a_later_wildcard(target: Target, name: str, version: int) -> None:
    """What a broker remembers about a topic is renewed when subscriptions come, change and go."""
    pub = connected(target, f"{name}p", version)
    sub = connected(target, f"{name}s", version)
    topic = f"{name}/a/b"
    pub.publish(topic, b"0")
    for pid, filter in enumerate((f"{name}/#", f"{name}/+/b", topic), 1):
        sub.expect_nothing()
        sub.subscribe(filter, pid=pid)
        pub.publish(topic, b"%d" % pid)
        sub.expect(build.publish(topic, b"%d" % pid, version=version))
        sub.send(build.unsubscribe(filter, pid=9, version=version))
        sub.expect(build.unsuback(0, pid=9, version=version))
        pub.publish(topic, b"gone")
    sub.expect_nothing()
