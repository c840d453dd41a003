"""The join secret: each side shows that it knows it, without saying it.

Each Hello has a nonce; the proof is an HMAC over both Hellos, one's own first, so neither can be sent back to who made
it, nor replayed on another link. It says who may join, and nothing about who listens on the way: that needs TLS.
"""

from __future__ import annotations

import hashlib
import hmac

from headwater.peering.frames.frame import Hello, Proof
from headwater.peering.frames.hello import encode_hello


def proof(secret: bytes, ours: Hello, theirs: Hello) -> Proof:
    """To be sent behind our Hello, once theirs is there."""
    return Proof(hmac.new(secret, encode_hello(ours) + encode_hello(theirs), hashlib.sha256).digest())


def is_proven(secret: bytes, ours: Hello, theirs: Hello, said: Proof) -> bool:
    return hmac.compare_digest(proof(secret, theirs, ours).mac, said.mac)
