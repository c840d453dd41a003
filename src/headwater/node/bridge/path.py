"""The brokers that a message has left over a bridge, and whether it may go on.

Theory. Every broker has an id. A bridge that carries a message from one broker to another adds the id of the one it
leaves to the message's path, a user property of MQTT 5.0 for each id. A message whose path has the id of the broker
that it would enter has been there and is dropped; so is one whose path has the id of the broker that it would leave: it
left it before and came back. So a message passes each broker of a ring at most once, whichever of two neighbours runs
the bridge between them, and a stranger in the ring that keeps user properties does no harm. A bound of hops ends what
ids cannot, such as messages that were under way while a broker came back with another id.

A broker of ours says its id in CONNACK to whoever shows by a user property in CONNECT that it is a bridge. Of a
stranger nothing is known; a mark stands for it in the path, so that the hop is counted.
"""

from __future__ import annotations

from typing import Final

from headwater.message import UserProperties
from headwater.wire.packets import Connect, Properties

PATH: Final = "headwater-path"
"""The user property with the id of a broker that the message has left over a bridge."""
BRIDGE: Final = "headwater-bridge"
"""The user property of CONNECT by which a bridge asks for the broker's id; its value is the id of its own broker."""
BROKER: Final = "headwater-broker"
"""The user property of CONNACK that answers it."""
STRANGER: Final = "?"
"""In a path, a broker whose id is not known."""


def crossed(found: UserProperties | None, leaves: str, enters: str, max_hops: int) -> UserProperties | None:
    """The user properties with which a message enters a broker that comes from another; ids of strangers are "".
    None: it may not, because it has been there, or has come through too many."""
    properties = found or []
    path = [value for name, value in properties if name == PATH]
    if len(path) >= max_hops or (leaves and leaves in path) or (enters and enters in path):
        return None
    return [*properties, (PATH, leaves or STRANGER)]


def introduce(packet: Connect, grants: Properties, broker_id: str) -> None:
    """Add the broker's id to what CONNACK says, if CONNECT asks for it."""
    asked = packet.properties
    if asked is not None and any(name == BRIDGE for name, _ in asked.user_properties or ()):
        grants.user_properties = [*(grants.user_properties or []), (BROKER, broker_id)]


def broker_of(server: Properties) -> str:
    """The id of the broker that sent this CONNACK; "" of a stranger."""
    for name, value in server.user_properties or ():
        if name == BROKER:
            return value
    return ""
