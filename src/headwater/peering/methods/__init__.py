"""How a node tells the others what it wants; `method.py` is the seam, `names.py` has them by name."""

from __future__ import annotations
