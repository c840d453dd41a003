"""The paper's tables 6 to 8, which compare it with three rivals, and what can be said of us by the same views.

Marks are the paper's: `++` has it, `+` has it, but less of it than the other, `-` has it not. Those of the paper and of
its rivals are as it prints them; ours say what the software does, and which page shows it.
"""

from __future__ import annotations

from typing import Final

from headwater_lab.reproduce.page import Table

Row = tuple[str, str, str, str]
"""View, the paper's, its rival's, ours."""

_TIERS: Final = "++: tiers and owners of topics, which may change while messages flow (edge-tiers.md)"
_COMPLETE: Final = (
    "++: every message is kept at a position before anybody gets it (store.md), and compared by it (edge.md)"
)

QEST: Final[tuple[Row, ...]] = (
    ("scalability", "++", "+: within one broker only", _TIERS),
    ("completeness of messages", "++", "+: the latest of a topic only", _COMPLETE),
    (
        "changing data",
        "-: the cloud cannot",
        "++: the cloud writes into the database",
        "+: PUT replaces a topic's latest value; what was stored before stays as it was (rest.md)",
    ),
    ("real time", "++: MQTT", "+: read from a database", "++: MQTT, but behind a write to disk (figures above)"),
)
GAAS: Final[tuple[Row, ...]] = (
    ("scalability", "++", "+: as far as a gateway goes", _TIERS),
    ("real time", "++: MQTT", "-: asked for only", "++: MQTT, and REST with a live tail (rest.md)"),
    (
        "virtualisation",
        "-: components are built into an edge",
        "++: on Docker",
        "+: a Python package, so in a container too (cluster.md); nothing places containers on edges",
    ),
    (
        "filtering data",
        "+: by topic and value, by REST",
        "++: services at the gateway",
        "+: by topic, time, value and condition, by REST and by MQTT (rest.md, content-filters.md); functions of one's "
        "own in a program with a node (hooks.md), but no services that are put there",
    ),
)
PULGA: Final[tuple[Row, ...]] = (
    ("scalability", "++", "-: a broker in a device", _TIERS),
    ("completeness of messages", "++", "-: nothing is kept", _COMPLETE),
    (
        "mobility of devices",
        "+: between areas of edges",
        "++: the broker is in the device",
        "+: any receiving node takes any device, its session too (cluster.md); one has to be in reach",
    ),
)


def rival_tables() -> list[Table]:
    return [
        Table(
            f"the paper's table {number}: compared with {rival}", ("view", "paper", rival, "ours"), rows, is_text=True
        )
        for number, rival, rows in ((6, "QEST", QEST), (7, "GaaS", GAAS), (8, "Pulga", PULGA))
    ]
