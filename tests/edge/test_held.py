"""What is held is bounded, and taken once."""

from __future__ import annotations

from headwater.edge.copies import Copy
from headwater.edge.held import Held


def test_it_is_full_by_bytes_and_empty_again_when_taken() -> None:
    held = Held(3000)
    copies = [Copy(position, "t", bytes(1000)) for position in (5, 3, 4)]
    for copy in copies[:2]:
        held.add(copy)
        assert not held.is_full
    held.add(copies[2])
    assert held.is_full
    assert 5 in held
    assert held.take(5) == {3: copies[1], 4: copies[2]}
    assert not held.is_full
    assert 5 in held
    assert 3 not in held
    assert held.take(5) == {}
    assert held.take(6) == {5: copies[0]}
