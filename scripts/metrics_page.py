"""Writes docs/metrics.md from the declarations of the figures: PYTHONPATH=src python scripts/metrics_page.py"""

from __future__ import annotations

import argparse
from pathlib import Path

from headwater.metric import Metric, metrics_of
from headwater.node.advice.figures import AdviceSeen
from headwater.node.bridge.view import BridgeView
from headwater.node.delivery.figures import StoreSeen
from headwater.node.forwarding.view import ForwardView
from headwater.node.links.figures import ClusterSeen, EdgeSeen, LinkSeen
from headwater.node.operations.metrics import MOST_GROUPS
from headwater.node.operations.seen import Seen
from headwater.node.operations.worker_figures import WorkerSeen
from headwater.node.protocol.group_view import GroupView
from headwater.node.protocol.statistics import Statistics
from headwater.node.proxy.figures import ProxySeen

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"

HEAD = """\
# Figures of a broker
Where each is told: to Prometheus (`GET /metrics`, [operations.md](operations.md)), below `$SYS/broker/`, and in the
JSON of `GET /v1/statistics`, which is `broker.statistics()` in Python. Counters, with names that end in `_total`, only
grow while the broker runs; the others are of now. Of several workers all are told together: sums, but the highest of
`uptime`, `retained` and `disk_reserve`, and the lowest of `disk_free`.

This page is made from the source by `scripts/metrics_page.py`.
"""
TAIL = """
## Others
| Prometheus | |
|---|---|
| `headwater_build_info{version,build}` | Version, and whether it is compiled. |
| `headwater_loop_lag_seconds` | Histogram: how late a timer was called, looked at ten times a second. |
| `process_…`, `python_info` | Memory, processor time and files of the broker's process, or of its first worker. |

Further topics are Mosquitto's, made of the above: `version`, `uptime`, `clients/disconnected` and `clients/inactive`
(sessions without a connection), `messages/stored` and `store/messages/count` (retained and waiting). Rates, per minute,
are averages over 1, 5 and 15 minutes: `load/…/1min`, `load/…/5min`, `load/…/15min`.
"""
SECTIONS: tuple[tuple[str, type, str], ...] = (
    ("The broker", Statistics, ""),
    (
        f"Shared groups: the first {MOST_GROUPS} ([shared-subscriptions.md](shared-subscriptions.md))",
        GroupView,
        "group",
    ),
    ("Bridges ([bridge.md](bridge.md))", BridgeView, "bridge"),
    ("Forwards ([forwarding.md](forwarding.md))", ForwardView, "forward"),
    ("The cluster ([cluster.md](cluster.md))", ClusterSeen, ""),
    ("Links to other nodes", LinkSeen, "peer"),
    ("A node's part in an edge ([edge-tiers.md](edge-tiers.md))", EdgeSeen, ""),
    ("A proxy ([proxy.md](proxy.md))", ProxySeen, ""),
    ("Workers ([workers.md](workers.md))", WorkerSeen, "worker"),
    ("The delivery store ([store.md](store.md))", StoreSeen, ""),
    ("Advice ([advice.md](advice.md))", AdviceSeen, ""),
    ("What should not grow while the load stays the same", Seen, ""),
)


def page() -> str:
    return HEAD + "".join(f"\n## {title}\n{table(kind, label)}" for title, kind, label in SECTIONS) + TAIL


def table(kind: type, label: str) -> str:
    columns: dict[str, list[str]] = {"Prometheus": [], "`$SYS/broker/`": [], "JSON": [], "": []}
    for field, metric in metrics_of(kind).items():
        topics = [*metric.topics, *(f"load/{each}/…" for each in metric.loads)]
        columns["Prometheus"].append(prometheus(field, metric, label))
        columns["`$SYS/broker/`"].append(", ".join(f"`{topic.format('…')}`" for topic in topics))
        columns["JSON"].append(f"`{field}`" if kind is Statistics else "")
        columns[""].append(f"{metric.help} {metric.doc}".strip())
    shown = {heading: cells for heading, cells in columns.items() if any(cells)}
    rows = [f"| {' | '.join(row)} |" for row in [tuple(shown), *zip(*shown.values(), strict=True)]]
    rows.insert(1, "|" + "---|" * len(shown))
    return "".join(row.replace("|  |", "| |") + "\n" for row in rows)


def prometheus(field: str, metric: Metric, label: str) -> str:
    name = field if metric.name is None else metric.name
    if not name:
        return ""
    labels = ",".join(filter(None, [label, *metric.labels]))
    return f"`headwater_{name}{'_total' if metric.is_counter else ''}{f'{{{labels}}}' if labels else ''}`"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page(), encoding="utf-8")
