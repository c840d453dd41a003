"""Records of messages: what goes in comes out."""

from __future__ import annotations

import pytest

from headwater.message import Message
from headwater.node.persistence.records import message_in, record_of


@pytest.mark.parametrize("owner", [None, "", "ann"])
@pytest.mark.parametrize("publisher", ["", "client"])
def test_whose_message_it_is(publisher: str, owner: str | None) -> None:
    """The user name of who retained it, if rights are asked for again (`access.acl_retained`)."""
    message = Message("t", b"x", 1, True, publisher=publisher, expires_at=7.0)
    message.owner = owner
    found = message_in(record_of(message, 100.0), 90.0)
    assert (found.topic, found.payload, found.qos, found.retain, found.expires_at) == ("t", b"x", 1, True, 17.0)
    assert (found.publisher, found.owner) == (publisher, owner)
