"""Kill the delivery store again and again, and check that every position kept its bytes.

Theory. An episode is one folder and many short lives of a process that writes to it, makes blocks, trims, reads and
commits readers, all at once, and says on a pipe what it was promised: what is acknowledged, what could be read, how far
a reader has come. It is killed at a random moment or at a named crash point. Then a copy of the folder is opened and
examined, and the next life begins on the folder itself, so that recovery is that of the next life, too. What a message
contains follows from the seed, the life in which it was written and its position; so all that has to be remembered is
which positions belong to which life, and every byte can be checked.

A kill takes nothing from the operating system. With power cuts, the end of RocksDB's log that was not synced is cut off
at a random byte before the folder is looked at.

    messages.py   what is written at a position
    living.py     the process that is killed
    account.py    what it was promised
    examining.py  what is found afterwards, and what should not be
    campaign.py   lives and episodes, as a part of a campaign (headwater_lab/kill_campaign.py)
    cuts.py       a folder whose log ends at any byte
"""
