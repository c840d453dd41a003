"""Figures for Prometheus beyond those of tests/node/admin/test_app.py: groups, and lag."""

from __future__ import annotations

import gc
import runpy
import time
from dataclasses import fields
from pathlib import Path
from typing import cast

from headwater.metric import metrics_of
from headwater.node.links.cluster import Cluster
from headwater.node.links.figures import see_cluster
from headwater.node.operations.metrics import MOST_GROUPS, families, registry_of
from headwater.node.operations.seen import LAG_EVERY, Lag, see
from headwater.node.protocol.group_view import GroupView, MemberView
from headwater.node.protocol.statistics import Statistics
from tests.node.admin.api import Api
from tests.node.fake_cluster import FakeCluster, link

ROOT = Path(__file__).parents[3]


def member(online: bool, ready: bool) -> MemberView:
    return MemberView("c", online, ready, 0, 0, None, 1)


def test_members_are_counted_by_state() -> None:
    members = [member(True, True), member(True, False), member(True, False), member(False, False)]
    said = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families(GroupView, [GroupView("$share/g/x", "random", 7, 3, members)], "group")
        for sample in family.samples
    }
    assert said == {
        ("headwater_shared_group_messages_sent_total", "$share/g/x"): 7,
        ("headwater_shared_group_waiting_messages", "$share/g/x"): 3,
        ("headwater_shared_group_members", "$share/g/x", "ready"): 1,
        ("headwater_shared_group_members", "$share/g/x", "busy"): 2,
        ("headwater_shared_group_members", "$share/g/x", "away"): 1,
    }


def test_groups_are_bounded() -> None:
    groups = [GroupView(f"$share/g/{number}", "random", 0, 0, []) for number in range(MOST_GROUPS + 5)]
    registry = registry_of(lambda: see(Api().broker, groups))
    named = {sample.labels.get("group") for family in registry.collect() for sample in family.samples} - {None}
    assert len(named) == MOST_GROUPS


def test_of_a_cluster_what_its_node_sees() -> None:
    """Also by way of JSON, as the HTTP process gets it."""
    api = Api()
    assert "headwater_cluster_nodes" not in api.call("GET", "/metrics").text, "it is alone"
    api.broker.cluster = cast(Cluster, FakeCluster())
    text = api.call("GET", "/metrics").text
    assert 'headwater_cluster_nodes{state="live"} 2.0' in text
    assert 'headwater_cluster_link_up{peer="b"} 1.0' in text and 'headwater_cluster_link_up{peer="c"} 0.0' in text
    assert 'round_trip_seconds{peer="b"}' in text and 'round_trip_seconds{peer="c"}' not in text, "it is not known"


def test_a_link_that_is_not_in_sync_is_up() -> None:
    cluster = FakeCluster(links=[link("b", state="syncing")])
    [seen] = see_cluster(cluster.view()).links
    assert seen.up


def test_lag_is_how_late_a_timer_is() -> None:
    api = Api()
    lag = Lag(api.broker)
    registry = registry_of(lambda: see(api.broker, [], lag=lag.seen))
    lag.start()
    timers = api.memory.server.timers
    assert timers.soonest <= time.monotonic() + LAG_EVERY
    lag._due -= 0.3  # as if it had been due that much earlier
    timers.run(timers.soonest)

    def value(name: str, **labels: str) -> float:
        found = registry.get_sample_value(f"headwater_loop_lag_seconds_{name}", labels)
        assert found is not None
        return found

    assert value("count") == 1
    assert 0.2 - LAG_EVERY <= value("sum") < 5
    assert value("bucket", le="0.05") == 0
    assert len(timers) == 1, "the next look is set"
    lag.stop()
    timers.run(timers.soonest)
    assert len(timers) == 0


def test_what_should_not_grow_is_shown() -> None:
    api = Api()

    def figures() -> dict[str, float]:
        text = api.call("GET", "/metrics").text
        lines = [line.split() for line in text.splitlines() if line.startswith("headwater_") and "{" not in line]
        return {name.removeprefix("headwater_"): float(value) for name, value in lines}

    gc.collect()  # or it might come in between
    before = figures()
    api.memory.server.timers.at(time.monotonic() + 1000, lambda: None)
    kept = [[number] for number in range(50_000)]
    after = figures()
    assert after["timers"] == before["timers"] + 1
    assert after["tasks"] >= 1
    assert after["memory_blocks"] >= before["memory_blocks"] + len(kept)


def test_every_statistic_is_declared() -> None:
    assert set(metrics_of(Statistics)) == {each.name for each in fields(Statistics)}


def test_the_page_is_made_from_the_declarations() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "metrics_page.py"))["page"]()
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == page, "run scripts/metrics_page.py"
