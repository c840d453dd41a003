"""Move topics from node to node of an edge while its nodes are killed and cut off: `scripts/bench edge-chaos`

Theory. An episode is an edge of real processes, or two: receiving nodes, where devices are, and delivery nodes, which
store and have subscribers of the cloud. All are linked as a cluster, have data folders and durability `sync`. Devices
publish numbered messages of QoS 0, 1 and 2 to topics of which filters overlap; some stay at a node, some move between
them. Meanwhile filters are split off and joined, within an edge and from one to another: before a fault, in the middle
of it, and in peace. What befalls nodes and links are the faults of `headwater_lab.cluster_chaos`, whose episode this
is; and each node may be killed at each named step of a move (disk/crash_points.py EDGE_POINTS), which strikes at the
moment when it gets there.

Clients are judged as in any cluster. Beyond that, in the end all nodes are stopped and all their stores are read, and
what is there is compared with what was sent and acknowledged, and with what the edge says of itself (`GET /v1/edge`):

    not stored          acknowledged (QoS 1, 2) and in no store; QoS 0 counts if nothing was wrong when it was sent
    stored twice        QoS 0 and 2 at two positions, whichever the stores; QoS 1 at more than it was sent
    out of order        what one publisher sent to a topic, read by stretches of ownership, is not in its order; or the
                        later one of two was there, in another store, before the earlier one
    unreadable          a gap in positions; a position that no stretch has; another message or other bytes than were
                        sent; REST does not show what is there
    device reconnects   a connection that the node ended, though nothing had befallen the node

Order is that of clients that stay; of one that moves, only what it sent at one node, once, before it went on.

    nodes.py      a node of an edge as a process: what it is told, and where it is to die
    layout.py     which nodes there are, of which edges, and which topics and filters
    population.py devices and the cloud
    moving.py     splits and joins: which, and how far they are
    faults.py     kills at named steps
    stores.py     what is in the stores
    checker.py    what must not be
    pauses.py     how long publishers waited
    broken.py     nodes that do not keep a promise, to be found
    episode.py    one edge over many faults, up to the verdict
    pipeline.py   the pipeline that reads all of it meanwhile
    abstraction.py  one node becomes two tiers with its store, killed at each step of that
    receiving.py  what a receiving node costs: memory and start, with TLS
    campaign.py   all this as a part of a campaign (headwater_lab/kill_campaign.py)
"""
