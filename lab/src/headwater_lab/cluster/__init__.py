"""What a cluster costs: `scripts/bench cluster`, or `python -m headwater_lab.cluster`.

Nodes as processes on loopback, and traffic of the load generator: W2, 50 publishers and 50 subscribers in pairs, QoS 0,
with many messages under way (deep) or one per publisher and packet (lock). What is compared is CPU time of all nodes
per delivered message, in interleaved rounds of one run; medians of the ratios of single rounds:

- off: a node that has the name of a cluster and no peers, against one without; here, delivered messages per second of
  its CPU time, because how many it delivers per second of the clock depends on what else the machine does;
- cross2: publishers at one of two nodes, subscribers at the other, against all of them at one node; also with QoS 1
  from disk to disk (`durability = "sync"`, sessions that are kept);
- hop: what the second node costs a message in µs, by each method of telling interest;
- local5: five nodes, the clients of a topic at one of them, so that nothing crosses, against one node alone. Each has
  the load of the one (W2 at each), which is what one has five nodes for. Beside it, five that are no cluster, over one
  node (`unlinked`) and the five over these (`over-unlinked`: what the cluster costs, and not five processes on the
  cores that there are); one W2 spread over the five topic by topic (`split`: each gets fewer packets at a time); and
  all of it at one, in each round at another (`one`);
- topology: eight publishers spread over two nodes, QoS 1, with a subscriber of everything at each (MLT-SGL) or one
  shared group with two members at each (MLT-SHD), against the same clients at one node;
- churn600: one of two nodes, at which all clients are, while 600 subscriptions with wildcards a second change at the
  other one, against the same two without;
- bloom: messages and bytes of this method over those of `subscribe`, in memory.

Every subscriber checks that each publisher's messages come complete, once and in order. The exit status is 1 if they do
not, and does not depend on speed.
"""
