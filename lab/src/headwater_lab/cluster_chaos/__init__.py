"""Kill, stop and cut off nodes of a cluster, and check that it kept what it promised: `scripts/bench cluster-chaos`

Theory. An episode is a cluster of three to seven nodes, each with a data folder of its own and durability `sync`, and a
population of clients. Publishers and subscribers are those of `headwater_lab.chaos`: correct clients that keep their
halves of QoS 1 and 2, and note what they send and get. Some belong to one of the nodes; others move between nodes with
their sessions, now and then and whenever their node does not answer: publishers, subscribers, members of a shared
group, writers of retained registers, owners of wills.

Faults come one after the other, or two at a time: a node is killed, at a random moment or at a named crash point, and
started again; a node is stopped (SIGSTOP) for longer than `cluster.patience`; the link of two nodes is cut, in one
direction or in both, or reset; the cluster is cut in two; a node's clock jumps; its disk is full; a node comes back at
another port; all nodes are restarted one by one; a node leaves and joins again, or is dead and forgotten. After the
last one everything is drained, and the checker looks for what must not be (checker.py says what that is).

*Healed* is a cluster when a message that was published after the end of a fault has come from each node to each other
one. So each node has a publisher and a subscriber that are never away; the time from the end of the fault to the first
such message of the slowest pair is measured (`heal/p99_s`). Then some clients move, and the time from CONNECT to
CONNACK is measured (`takeover/p99_ms`).

A node that leaves, or is forgotten, is owed nothing: it goes when nothing is under way, and until it is back what
others publish is not for it. Whoever moves is elsewhere meanwhile.

    relay.py      the links' way through a process that can hold back, delay and reset what is sent
    namespaces.py the same as a real network: a namespace for each node, and packets that are dropped
    small_disk.py data folders that can be full
    nodes.py      a node as a process: started, killed, stopped, told to leave
    population.py who takes part
    roving.py     clients that move
    world.py      clients, and the nodes where they are
    faults.py     what is done to a cluster
    healing.py    how long it takes until all is well again
    checker.py    what must not be
    episode.py    one cluster over many faults, up to the last drain
    campaign.py   all this as a part of a campaign (headwater_lab/kill_campaign.py)
"""
