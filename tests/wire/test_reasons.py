from __future__ import annotations

import pytest

from headwater.wire import FROM_CLIENT, FROM_SERVER, V5, RemoteProtocolError, decode
from headwater.wire.reasons import PROTOCOL_ERROR

# The tables of sections 3.2.2.2, 3.4.2.1 to 3.7.2.1, 3.9.3, 3.11.3, 3.14.2.1 (and 2.4 for 8c) and 3.15.2.1:
# sender, first byte, body before and after the reason code, legal codes.
M = "04 15 00 01 61"
TABLES = [
    (FROM_SERVER, "20", "00", "00", "00 80 81 82 83 84 85 86 87 88 89 8a 8c 90 95 97 99 9a 9b 9c 9d 9f"),
    (FROM_CLIENT, "40", "00 01", "", "00 10 80 83 87 90 91 97 99"),
    (FROM_CLIENT, "50", "00 01", "", "00 10 80 83 87 90 91 97 99"),
    (FROM_CLIENT, "62", "00 01", "", "00 92"),
    (FROM_CLIENT, "70", "00 01", "", "00 92"),
    (FROM_SERVER, "90", "00 01 00", "", "00 01 02 80 83 87 8f 91 97 9e a1 a2"),
    (FROM_SERVER, "b0", "00 01 00", "", "00 11 80 83 87 8f 91"),
    (
        *(FROM_SERVER, "e0", "", ""),
        "00 04 80 81 82 83 87 89 8b 8c 8d 8e 8f 90 93 94 95 96 97 98 99 9a 9b 9c 9d 9e 9f a0 a1 a2",
    ),
    (FROM_SERVER, "f0", "", M, "00 18"),
    (FROM_CLIENT, "f0", "", M, "18 19"),
]


@pytest.mark.parametrize(("role", "first", "before", "after", "legal"), TABLES)
def test_exactly_the_reason_codes_of_the_standard_are_read(
    role: int, first: str, before: str, after: str, legal: str
) -> None:
    accepted = set()
    for reason in range(256):
        try:
            decode(int(first, 16), bytes.fromhex(before) + bytes((reason,)) + bytes.fromhex(after), V5, role)
            accepted.add(reason)
        except RemoteProtocolError as error:
            assert error.reason == PROTOCOL_ERROR
    assert accepted == set(bytes.fromhex(legal))
