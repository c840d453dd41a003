"""Buckets, bans and failures, with time as an argument."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.message import NEVER
from headwater.node.access import limits
from headwater.node.access.limits import USER, AddressRates, Bans, Bucket, Failures, Meter, host_of
from headwater.web.addresses import is_within, network_of


@given(
    st.floats(0.5, 100),
    st.floats(1, 50),
    st.lists(st.floats(0, 3), max_size=80),
)
def test_a_bucket_gives_no_more_than_its_rate_and_burst(rate: float, burst: float, pauses: list[float]) -> None:
    bucket = Bucket(rate, burst, 0.0)
    now = 0.0
    taken = 0
    for pause in pauses:
        now += pause
        taken += bucket.take(now)
        assert taken <= burst + rate * now + 1e-6


@given(st.floats(0.5, 100), st.floats(1, 50), st.lists(st.integers(1, 40), max_size=30))
def test_who_waits_as_told_is_no_faster_than_the_rate(rate: float, burst: float, counts: list[int]) -> None:
    bucket = Bucket(rate, burst, 0.0)
    now = 0.0
    for number, count in enumerate(counts):
        now += bucket.owe(count, now)
        assert sum(counts[: number + 1]) <= burst + rate * now + 1e-6


def test_a_meter_waits_for_the_slower_of_messages_and_bytes() -> None:
    assert Meter(10, 0, 1.0, 0.0).used(10**9, 20, 0.0) == 1.0
    assert Meter(0, 1000, 1.0, 0.0).used(3000, 10**6, 0.0) == 2.0
    assert Meter(10, 1000, 1.0, 0.0).used(3000, 20, 0.0) == 2.0
    assert Meter(10, 1000, 3.0, 0.0).used(3000, 20, 0.0) == 0.0


def test_addresses_are_counted_each_for_itself_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 3)
    rates = AddressRates(1.0, 2)
    assert [rates.take("a", 0.0) for _ in range(3)] == [True, True, False]
    assert rates.take("b", 0.0) and rates.take("a", 1.0)
    for other in "cdefg":
        assert rates.take(other, 1.0)
    assert len(rates._buckets) == 3


def test_bans_end_by_time_or_by_hand() -> None:
    bans = Bans()
    assert not bans
    bans.add("user", "u", 10.0, "why")
    bans.add("address", "2001:db8::1", NEVER, "")
    found = bans.find("user", "u", 9.9)
    assert found is not None and found.reason == "why"
    assert bans.find("address", "2001:db8::/64", 1e9) is not None
    assert [ban.kind for ban in bans.all(5.0)] == ["user", "address"]
    assert bans.find("user", "u", 10.0) is None
    assert not bans.lift("user", "u")
    assert bans.lift("address", "2001:db8::ffff"), "the same network"
    assert not bans
    with pytest.raises(ValueError, match="none of address, user, client"):
        bans.add("name", "x", 1.0, "")


def test_failures_count_within_their_window(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = Failures(10.0)
    assert [failures.add("user", "u", now) for now in (0.0, 5.0, 9.9)] == [1, 2, 3]
    assert failures.add("user", "u", 10.0) == 1, "the window began with the first"
    assert failures.add("address", "u", 10.0) == 1
    failures.forget("user", "u")
    assert failures.add("user", "u", 10.0) == 1
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 3)
    for value in "abcdef":
        failures.add("user", value, 11.0)
    assert len(failures._counts) == 3


@pytest.mark.parametrize(
    ("address", "host", "network"),
    [
        ("10.1.2.3:1883", "10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6:40000", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:10.1.2.3:40000", "::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0:40000", "fe80::1%eth0", "fe80::/64"),
        ("unix", "unix", "unix"),
    ],
)
def test_what_counts_as_one_address(address: str, host: str, network: str) -> None:
    assert host_of(address) == host
    assert network_of(host) == network


def test_networks_that_are_exempt() -> None:
    exempt = ("127.0.0.0/8", "::1/128")
    assert is_within("127.3.4.5", exempt) and is_within("::1", exempt) and is_within("::ffff:127.0.0.1", exempt)
    assert not any(is_within(host, exempt) for host in ("10.0.0.1", "2001:db8::1", "unix"))


def test_long_names_are_remembered_as_hashes() -> None:
    """Strangers choose user names and client ids, of up to 64 KiB."""
    failures, bans = Failures(60.0), Bans()
    name = "x" * 60_000
    assert [failures.add(USER, name, 0.0) for _ in range(3)] == [1, 2, 3]
    assert failures.add(USER, name + "y", 0.0) == 1
    assert all(len(value) < 300 for _, value in failures._counts)
    failures.forget(USER, name)
    assert failures.add(USER, name, 0.0) == 1
    ban = bans.add(USER, name, 100.0, "why")
    assert len(ban.value) < 300 and bans.find(USER, name, 1.0) is ban and bans.lift(USER, name)
