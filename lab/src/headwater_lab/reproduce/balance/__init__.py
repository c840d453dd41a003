"""`headwater reproduce balance`: shared subscriptions with members of unequal speed, in real time.

The experiment is that of a master's thesis (轟木 皓平, dynamic load balancing by the state of the subscribers in MQTT
shared subscriptions, Hiroshima University, chapter 5). docs/reproduce/balance.md tells what is run and what came out.

    plan        what is run: settings, contenders, trials; what the thesis found
    timetable   absolute deadlines: when a message was created, when a member starts on it
    board       what members really have to do, in shared memory; the clairvoyant dispatcher reads it
    brokers     one broker in a process of its own
    driver      one publisher and three members in a process of their own; members are in members, paho_members
    campaign    all processes of a run: started together, collected, ended whatever happens
    results     figures of merit, bars, the JSON; findings: all of it in one object
    tables      the tables, ours beside the thesis's; pictures: its five figures; written: what a folder gets
    experiment  all of it, in order
    across      the same with members at three nodes of a cluster
    grid        many more settings, on a virtual clock: points, and what is measured at one
    swept       all of them, here or on Spark; sweep_tables, sweep_figure: what came out
"""
