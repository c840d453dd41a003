"""What a broker does, seen on real connections: each look tries one feature and answers in a few words, for the
table of docs/brokers.md.

A look never says what a broker claims. One that fails in the middle (the broker closes the connection, or does not
answer) answers with that. What should *not* come is waited for by a marker: a message that is published behind it, and
comes to the same subscriber.
"""

from __future__ import annotations

from typing import Final

from headwater_lab.makes.looks import echoes, lasting, limits, qos, retained
from headwater_lab.makes.looks.ground import Ground, Look, see, version

ALL: Final = (*qos.LOOKS, *echoes.LOOKS, *limits.LOOKS, *retained.LOOKS, *lasting.LOOKS)
"""Those that end the broker are last."""

__all__ = ["ALL", "Ground", "Look", "see", "version"]
