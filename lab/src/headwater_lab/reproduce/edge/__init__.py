"""`headwater reproduce edge`: edges that store what passes and serve it by MQTT and REST, whole and split into tiers.

The experiment is that of a paper (濱野 真伍, 青山 幹雄, a scalable edge-oriented IoT architecture and its evaluation):
its six scenarios, each also with a cloud that starts late. docs/reproduce/edge.md tells what is run and what came out.

    plan        what is run; what the paper found
    ground      the nodes of a scenario, each in a process of its own; whether they are ready
    devices     all devices, in a process of their own; cloud: who subscribes, in another
    trial       one load at running nodes, CPU samples, the three logs; late: a cloud that starts when half has gone by
    results     latencies, lines through CPU samples, CPU per message, what is missing; records: the JSON
    tables      ours beside the paper's; rivals: its tables 6 to 8; pictures: its figures 9 and 11
    written     what a folder gets
    experiment  all of it, in order
"""
