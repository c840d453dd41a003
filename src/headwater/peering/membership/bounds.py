"""What a member may make another one keep: constants of the protocol, the same at all nodes.

They are no settings: a node that kept less than another one writes would never agree with it. `docs/limits.md` names
the test of each.
"""

from __future__ import annotations

from typing import Final

MAX_NODES: Final = 256
"""Nodes that are known at a time, dead ones and ourselves included."""
MAX_GRAVES: Final = 1024
"""Forgotten nodes whose old news are still refused."""
MAX_NODE_ID: Final = 32
"""Bytes of a node's id: letters, digits, `.`, `_`, `-`."""
MAX_CLUSTER_NAME: Final = 64
MAX_KEYS: Final = 64
"""Keys in one node's map, deleted ones included until they are collected."""
MAX_KEY: Final = 64
MAX_VALUE: Final = 1024
MAX_MAP_BYTES: Final = 8192
"""Bytes that a node may write into its own map as they are on the wire."""
MAX_REPLICA_BYTES: Final = 2 * MAX_MAP_BYTES
"""Bytes of another node's map: while a part of its changes is missing, old and new values stand side by side."""
MAX_TOTAL_BYTES: Final = MAX_NODES * MAX_REPLICA_BYTES

DELTA_BYTES: Final = 4096
"""What one message carries of maps; the rest follows in later rounds."""
MAX_MESSAGE: Final = 24576
"""A digest of `MAX_NODES` nodes with the longest ids, a delta, and the header."""

MAX_NUMBER: Final = 0xFFFFFFFF
"""Generations, heartbeats and versions are of 32 bits: one a second lasts for 136 years."""
MAX_SEEDS: Final = 64
"""Addresses of seeds after names are resolved."""
MAX_REFUTATIONS: Final = 16
"""How often a node takes a new generation because somebody else uses its id."""
