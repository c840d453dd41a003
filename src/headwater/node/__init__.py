"""The server: the only sockets, clocks and tasks. `Broker` is what programs embed; `run` gives it the fast loop."""

from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.hooks import Challenge, Hooks, Refusal
from headwater.node.plane.selector import run

__all__ = ["Broker", "Challenge", "Config", "Hooks", "Refusal", "run"]
