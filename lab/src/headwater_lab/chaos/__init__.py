"""Kill a broker again and again, and check that it kept what it promised.

Theory. An episode is one data folder and one population of clients. It goes through many short lives of the broker,
each of which ends by SIGKILL: at a random moment, or at a named crash point inside it. The clients are correct
clients of their own make (raw sockets): they keep their halves of QoS 1 and 2 over reconnects, and note everything
that they send and get in a `History`. After the last life all of them come back, everything is drained, and the
checker, which knows what was acknowledged and what was not, compares the history with what the standard and
durability `sync` promise.

    lives.py      the broker as a process: started, killed
    connection.py one connection, as bytes
    client.py     a client that comes back; publisher.py, subscriber.py, visitors.py: what kinds there are
    episode.py    one population over many lives, up to the last drain
    history.py    what happened
    checker.py    what should not have (claims.py: who was subscribed when; sessions.py: who had a session when)
    tail.py       a data folder whose log ends at any byte
    stored.py     what must be in the delivery store, if there is one; watching.py reads it by REST meanwhile
    listened.py   a process that tells something
    campaign.py   all this as a part of a campaign (headwater_lab/kill_campaign.py)
"""
