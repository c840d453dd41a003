"""`headwater check-broker`: does a broker, or a cluster of any make, keep what MQTT promises while it is disturbed?

Theory. Many real clients on connections of their own publish, subscribe, come and go, and move between the targets.
Each operation is noted with when it was invoked, when it was completed and with what outcome; an operation that got no
answer has the outcome `unknown`: it may have happened, at any later time, or never. Meanwhile commands that the user
gave disturb the broker. Then everything is healed, all clients come back, and what is owed is waited for. Judges are
pure functions of the history that remains: each takes one promise and looks for what contradicts it. Since all clients
live in one process, one counter orders all invocations and completions, and no clocks have to be compared.

    history.py      operations and observations, in one order
    connection.py   packets over one TCP connection
    client.py       a client whose half of a session outlives its connections
    features.py     what the broker can do: found out before the load, so that nothing else is judged
    workloads/      queues (QoS 0, 1, 2), retained registers, wills, shared groups
    faults.py       commands that disturb and heal, at seeded times
    run.py          one run: look, load, heal, settle
    promises.py     what is promised, by name; what is promised by nobody is only reported
    judges/         one file for each kind of promise
    report.py       for people and programs; timeline.py draws
"""
