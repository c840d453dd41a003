"""Kill the pipeline again and again, and check that each stored message is in the tables exactly once.

Theory. An episode is some nodes with publishers that never stop, one lake, and a driver that runs a pipeline from the
nodes into the lake. A driver is several processes: its Python, Java, and the Pythons that Java starts, which read,
decode, write and commit; on a cluster its executors are Javas of their own, with such Pythons. Any of them is killed
at a random moment, or at a named crash point, or all at once, or a node is; or one that is about to commit is held
until its driver is dead and another has taken its place, and goes on then. Whoever died, a supervisor starts the
driver again, as an operator's would. In the end the publishers stop, everything is drained, and the tables are
compared with the stores, and each with a recomputation from the one before.

    payloads.py    what is published
    publishing.py  who publishes, and what was acknowledged
    settings.py    of the pipeline: everything short and small
    driver.py      the process that runs the pipeline
    lives.py       its lives, and all processes that belong to one
    orders.py      who is to die where: crash points of many processes
    examining.py   what is found in the tables, and what should not be
    guilty.py      sinks that do not keep their promises
    episode.py     kills, one after the other, up to the verdict
    campaign.py    all this as a part of a campaign (headwater_lab/kill_campaign.py)
"""
