"""Frames of a link between two nodes; see `frame.py`."""

from __future__ import annotations
