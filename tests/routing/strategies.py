"""Topics and filters that are small enough to meet often and nasty enough to matter."""

from __future__ import annotations

from hypothesis import strategies as st

LEVELS = ["", "a", "b", "c", "$a", "$SYS", "sport", "é", "日本", "🚰", " "]

topics = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=5).map("/".join).filter(bool)

_filter_levels = st.lists(st.sampled_from([*LEVELS, "+", "+", "+"]), max_size=5)

filters = st.builds(
    lambda levels, rest: "/".join([*levels, "#"] if rest else levels), _filter_levels, st.booleans()
).filter(bool)

# Filter, topic, whether they match: the standard's own examples and those that are easily got wrong.
EXAMPLES = [
    ("sport/tennis/player1/#", "sport/tennis/player1", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
    ("sport/tennis/player1/#", "sport/tennis/player2", False),
    ("sport/#", "sport", True),
    ("sport/#", "sports", False),
    ("#", "sport", True),
    ("#", "/", True),
    ("sport/tennis/+", "sport/tennis/player1", True),
    ("sport/tennis/+", "sport/tennis/player1/ranking", False),
    ("sport/+", "sport", False),
    ("sport/+", "sport/", True),
    ("+", "/finance", False),
    ("+/+", "/finance", True),
    ("/+", "/finance", True),
    ("+/#", "a", True),
    ("+/#", "/", True),
    ("a//b", "a/b", False),
    ("a/+/b", "a//b", True),
    ("a", "a/", False),
    ("a/", "a", False),
    ("A", "a", False),
    ("é", "e\N{COMBINING ACUTE ACCENT}", False),
    ("#", "$SYS/monitor", False),
    ("+", "$SYS", False),
    ("+/monitor/Clients", "$SYS/monitor/Clients", False),
    ("+/#", "$SYS/monitor", False),
    ("$SYS/#", "$SYS/monitor/Clients", True),
    ("$SYS/#", "$SYS", True),
    ("$SYS/+", "$SYS/$inner", True),
    ("a/+", "a/$b", True),
    ("a/#", "a/$b", True),
    ("+/$b", "a/$b", True),
]
