from __future__ import annotations

import pytest

from headwater.store.entry import EARLIEST, LATEST, iso
from headwater.store.memory import MemoryStore
from headwater.store.rest.gate import Refused
from headwater.store.rest.parameters import position_of, time_of
from tests.store.messages import NOON, SECOND


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("0", 0),
        ("-1", -SECOND),
        ("1.5", 3 * SECOND // 2),
        ("1e3", 1000 * SECOND),
        (str(NOON // SECOND), NOON),
        (str(NOON // 1000), NOON),
        (str(NOON), NOON),
        (f"{NOON}000", NOON),
        (iso(NOON), NOON),
        ("1970-01-01", 0),
        ("1970-01-01T01:00+01:00", 0),
        ("19700101T000001Z", SECOND),
        ("0001-01-01T00:00:00", EARLIEST),
        ("9999-12-31T23:59:59.999999Z", LATEST),
    ],
)
def test_times(text: str, time: int) -> None:
    assert time_of(text, "from") == time


@pytest.mark.parametrize(
    "text",
    ["", "now", "nan", "inf", "-inf", "1e400", "1e999", "9" * 31, "0x10", "1_000", "9999-12-31T23:59:59-01:00", "٣"],
)
def test_no_times(text: str) -> None:
    with pytest.raises(Refused) as refused:
        time_of(text, "from")
    assert refused.value.status == 422 and "`from`" in refused.value.detail


def test_positions() -> None:
    store = MemoryStore("a:b")
    assert position_of("5", store, "after") == position_of("a:b:5", store, "after") == 5
    for text in ("b:5", ":5", "9" * 19):
        with pytest.raises(Refused):
            position_of(text, store, "after")
