"""`headwater reproduce coordination`: brokers that become one, by proxies or as a cluster, under the paper's benchmark.

The experiment is that of a paper (坂野 遼平, 藤田 雅浩, 竹内 亨, a distributed coordination proxy for MQTT brokers).
docs/reproduce/coordination.md tells what is run and what came out.

    plan        set-ups, intervals, sizes; what the paper found
    placement   which client is at which broker: all of a topic at one, or subscribers scattered over all
    systems     brokers and proxies as processes; lines: a line of five of them
    generator   the load and the probe, C programs (paced.c), run against a system: a trial
    detector    whether the generator itself was the bottleneck of a trial
    results     what trials say: rates with their spread, the limit by the rule of 0.99, CPU per message, the JSON
    trials      which trials are run, in order
    tables      ours beside the paper's; pictures: its figures 8 and 10 to 15; written: what a folder gets
    experiment  all of it
"""
