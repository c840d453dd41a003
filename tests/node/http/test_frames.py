"""What node and HTTP process say to each other, as bytes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.node.http.frames import LARGEST_HEAD, BadFrame, Frames, encoded

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=8,
)
HEADS = st.dictionaries(st.text(st.characters(codec="utf-8")), VALUES, max_size=4)


@given(st.lists(st.tuples(HEADS, st.binary(max_size=50)), max_size=6), st.lists(st.integers(0, 400), max_size=8))
def test_frames_arrive_as_they_were_sent_in_any_pieces(
    said: list[tuple[dict[str, Any], bytes]], cuts: list[int]
) -> None:
    data = b"".join(b"".join(encoded(head, body)) for head, body in said)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    frames = Frames(50)
    heard = [each for start, end in pairwise(places) for each in frames.feed(data[start:end])]
    assert heard == said


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waited_for(data: bytes) -> None:
    frames = Frames(100)
    try:
        heard = list(frames.feed(data))
    except BadFrame:
        return
    assert all(isinstance(head, dict) for head, _ in heard)


@pytest.mark.parametrize(
    "data",
    [
        (LARGEST_HEAD + 1).to_bytes(4, "little") + bytes(4),
        bytes(4) + (101).to_bytes(4, "little"),
        b"\x02\0\0\0\0\0\0\0[]",
        b"\x02\0\0\0\0\0\0\0{x",
    ],
)
def test_what_is_too_large_or_no_object_is_refused_at_once(data: bytes) -> None:
    with pytest.raises(BadFrame):
        list(Frames(100).feed(data))
