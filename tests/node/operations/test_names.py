"""The names under which figures are known outside, and which figure each of them tells. They are kept: dashboards and
programs use them. What is added later need not be listed here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.cli.admin import AdminError
from headwater.cli.top import AdminApi, from_sys
from headwater.disk.room import Room
from headwater.node.advice.figures import AdviceSeen
from headwater.node.bridge.view import BridgeView, Traffic
from headwater.node.delivery.figures import StoreSeen
from headwater.node.links.figures import see_cluster
from headwater.node.operations.metrics import registry_of
from headwater.node.operations.seen import LagSeen, Seen
from headwater.node.protocol.group_view import GroupView, MemberView
from headwater.node.protocol.statistics import Statistics
from headwater.node.protocol.sys_topics import SysTopics
from tests.node.admin.api import Api
from tests.node.fake_cluster import FakeCluster, link
from tests.node.memory import MemoryBroker

GAUGES = """connections connections_maximum sessions subscriptions retained_messages=retained queued_messages=queued
    queued_bytes shared_groups disk_free_bytes=disk_free disk_reserve_bytes=disk_reserve disk_paused publishers_paused
    uptime_seconds=uptime"""
COUNTERS = """messages_received messages_sent packets_received=received packets_sent=sent received_bytes=bytes_received
    sent_bytes=bytes_sent sockets_opened connects_refused=refused messages_refused retained_refused
    messages_no_room=no_room sessions_expired=expired protocol_errors commits commit_seconds failures hook_failures"""
TOPICS = """clients/total=sessions clients/connected=connections clients/active=connections
    clients/maximum=connections_maximum clients/expired=expired messages/received=received messages/sent=sent
    store/messages/bytes=queued_bytes publish/messages/received=messages_received publish/messages/sent=messages_sent
    publish/messages/dropped=dropped bytes/received=bytes_received bytes/sent=bytes_sent
    subscriptions/count=subscriptions shared_subscriptions/count=shared_groups reports/received=reports
    reports/ignored/bad=reports_bad reports/ignored/early=reports_early"""
DISK_TOPICS = "disk/free=disk_free disk/reserve=disk_reserve disk/paused=disk_paused clients/paused=publishers_paused"
LOADS = """messages/received=received messages/sent=sent publish/received=messages_received publish/sent=messages_sent
    publish/dropped=dropped bytes/received=bytes_received bytes/sent=bytes_sent sockets=sockets_opened
    connections=sockets_opened"""
KEYS = """uptime connections connections_maximum sockets_opened sessions expired subscriptions shared_groups retained
    queued queued_bytes received sent messages_received messages_sent dropped drops bytes_received bytes_sent refused
    messages_refused retained_refused no_room reports reports_bad reports_early protocol_errors commits commit_seconds
    disk_free disk_reserve disk_paused publishers_paused failures hook_failures"""
IN_TOP = """uptime connections sessions subscriptions retained messages_received messages_sent bytes_received bytes_sent
    queued dropped"""
REASONS = "queue_full slow_reader expired too_large not_authorized session_ended too_many_topics"


LINK = link("b")


def pairs(listed: str) -> dict[str, str]:
    """From the name outside to that of the figure; without `=` they are the same."""
    return {name: field or name for name, _, field in (each.partition("=") for each in listed.split())}


def figures() -> Statistics:
    """With a number of its own for each."""
    numbers: dict[str, Any] = {name: 1000 + place for place, name in enumerate(KEYS.split())}
    drops = {reason: 2000 + place for place, reason in enumerate(REASONS.split())}
    return Statistics(**{**numbers, "reports": 9000, "drops": drops, "disk_paused": True})


def seen() -> Seen:
    members = [MemberView("c", True, True, 0, 0, None, 1), MemberView("d", False, False, 0, 0, None, 1)]
    return Seen(
        statistics=figures(),
        groups=[GroupView("$share/g/x", "random", 31, 32, members)],
        bridges=[BridgeView("b", [], "me", "", True, 41, Traffic(42, 43, 44), Traffic(45, 46, 47))],
        advice=AdviceSeen(counts={"used": 51, "old": 52}, in_force=53),
        store=StoreSeen(
            taken=61,
            stored_bytes=62,
            pending=63,
            seconds=64.5,
            first=65,
            next=66,
            topics=67,
            size=68,
            payload_size=69,
            blocks=70,
            unsealed=71,
            lags={"r": 72},
        ),
        lag=LagSeen(),
        tasks=81,
        timers=82,
        memory_blocks=83,
        process=1,
        cluster=see_cluster(FakeCluster(links=[LINK, link("c", state="down", round_trip=None)]).view()),
    )


def samples(now: Seen) -> dict[tuple[str, ...], float]:
    """By type, name and labels, as `label=value`."""
    return {
        (family.type, sample.name, *(f"{label}={value}" for label, value in sample.labels.items())): sample.value
        for family in registry_of(lambda: now).collect()
        for sample in family.samples
    }


def test_prometheus() -> None:
    now = seen()
    said = samples(now)
    for name, field in pairs(GAUGES).items():
        assert said["gauge", f"headwater_{name}"] == getattr(now.statistics, field), name
    for name, field in pairs(COUNTERS).items():
        assert said["counter", f"headwater_{name}_total"] == getattr(now.statistics, field), name
    for reason, count in now.statistics.drops.items():
        assert said["counter", "headwater_messages_dropped_total", f"reason={reason}"] == count
    used = 9000 - now.statistics.reports_bad - now.statistics.reports_early
    outcomes = {"used": used, "bad": now.statistics.reports_bad, "early": now.statistics.reports_early}
    for outcome, count in outcomes.items():
        assert said["counter", "headwater_reports_total", f"outcome={outcome}"] == count
    assert [key for key in said if key[1] == "headwater_build_info"]


def test_prometheus_with_labels_and_of_parts() -> None:
    said = {key[1:]: value for key, value in samples(seen()).items()}
    expected = {
        ("shared_group_messages_sent_total", "group=$share/g/x"): 31,
        ("shared_group_waiting_messages", "group=$share/g/x"): 32,
        ("shared_group_members", "group=$share/g/x", "state=ready"): 1,
        ("shared_group_members", "group=$share/g/x", "state=busy"): 0,
        ("shared_group_members", "group=$share/g/x", "state=away"): 1,
        ("bridge_up", "bridge=b"): 1,
        ("bridge_waiting_messages", "bridge=b"): 41,
        ("bridge_messages_total", "bridge=b", "direction=out", "outcome=forwarded"): 42,
        ("bridge_messages_total", "bridge=b", "direction=out", "outcome=dropped"): 43,
        ("bridge_messages_total", "bridge=b", "direction=out", "outcome=rejected"): 44,
        ("bridge_messages_total", "bridge=b", "direction=in", "outcome=forwarded"): 45,
        ("bridge_messages_total", "bridge=b", "direction=in", "outcome=dropped"): 46,
        ("bridge_messages_total", "bridge=b", "direction=in", "outcome=rejected"): 47,
        ("advice_total", "outcome=used"): 51,
        ("advice_total", "outcome=old"): 52,
        ("advice_in_force",): 53,
        ("store_messages_taken_total",): 61,
        ("store_stored_bytes_total",): 62,
        ("store_pending_bytes",): 63,
        ("store_commit_seconds_total",): 64.5,
        ("store_first_position",): 65,
        ("store_next_position",): 66,
        ("store_topics",): 67,
        ("store_size_bytes",): 68,
        ("store_payload_bytes",): 69,
        ("store_blocks",): 70,
        ("store_unsealed_messages",): 71,
        ("store_reader_lag_messages", "reader=r"): 72,
        ("cluster_nodes", "state=live"): 2,
        ("cluster_nodes", "state=suspected"): 0,
        ("cluster_nodes", "state=dead"): 1,
        ("cluster_nodes", "state=left"): 0,
        ("cluster_messages_repeated_total",): 5,
        ("cluster_messages_stopped_total",): 6,
        ("cluster_subacks_held",): 7,
        ("cluster_wills_published_total",): 8,
        ("cluster_wills_held",): 9,
        ("cluster_wills_kept_bytes",): 10,
        ("cluster_wills_refused_total",): 11,
        ("cluster_link_up", "peer=b"): 1,
        ("cluster_link_up", "peer=c"): 0,
        ("cluster_link_round_trip_seconds", "peer=b"): 0.00125,
        ("cluster_link_messages_total", "peer=b", "direction=in"): LINK.messages_received,
        ("cluster_link_messages_total", "peer=b", "direction=out"): LINK.messages_sent,
        ("cluster_link_bytes_total", "peer=b", "direction=in"): LINK.bytes_received,
        ("cluster_link_bytes_total", "peer=b", "direction=out"): LINK.bytes_sent,
        ("cluster_link_messages_dropped_total", "peer=b"): LINK.dropped,
        ("cluster_link_spool_messages", "peer=b"): LINK.spool_messages,
        ("cluster_link_spool_bytes", "peer=b"): LINK.spool_bytes,
        ("cluster_link_spool_limit_bytes", "peer=b"): LINK.spool_limit,
        ("cluster_link_interest_told", "peer=b", "form=state"): LINK.states,
        ("cluster_link_interest_told", "peer=b", "form=change"): LINK.changes,
        ("cluster_link_interest_told_bytes", "peer=b", "form=state"): LINK.state_bytes,
        ("cluster_link_interest_told_bytes", "peer=b", "form=change"): LINK.change_bytes,
        ("cluster_link_reconnects_total", "peer=b"): LINK.reconnects,
        ("cluster_link_notes_skipped_total", "peer=b"): LINK.skipped,
        ("tasks",): 81,
        ("timers",): 82,
        ("memory_blocks",): 83,
    }
    for (name, *labels), value in expected.items():
        assert said[f"headwater_{name}", *labels] == value, name


def shown(server: Any, now: Statistics) -> dict[str, str]:
    return SysTopics(server, 0.0)._figures(now, 60.0)


def test_sys_topics_of_a_disk(tmp_path: Path) -> None:
    server = MemoryBroker().server
    assert not pairs(DISK_TOPICS).keys() & shown(server, figures()).keys(), "it has no data folder"
    server.room = Room(tmp_path, 1)
    said = shown(server, figures())
    for topic, field in pairs(DISK_TOPICS).items():
        assert said[topic] == str(int(getattr(figures(), field))), topic


def test_sys_topics() -> None:
    now = figures()
    said = shown(MemoryBroker().server, now)
    for topic, field in pairs(TOPICS).items():
        assert said[topic] == str(getattr(now, field)), topic
    for topic, field in pairs(LOADS).items():
        one_minute = getattr(now, field) * (1 - 2.718281828459045**-1)
        assert said[f"load/{topic}/1min"] == f"{one_minute:.2f}", topic
        assert {f"load/{topic}/5min", f"load/{topic}/15min"} <= said.keys()
    assert said["uptime"] == f"{int(now.uptime)} seconds"
    assert said["version"].startswith("headwater version ")
    assert said["clients/disconnected"] == said["clients/inactive"] == str(now.sessions - now.connections)
    assert said["messages/stored"] == said["store/messages/count"] == str(now.retained + now.queued)
    assert said["retained messages/count"] == str(now.retained)


def test_the_admin_api() -> None:
    api = Api()
    assert set(KEYS.split()) <= api.get("/v1/statistics").keys()
    assert api.get("/v1/statistics")["drops"] == dict.fromkeys(REASONS.split(), 0)


class Asked:
    """An admin API whose figures are known."""

    def ask(self, path: str) -> Any:
        if path == "/v1/cluster":
            raise AdminError("no cluster", 404)
        return {name: getattr(figures(), name) for name in KEYS.split()} if path == "/v1/statistics" else []


def test_top() -> None:
    from_admin = AdminApi(Asked()).read().figures  # type: ignore[arg-type]
    now = figures()
    assert {name: getattr(from_admin, name) for name in IN_TOP.split()} == {
        name: getattr(now, name) for name in IN_TOP.split()
    }
    from_topics = from_sys(shown(MemoryBroker().server, now)).figures
    assert {name: getattr(from_topics, name) for name in IN_TOP.split()} == {
        name: getattr(now, name) for name in IN_TOP.split()
    }
