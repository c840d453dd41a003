"""The half of a cluster of brokers that has no sockets, disks or clocks: time is an argument, what to send comes back.

A message that is published at any node reaches every subscriber at any node, once. Each node tells the others what its
clients want (`methods`: everything, exact filters, or a Bloom filter of them); a message goes over each link behind
which somebody may want it, once per node and not per subscriber.

    frames/          what is said on a link, as objects and as bytes; versions and how two nodes agree on one
    methods/         how a node tells what it wants: flood, subscribe, bloom; one seam of five operations
    streams.py       the interest of one node as a stream of numbered changes, wherever it is held
    exchange.py      how streams get around: what a link lacks when it comes up, changes, relaying, acknowledgements
    barrier.py       who waits until others have acknowledged a change: SUBACK, and a relay's own acknowledgement
    graph.py         which nodes are behind which link
    coordination.py  one node's view of all that: five operations, and what `node` is to build links on
    windows.py       ids of messages, and what has been seen of each origin: no loops, nothing twice
    forwarding.py    where a message goes: links of a topic, counters, hops
    spool.py         QoS 1 and 2: what a link owes its peer until that has acknowledged it
    applied.py       the other end of it: how far this node has applied what a peer sent
    liveness.py      whether a link makes progress
    secret.py        the join secret: who may be a peer where TLS does not say so
    membership/      who the nodes are
"""

from __future__ import annotations
