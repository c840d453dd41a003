"""The first words on a link, by which two nodes agree on a version of frames.

    "HWPL"  size:2  node:text  boot:4  cluster:text  count:1 version:2 …  method:text  flags:1  nonce:32
                    [count:1 service:text …  [anything]]

Each side sends its own at once and reads the other's. This form never changes, so that nodes of all versions can read
it; what later versions add stands at the end. It is kept as it came, and not read, because the proof of the join secret
is over all bytes of both. Both sides speak the highest version that both have (`agree`); a release speaks the one
before its own as well, so a cluster is upgraded node by node.

A service is what nodes do together by notes and letters. Nobody sends those of a service to a node that has not named
it; a service whose notes change their form gets another name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.peering.frames.fields import U16, U32, Fields, short
from headwater.peering.frames.frame import (
    MAX_CLUSTER,
    MAX_METHOD,
    MAX_SERVICE,
    MAX_SERVICES,
    MAX_VERSIONS,
    NONCE,
    Hello,
    MalformedFrame,
)

MAGIC: Final = b"HWPL"
HEAD: Final = len(MAGIC) + U16.size
MAX_HELLO: Final = 1024
RELAYS: Final = 1


class Refused(Exception):
    """The nodes cannot be linked; says why."""


def encode_hello(hello: Hello) -> bytes:
    body = b"".join(
        [
            short(hello.node),
            U32.pack(hello.boot),
            short(hello.cluster),
            bytes((len(hello.versions),)),
            *(U16.pack(version) for version in hello.versions),
            short(hello.method),
            bytes((RELAYS if hello.relays else 0,)),
            hello.nonce,
        ]
    )
    if hello.services or hello.later:
        body += bytes((len(hello.services),)) + b"".join(map(short, hello.services)) + hello.later
    return MAGIC + U16.pack(len(body)) + body


def hello_size(data: bytes) -> int:
    """Bytes of the Hello that these begin with; 0: too few to know. Raises MalformedFrame as soon as it is none."""
    if not MAGIC.startswith(data[: len(MAGIC)]):
        raise MalformedFrame("these bytes are not of a link between nodes")
    if len(data) < HEAD:
        return 0
    size = int.from_bytes(data[len(MAGIC) : HEAD], "big")
    if size > MAX_HELLO:
        raise MalformedFrame(f"a Hello of {size} bytes")
    return HEAD + size


def decode_hello(data: bytes) -> Hello:
    """A whole one, as `hello_size` says. Raises MalformedFrame."""
    if hello_size(data) != len(data):
        raise MalformedFrame("malformed Hello")
    fields = Fields(data[HEAD:])
    node, boot, cluster = fields.node(), fields.u32(), fields.name(MAX_CLUSTER)
    count = fields.u8()
    if not 0 < count <= MAX_VERSIONS:
        raise MalformedFrame(f"a Hello with {count} versions")
    versions = tuple(fields.u16() for _ in range(count))
    method, flags = fields.name(MAX_METHOD), fields.u8()
    nonce = fields.take(NONCE)
    services = _services(fields)
    return Hello(node, boot, cluster, versions, method, bool(flags & RELAYS), nonce, services, fields.rest())


def _services(fields: Fields) -> tuple[str, ...]:
    if fields.at == len(fields.data):
        return ()
    count = fields.u8()
    if count > MAX_SERVICES:
        raise MalformedFrame(f"a Hello with {count} services")
    services = tuple(fields.name(MAX_SERVICE) for _ in range(count))
    if not services and fields.at == len(fields.data):
        raise MalformedFrame("a Hello that names no services in two ways")
    return services


def agree(ours: Hello, theirs: Hello) -> int:
    """The version that both speak from now on. Raises Refused."""
    if theirs.cluster != ours.cluster:
        raise Refused(f"the peer is of the cluster {theirs.cluster!r}, this node of {ours.cluster!r}")
    if theirs.node == ours.node:
        raise Refused(f"the peer has this node's own id {ours.node!r}")
    return highest_common(ours.versions, theirs.versions)


def highest_common(ours: Sequence[int], theirs: Sequence[int]) -> int:
    common = set(ours) & set(theirs)
    if not common:
        raise Refused(f"the peer speaks frames of version {_listed(theirs)}, this node {_listed(ours)}")
    return max(common)


def _listed(versions: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(versions)))
