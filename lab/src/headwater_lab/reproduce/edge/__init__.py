"""`headwater reproduce edge`: one edge node that stores what passes and serves it by MQTT and REST.

The experiment is that of a paper (濱野 真伍, 青山 幹雄, a scalable edge-oriented IoT architecture and its evaluation):
its scenario 1, one edge that is not split, and its cloud that starts late. docs/reproduce/edge.md tells what is run and
what came out.

    plan        what is run; what the paper found
    node        the edge: broker, store and REST in a process of its own; what CPU time it takes
    devices     all devices, in a process of their own; cloud: who subscribes, in another
    trial       one run of all three, and the three logs; late: a cloud that starts when half has gone by
    results     latencies, the line through the CPU samples, what is missing, the JSON
    tables      ours beside the paper's; pictures: its figures 9 and 11; written: what a folder gets
    experiment  all of it, in order
"""
