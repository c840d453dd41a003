"""The server: the only sockets, clocks and tasks. `Broker` is what programs embed; `run` gives it the fast loop.

These names are imported when they are asked for: commands that need one small module of the node (`headwater top`)
would otherwise load the whole broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headwater.node.broker import Broker
    from headwater.node.config import Config
    from headwater.node.hooks import Challenge, Hooks, Refusal
    from headwater.node.plane.selector import run

__all__ = ["Broker", "Challenge", "Config", "Hooks", "Refusal", "run"]

_WHERE: Final = {
    "Broker": "broker",
    "Challenge": "hooks",
    "Config": "config",
    "Hooks": "hooks",
    "Refusal": "hooks",
    "run": "plane.selector",
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
