"""How nodes of a cluster work together, without I/O: time, randomness and what arrived are arguments."""

from __future__ import annotations
