"""What is promised, by name. What nobody promises is looked for nevertheless, and reported as seen.

The standard knows one Server. With several targets, `standard` takes all of them together for that Server: a session
is the same wherever its client connects. `per-node` takes each for a Server of its own that passes messages on, as
bridges do: sessions, groups and take-over are judged at each target, and no client moves. What the standard leaves open
is promised by neither: that a session without subscriptions is known again, what becomes of a will while the broker is
down, and that several targets agree on a retained message at every moment.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Promise(StrEnum):
    ACKNOWLEDGED = "acknowledged"
    ONCE = "once"
    AT_MOST_ONCE = "at-most-once"
    ORDER = "order"
    SESSION = "session"
    EMPTY_SESSION = "empty-session"
    TAKE_OVER = "take-over"
    WILL = "will"
    WILL_IN_FAULTS = "will-in-faults"
    GROUP = "group"
    RETAINED_CONVERGES = "retained-converges"
    RETAINED_LINEARIZABLE = "retained-linearizable"
    INTEGRITY = "integrity"
    PROMPT_SUBSCRIPTION = "prompt-subscription"


WORDS: Final = {
    Promise.ACKNOWLEDGED: "a QoS 1 or 2 message that was acknowledged reaches every session that was subscribed with "
    "QoS 1 or 2 [4.3.2, 4.3.3, 3.1.2.4]",
    Promise.ONCE: "a QoS 2 message is handed to a session subscribed with QoS 2 once [4.3.3]",
    Promise.AT_MOST_ONCE: "a QoS 0 message comes to a session once at most [4.3.1]",
    Promise.ORDER: "messages of one publisher, topic and QoS come in the order in which they were sent [4.6]",
    Promise.SESSION: "a session with subscriptions is there when its client comes back [3.1.2.4, 3.2.2.1.1]",
    Promise.EMPTY_SESSION: "so is one without subscriptions",
    Promise.TAKE_OVER: "a client that connects again ends its earlier connection [MQTT-3.1.4-3]",
    Promise.WILL: "a client that dies leaves its will, once, and one that takes its leave leaves none [3.1.2.5]",
    Promise.WILL_IN_FAULTS: "the same while a fault lasts",
    Promise.GROUP: "a message to a shared subscription comes to one of its members, and to one only [4.8.2]",
    Promise.RETAINED_CONVERGES: "in the end every target shows the same retained message, one that no later write "
    "replaced [3.3.1.3]",
    Promise.RETAINED_LINEARIZABLE: "retained messages are a linearizable register: a reader never sees an older one "
    "than was acknowledged before it asked",
    Promise.INTEGRITY: "what is delivered was published, to that topic, and is whole",
    Promise.PROMPT_SUBSCRIPTION: "SUBACK means that what is acknowledged from then on comes, at whichever target",
}

BY_NOBODY: Final = frozenset({Promise.EMPTY_SESSION, Promise.WILL_IN_FAULTS})
OF_ONE_TARGET: Final = frozenset({Promise.RETAINED_LINEARIZABLE, Promise.PROMPT_SUBSCRIPTION})
"""The standard says what a Server does with a packet it receives, so of one; it says nothing of several together."""
PROFILES: Final = {
    "standard": (frozenset(Promise) - BY_NOBODY, OF_ONE_TARGET),
    "per-node": (frozenset(Promise) - BY_NOBODY, OF_ONE_TARGET | {Promise.RETAINED_CONVERGES}),
}
"""What is promised, and what of it not if there are several targets."""


def parse_promises(text: str, targets: int) -> tuple[str, frozenset[Promise]]:
    """A profile, and names with + or - that change it: `standard,+retained-linearizable,-order`. Raises ValueError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    profile = words.pop(0) if words and words[0] in PROFILES else "standard"
    of_profile, of_one_target = PROFILES[profile]
    promised = set(of_profile - of_one_target if targets > 1 else of_profile)
    for word in words:
        sign, name = word[0], word[1:]
        if sign not in "+-" or name not in set(Promise):
            raise ValueError(
                f"{word!r} is no promise; there are the profiles {', '.join(PROFILES)}, and +NAME or -NAME of "
                f"{', '.join(Promise)}"
            )
        (promised.add if sign == "+" else promised.discard)(Promise(name))
    return profile, frozenset(promised)
