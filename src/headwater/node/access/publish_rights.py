"""Whether somebody with these rights may publish to a topic: for MQTT, wills and REST, wherever that is judged."""

from __future__ import annotations

from headwater.routing.topics import is_guarded, is_reserved
from headwater.session.rights import Rights


def may_publish(topic: str, rights: Rights | None, steers: bool) -> bool:
    """`rights` None: everything that clients may; `steers`: also topics that steer the broker (`$headwater/…`)."""
    if is_reserved(topic) or (is_guarded(topic) and not steers):
        return False
    return rights is None or rights.publishes(topic.encode())
