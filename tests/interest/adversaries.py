"""Topics and filters that methods stumble over: few names, so that they meet; the papers' marks; `$`; empty levels."""

from __future__ import annotations

from hypothesis import strategies as st

from headwater.routing.topics import check_filter, check_name

NAMES = ["a", "b", "sport", "", "$", "$SYS", "a$", "é日本", "\x01", "0", "-1", " "]
MOST_LEVELS = 1 << 16


def _is(check: object, text: str) -> bool:
    try:
        check(text, MOST_LEVELS)  # type: ignore[operator]
    except ValueError:
        return False
    return True


_levels = st.sampled_from(NAMES)
topics = st.lists(_levels, min_size=1, max_size=7).map("/".join).filter(
    lambda text: _is(check_name, text)
) | st.sampled_from(["a/" * 60 + "b", "/" * 99, "a" * 5000])
_plain = st.lists(_levels | st.just("+"), min_size=1, max_size=6)
_inner = (
    _plain.map("/".join)
    | _plain.map(lambda levels: "/".join([*levels, "#"]))
    | st.sampled_from(["#", "+/" * 60 + "#", "a/" * 60 + "+", "/" * 99])
).filter(lambda text: _is(check_filter, text) and not text.startswith("$share/"))
filters = _inner | _inner.map(lambda text: f"$share/group/{text}")
