"""One link: who may come up, with which words it is refused, and when it is taken for dead."""

from __future__ import annotations

import pytest

from headwater.node.links.link import PROVING
from headwater.node.links.turned_away import TELL_AGAIN
from headwater.peering.frames.frame import Gossip, Heartbeat, Hello, Proof, Refuse, Synced
from headwater.peering.frames.hello import encode_hello
from headwater.peering.secret import proof
from tests.node.links.memory import FakePeer, Net, Node, peer_of

SECRET = b"a secret of the test"
STRANGER = Hello("x", 1, "another", (1,), "subscribe", False, bytes(32))


def refused(peer: FakePeer) -> str:
    """The last word, and the only one but the Hello."""
    frames = peer.heard()
    assert peer.is_closed
    assert peer.greeting is not None
    refusal = frames[-1]
    assert isinstance(refusal, Refuse)
    assert peer.link.why == refusal.reason
    assert peer.node.server.stats.failures == 0
    return refusal.reason


def greeted(hello: dict[str, object], **settings: object) -> FakePeer:
    peer = FakePeer(Node("b", **settings))  # type: ignore[arg-type]
    peer.hello = peer.hello._replace(**hello)  # type: ignore[arg-type]
    peer.greet()
    return peer


# ---- Hello -----------------------------------------------------------------------------------------------------------


def test_who_has_dialed_speaks_first() -> None:
    node = Node("b")
    assert FakePeer(node).heard() == []
    dialed = FakePeer(node, dialed=True)
    dialed.heard()
    assert dialed.greeting is not None
    assert (dialed.greeting.node, dialed.greeting.cluster) == ("b", "test")


def test_a_node_of_another_cluster() -> None:
    assert refused(greeted({"cluster": "other"})) == "the peer is of the cluster 'other', this node of 'test'"


def test_a_node_with_our_own_id() -> None:
    assert refused(greeted({"node": "b"})) == "the peer has this node's own id 'b'"


def test_a_node_that_relays_where_we_do_not() -> None:
    assert "cluster.neighbours" in refused(greeted({"relays": True}))


def test_a_node_that_is_no_neighbour() -> None:
    reason = refused(greeted({"relays": True}, neighbours=["c"]))
    assert reason == "x is not a neighbour of b (cluster.neighbours)"


def test_a_neighbour_that_does_not_relay() -> None:
    assert "cluster.neighbours" in refused(greeted({"relays": False}, neighbours=["x"]))


def test_what_the_cluster_objects_to() -> None:
    node = Node("b")
    node.links.objects = lambda link: f"{link.node} is not welcome"
    peer = FakePeer(node)
    peer.greet()
    assert refused(peer) == "x is not welcome"
    assert node.links.up == {}
    assert node.links.greeting == set()
    assert node.links.spooling.ends == {}, "nobody is owed anything who was never let in"


@pytest.mark.parametrize("data", [b"\x10\x0c\x00\x04MQTT", b"GET / HTTP/1.1\r\n\r\n", b"HWPL\xff\xff", b"HWPLx"])
def test_who_speaks_something_else(data: bytes) -> None:
    peer = FakePeer(Node("b"))
    peer.say(data)
    if data == b"HWPLx":
        assert not peer.is_closed
        peer.node.broker.later(6)
    assert peer.is_closed
    assert peer.node.links.greeting == set()


def test_a_hello_with_more_than_may_be() -> None:
    peer = FakePeer(Node("b"))
    whole = encode_hello(peer.hello)
    peer.say(whole[:4] + (1025).to_bytes(2, "big") + bytes(100))
    assert peer.is_closed
    assert peer.link.reader.kept <= 1024


def test_half_a_hello_for_ever() -> None:
    node = Node("b")
    peer = FakePeer(node)
    for byte in encode_hello(peer.hello)[:-1]:
        peer.say(bytes((byte,)))
        node.broker.later(0.1)
    assert peer.is_closed
    assert peer.link.why == "no Hello in time"


# ---- versions --------------------------------------------------------------------------------------------------------


def test_with_a_node_that_is_upgraded_the_older_version_is_spoken() -> None:
    peer = greeted({"versions": (1, 2)})
    assert peer.is_up
    assert peer.link.version == 1


def test_a_node_that_speaks_no_version_of_ours_is_refused_in_words() -> None:
    reason = refused(greeted({"versions": (2,)}))
    assert reason == "the peer speaks frames of version 2, this node 1"


@pytest.mark.parametrize("secret", [b"", SECRET])
def test_what_a_later_version_adds_to_its_hello_is_skipped(secret: bytes) -> None:
    """And counts for the proof of the join secret, which is over all that was said."""
    peer = FakePeer(Node("b", secret=secret))
    peer.hello = peer.hello._replace(versions=(1, 2), services=("tomorrow",), later=b"what is new")
    peer.greet()
    if secret:
        peer.heard()
        assert peer.greeting is not None
        peer.send(proof(secret, peer.hello, peer.greeting))
    assert peer.is_up


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", encode_hello(STRANGER)], ids=["nonsense", "refused"])
def test_strangers_do_not_fill_the_log(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headwater.cluster")
    node = Node("b")

    def come(times: int) -> list[str]:
        caplog.clear()
        for _ in range(times):
            peer = FakePeer(node)
            peer.say(said)
            assert peer.is_closed
        return [record.getMessage() for record in caplog.records]

    assert len(come(20)) == 1
    node.broker.later(TELL_AGAIN - 0.1)
    assert come(1) == []
    node.broker.later(0.1)
    (line,) = come(5)
    assert line.endswith("(and 20 others since the last such line)")
    assert node.links.turned_away.count == 26


def test_a_node_that_was_linked_is_always_told_of(caplog: pytest.LogCaptureFixture) -> None:
    node = Node("b")
    for _ in range(3):
        peer_of(node).say(b"\xff" * 10)
    assert caplog.text.count("sent what makes no sense") == 3


def test_who_dials_an_upgraded_node_hears_why_it_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    node = Node("b")
    peer = FakePeer(node, dialed=True)
    peer.hello = peer.hello._replace(versions=(2,))
    peer.greet()
    assert peer.link.why == "the peer speaks frames of version 2, this node 1"
    assert "makes no sense" not in caplog.text


# ---- the secret ------------------------------------------------------------------------------------------------------


def proving(node: Node, name: str = "x") -> tuple[FakePeer, Hello]:
    peer = FakePeer(node, name)
    peer.greet()
    assert peer.link.phase == PROVING
    frames = peer.heard()
    assert peer.greeting is not None
    assert frames == [proof(SECRET, peer.greeting, peer.hello)]
    return peer, peer.greeting


def test_who_knows_the_secret_comes_up() -> None:
    peer, greeting = proving(Node("b", secret=SECRET))
    peer.send(proof(SECRET, peer.hello, greeting))
    assert peer.is_up


def test_who_does_not_is_refused() -> None:
    peer, greeting = proving(Node("b", secret=SECRET))
    peer.send(proof(b"another one", peer.hello, greeting))
    assert refused(peer) == "the join secret is another one"


def test_a_proof_cannot_be_sent_back() -> None:
    peer, greeting = proving(Node("b", secret=SECRET))
    peer.send(proof(SECRET, greeting, peer.hello))
    assert refused(peer) == "the join secret is another one"


def test_a_proof_of_another_link_is_none() -> None:
    node = Node("b", secret=SECRET)
    first, greeting = proving(node)
    said = proof(SECRET, first.hello, greeting)
    first.send(said)
    second, _ = proving(node)
    second.send(said)
    assert refused(second) == "the join secret is another one"
    assert first.is_up


@pytest.mark.parametrize("frame", [Synced(), Gossip(b"x"), Heartbeat(1, 0, 0)])
def test_nothing_else_is_read_before_the_proof(frame: Synced | Gossip | Heartbeat) -> None:
    peer, _ = proving(Node("b", secret=SECRET))
    peer.send(frame)
    assert "cluster.secret" in refused(peer)


def test_a_secret_that_one_side_alone_has() -> None:
    net = Net(Node("a", secret=SECRET), Node("b"))
    wire = net.link(*net.nodes)
    net.settle()
    assert not wire.is_up
    assert any("cluster.secret" in link.why for link in wire.links)


def test_a_proof_on_a_link_that_is_up() -> None:
    peer = peer_of(Node("b"))
    peer.send(Proof(bytes(32)))
    assert "cluster.secret" in refused(peer)


# ---- life ------------------------------------------------------------------------------------------------------------


def test_a_link_on_which_nothing_comes_is_closed() -> None:
    node = Node("b")
    peer = peer_of(node)
    for _ in range(5):
        node.broker.later(1)
    assert peer.is_up
    for _ in range(2):
        node.broker.later(1)
    assert peer.link.why == "silent for 5 s"


def test_heartbeats_of_a_peer_that_deals_with_nothing_do_not_keep_a_link() -> None:
    node = Node("b")
    peer = peer_of(node)
    for number in range(8):
        peer.send(Heartbeat(2 * number + 1, 0, 0))
        node.broker.later(1)
    assert peer.link.why == "stuck for 5 s"


def test_bytes_of_a_frame_that_never_ends_do_not_keep_a_link() -> None:
    node = Node("b")
    peer = peer_of(node)
    peer.say(b"\x01" + (1 << 20).to_bytes(4, "big"))
    for _ in range(8):
        peer.say(b"x")
        node.broker.later(1)
    assert peer.link.why == "stuck for 5 s"
    assert peer.link.reader.kept < 100


def test_two_nodes_keep_their_link_alive() -> None:
    net = Net(Node("a"), Node("b"))
    wire = net.link(*net.nodes)
    net.settle()
    for _ in range(20):
        net.later(1)
    assert wire.is_up
    assert all(link.liveness.round_trip is not None for link in wire.links)


@pytest.mark.parametrize("frame", [Heartbeat(1, 0, 1 << 40), Heartbeat(1, 77, 0)])
def test_heartbeats_of_what_was_never_sent(frame: Heartbeat) -> None:
    peer = peer_of(Node("b"))
    peer.send(frame)
    assert refused(peer) == "a heartbeat of what was never sent"


def test_a_refusal_is_believed() -> None:
    peer = peer_of(Node("b"))
    peer.send(Refuse("no more"))
    assert peer.link.why == "refused by the other node: no more"


@pytest.mark.parametrize("data", [b"\x63\x00\x00\x00\x00", b"\x0f\x00\x00\x00\x01x", b"\x05\x00\x00\x00\x01x"])
def test_bytes_that_are_no_frame(data: bytes) -> None:
    peer = peer_of(Node("b"))
    peer.say(data)
    refused(peer)
