"""Which settings of an edge go together, and what is said of those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.node.config import ConfigError, load_config

NODE: dict[str, Any] = {"cluster.name": "c", "edge.name": "north"}
STORE: dict[str, Any] = {"store.enabled": True, "data_dir": "data"}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"edge.name": "north"}, "needs a cluster in which all nodes are linked"),
        ({**NODE, **STORE, "cluster.neighbours": ["b"]}, "needs a cluster in which all nodes are linked"),
        (NODE, "needs a store"),
        ({**NODE, **STORE, "workers": 2}, "has one process"),
        ({**NODE, **STORE, "edge.roles": ["receiving"]}, "neither `edge.owns` nor a store"),
        ({**NODE, "edge.roles": ["receiving"], "edge.owns": ["a"]}, "neither `edge.owns` nor a store"),
        ({**NODE, **STORE, "edge.owns": ["a/#/b"]}, "'#' must be the last level"),
        ({**NODE, **STORE, "edge.owns": ["$SYS/#"]}, "belongs to each node alone"),
        ({**NODE, **STORE, "edge.roles": []}, "edge.roles"),
        ({**NODE, **STORE, "edge.roles": ["other"]}, "edge.roles"),
        ({**NODE, **STORE, "edge.rest": "edge.example"}, "edge.rest"),
    ],
)
def test_what_does_not_go_together(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace("(", r"\(")):
        load_config(None, settings, {})


@pytest.mark.parametrize("roles", [["receiving", "delivery"], ["delivery"]])
def test_a_delivery_node(roles: list[str]) -> None:
    edge = load_config(None, {**NODE, **STORE, "edge.roles": roles, "edge.owns": ["a/#"]}, {}).edge
    assert edge.enabled and edge.delivers


def test_a_receiving_node_needs_nothing_else() -> None:
    assert not load_config(None, {**NODE, "edge.roles": ["receiving"]}, {}).edge.delivers
