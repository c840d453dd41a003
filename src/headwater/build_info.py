"""Which modules are meant to be compiled by mypyc, and whether they are in this installation.

The same files run interpreted or compiled. The list stands here, and only here, because two sides need it: setup.py,
which executes this file before anything is installed (so it imports nothing of Headwater), and the running program,
which says what it got.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Final

COMPILED: Final = (
    "message",
    "wire",
    "session",
    "routing",
    "interest",
    "store/intake",
    "store/extract",
    "node/plane/counters",
    "node/plane/timers",
    "node/plane/background",
    "node/plane/channel",
    "node/plane/unsent",
    "node/plane/turn",
    "node/destinations",
    "node/delivery/properties",
    "node/delivery/coordinator",
    "node/delivery/known_properties",
    "node/plane/sending",
    "node/plane/collecting",
    "node/delivery/storing",
    "node/protocol/hotpath",
    "node/plane/loop",
    "node/plane/guest",
    "node/persistence/records",
    "node/persistence/batch",
    "node/persistence/changes",
    "node/persistence/journal",
    "node/protocol/reporting",
    "node/protocol/sampling",
    "node/protocol/core",
    "node/protocol/flow",
    "node/protocol/server",
    "node/protocol/attaching",
    "node/protocol/connecting",
    "node/protocol/granting",
    "node/protocol/ending",
    "node/protocol/delivering",
    "node/protocol/elsewhere",
    "node/protocol/sharing",
    "node/access/publish_rights",
    "node/protocol/admission",
    "node/protocol/publisher_waits",
    "node/protocol/handing_over",
    "node/protocol/publishing",
    "node/protocol/retained_sender",
    "peering/applied",
    "peering/barrier",
    "peering/coordination",
    "peering/exchange",
    "peering/forwarding",
    "peering/retained",
    "peering/sessions",
    "peering/frames",
    "peering/graph",
    "peering/groups",
    "peering/liveness",
    "peering/methods",
    "peering/spool",
    "peering/streams",
    "peering/windows",
    "node/proxy/channel",
    "node/proxy/echo",
    "node/links/end",
    "node/links/spooling",
    "node/links/retaining",
    "node/links/sending",
    "node/links/post",
    "node/links/spanning",
    "node/links/group_reporter",
    "node/links/groups",
    "node/links/receiving",
    "node/links/moves",
    "node/links/known",
    "node/links/departing",
    "node/links/arriving",
    "node/links/moving",
    "node/links/holding",
    "node/links/claim",
    "node/links/claiming",
    "node/links/sessions",
    "node/links/pushing",
    "node/links/link",
    "node/links/links",
    "node/proxy/tap",
    "node/proxy/scanner",
    "node/proxy/cutting",
    "node/proxy/mixing",
    "node/proxy/tapping",
    "node/proxy/pacing",
    "node/proxy/pair",
    "node/proxy/passages",
    "node/proxy/relay",
    "node/protocol/conditioning",
    "node/protocol/subscribing",
    "node/transports/tls",
    "node/transports/websocket",
)
"""Modules, and packages whose modules are all meant, below the package's folder. A package's `__init__` only
re-exports and stays interpreted."""


def compiled_sources(package_folder: Path) -> list[Path]:
    """The source files of `COMPILED` that exist below `package_folder`, in a stable order."""
    sources: list[Path] = []
    for name in COMPILED:
        path = package_folder / name
        found = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        sources += [source for source in found if source.is_file() and source.name != "__init__.py"]
    return sources


def module_states() -> dict[str, bool]:
    """Whether each of the modules is compiled in this installation. None of them is executed to find out."""
    package_folder = Path(__file__).resolve().parent
    states = {}
    for source in compiled_sources(package_folder):
        name = ".".join(("headwater", *source.relative_to(package_folder).with_suffix("").parts))
        spec = importlib.util.find_spec(name)
        suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
        states[name] = spec is not None and spec.origin is not None and spec.origin.endswith(suffixes)
    return states


def describe(states: Iterable[bool]) -> str:
    """One word for all modules' states: `compiled`, `interpreted` or `mixed`, the last with its counts."""
    listed = list(states)
    count = sum(listed)
    if count == 0:
        return "interpreted"
    return "compiled" if count == len(listed) else f"mixed: {count} of {len(listed)} modules compiled"


def version_line() -> str:
    """What `headwater version` prints."""
    from headwater import __version__

    return f"headwater {__version__} ({describe(module_states().values())}, Python {platform.python_version()})"
