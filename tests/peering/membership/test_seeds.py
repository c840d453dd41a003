"""Seeds of settings, files and names, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.peering.membership.bounds import MAX_SEEDS
from headwater.peering.membership.seeds import (
    Seed,
    names_to_resolve,
    parse_seed,
    parse_seed_file,
    parse_seeds,
    seed_addresses,
)


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        ("broker-1", Seed("broker-1", 1884)),
        ("broker-1:99", Seed("broker-1", 99)),
        (" 10.0.0.1:1 ", Seed("10.0.0.1", 1)),
        ("[::1]:99", Seed("::1", 99)),
        ("[::1]", Seed("::1", 1884)),
        ("unix:/run/b.sock", Seed("/run/b.sock", 0)),
    ],
)
def test_forms_of_a_seed(text: str, seed: Seed) -> None:
    assert parse_seed(text, 1884) == seed
    assert parse_seed(str(seed), 1884) == seed


@pytest.mark.parametrize(
    "text",
    ["", ":1", "a:", "a:0", "a:65536", "a:x", "a:１", "::1", "[::1", "[::1]x", "[a]:1", "unix:", "a b", "a/b", "a:1:2"],
)
def test_what_is_no_seed(text: str) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        parse_seed(text, 1884)


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_a_seed_or_is_not(text: str) -> None:
    try:
        seed = parse_seed(text, 1884)
    except ValueError:
        return
    assert parse_seed(str(seed), 1884) == seed


def test_a_file_of_seeds() -> None:
    content = "# our nodes\nb1, b2:99\n\n  [::1]:5 # here\nb1\n"
    assert parse_seed_file(content, 1884) == [Seed("b1", 1884), Seed("b2", 99), Seed("::1", 5)]
    with pytest.raises(ValueError, match="not of the form"):
        parse_seed_file("b1\n:\n", 1884)


def test_names_have_several_addresses() -> None:
    seeds = parse_seeds(["brokers:1", "10.0.0.9:1", "brokers:2", "gone:1", "unix:/s"], 1884)
    assert names_to_resolve(seeds) == ["brokers", "gone"]
    resolved = {"brokers": ["10.0.0.1", "10.0.0.2", "::1"]}
    assert seed_addresses(seeds, resolved, own=["10.0.0.2:1"]) == [
        *("10.0.0.1:1", "[::1]:1", "10.0.0.9:1", "10.0.0.1:2", "10.0.0.2:2", "[::1]:2", "unix:/s")
    ]


def test_seeds_are_bounded() -> None:
    with pytest.raises(ValueError, match="more than"):
        parse_seeds([f"b{number}" for number in range(MAX_SEEDS + 1)], 1884)
    many = {"brokers": [f"10.0.{number}.1" for number in range(200)]}
    assert len(seed_addresses([Seed("brokers", 1)], many)) == MAX_SEEDS
