"""Hashes of topics that grow level by level.

Theory. A search goes down a tree of prefixes, so the hash of a prefix is made of the hash of the one before and that of
the level behind it: a topic of d levels is read once, however many prefixes with `+` in them are asked for. A level is
hashed by XXH3, seeded, so that nobody who does not know the seed can choose filters that fall together. Everything has
62 bits: positive in the 64 bits that compiled code computes with, so that compiled and plain Python agree.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64
from xxhash import xxh3_64_intdigest

BITS: Final = 62
MASK: Final[i64] = 0x3FFF_FFFF_FFFF_FFFF
_ODD: Final[i64] = 0x1E37_79B9_7F4A_7C15
_SPREAD: Final[i64] = 0x3F58_476D_1CE4_E5B9


def level_hash(level: bytes, seed: int) -> int:
    found: int = xxh3_64_intdigest(level, seed)
    return found >> 2


def mixed(value: i64) -> i64:
    """Every bit of the result depends on every bit of the value."""
    value = (value ^ (value >> 31)) * _SPREAD & MASK
    value = (value ^ (value >> 29)) * _ODD & MASK
    return value ^ (value >> 32)


def extended(prefix: i64, level: i64) -> i64:
    """The hash of a prefix with one more level. The order of levels counts."""
    return mixed((prefix * _ODD & MASK) ^ level)


def root_hash(seed: int) -> int:
    """Of the prefix without levels."""
    return level_hash(b"", seed ^ 0x5EED)
