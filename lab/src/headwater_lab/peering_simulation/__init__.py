"""Clusters in simulated time, over all methods: `scripts/bench peering-simulation --seeds 10000`.

Each seed is a cluster of two to five nodes, in a full mesh or any graph, whose links are slow, cut one way or both and
healed, whose nodes crash, start again, join, are slow and change their method, with clocks that differ; and clients
that subscribe and publish meanwhile. Afterwards: every subscriber has got each message that it was promised, none
twice, in order, and the cluster is quiet. The seed and the method make it happen again. The exit status is 1 if
anything was found.
"""

from __future__ import annotations
