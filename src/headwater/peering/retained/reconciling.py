"""What two nodes say to each other until both have the same retained messages.

    Branches        fingerprints of all 256 branches: to a peer that has just been linked, and now and then
    Leaves          of a branch that differs, its 256 leaves
    Entries         of a leaf that differs, its topics with their stamps, in parts: who chooses topics with care can
                    have very many of them in one leaf
    Want            topics of which the other has something later
    Item            one message, or its deletion, with its stamp

Each is answered by the next, so no node keeps anything about a conversation, and one that breaks off begins anew. What
has changed meanwhile is told of anyway. A node answers a message by at most `MOST` others: a peer that differs in
everything, as a new one does, is told part by part, one round after the other.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headwater.peering.retained.replica import BRANCHES, IN_BRANCH, LEAVES, Entry, Replica, leaf_of

MOST: Final = 64
MOST_ENTRIES: Final = 1024
MOST_BYTES: Final = 128 << 10
"""In one message, of topics; one that is longer has one of its own."""


class Branches(NamedTuple):
    fingerprints: tuple[int, ...]


class Leaves(NamedTuple):
    branch: int
    fingerprints: tuple[int, ...]


class Entries(NamedTuple):
    """All topics of the leaf that are above `after`, in their order, up to `until`; "": to the last."""

    leaf: int
    after: str
    until: str
    entries: tuple[tuple[str, Entry], ...]


class Want(NamedTuple):
    topics: tuple[str, ...]


class Item(NamedTuple):
    """The message itself is found by whoever sends it."""

    topic: str


Said = Branches | Leaves | Entries | Want | Item


def answer(replica: Replica, said: Branches | Leaves | Entries | Want) -> list[Said]:
    """Raises ValueError if it makes no sense."""
    if isinstance(said, Branches):
        return _answer_branches(replica, said)
    if isinstance(said, Leaves):
        return _answer_leaves(replica, said)
    if isinstance(said, Entries):
        return _answer_entries(replica, said)
    return [Item(topic) for topic in said.topics if replica.get(topic).stamp.time]


def _answer_branches(replica: Replica, said: Branches) -> list[Said]:
    if len(said.fingerprints) != BRANCHES:
        raise ValueError(f"{len(said.fingerprints)} branches")
    differ = [number for number, own in enumerate(replica.branches()) if own != said.fingerprints[number]]
    return [Leaves(branch, replica.leaves(branch)) for branch in differ[:MOST]]


def _answer_leaves(replica: Replica, said: Leaves) -> list[Said]:
    if not 0 <= said.branch < BRANCHES or len(said.fingerprints) != IN_BRANCH:
        raise ValueError(f"leaves of branch {said.branch}")
    own = replica.leaves(said.branch)
    first = said.branch * IN_BRANCH
    differ = [first + number for number in range(IN_BRANCH) if own[number] != said.fingerprints[number]]
    return [part for leaf in differ for part in _parts(replica, leaf)]


def _parts(replica: Replica, leaf: int) -> list[Entries]:
    entries = sorted(replica.entries(leaf).items())
    found: list[Entries] = []
    after, size = "", 0
    part: list[tuple[str, Entry]] = []
    for topic, entry in entries:
        size += len(topic.encode())
        if part and (len(part) >= MOST_ENTRIES or size > MOST_BYTES):
            until = part[-1][0]
            found.append(Entries(leaf, after, until, tuple(part)))
            after, size, part = until, len(topic.encode()), []
        part.append((topic, entry))
    return [*found, Entries(leaf, after, "", tuple(part))]


def _answer_entries(replica: Replica, said: Entries) -> list[Said]:
    if not 0 <= said.leaf < LEAVES or any(leaf_of(topic) != said.leaf for topic, _ in said.entries):
        raise ValueError(f"entries of leaf {said.leaf}")
    theirs = dict(said.entries)
    later = [
        topic
        for topic, entry in replica.entries(said.leaf).items()
        if said.after < topic and (not said.until or topic <= said.until)
        if topic not in theirs or entry.stamp > theirs[topic].stamp
    ]
    wanted = tuple(topic for topic, entry in theirs.items() if entry.stamp > replica.get(topic).stamp)
    found: list[Said] = [Item(topic) for topic in later]
    return [*found, Want(wanted)] if wanted else found
