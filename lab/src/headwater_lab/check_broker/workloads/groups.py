"""Shared subscriptions: members at every target, and publishers beside them."""

from __future__ import annotations

from headwater_lab.check_broker.workloads.course import Course, Participant
from headwater_lab.check_broker.workloads.queues import Publisher, Subscriber


def groups(course: Course) -> list[Participant]:
    """One group over all targets if sessions are those of all; else one at each target, with topics of its own."""
    found: list[Participant] = []
    for number, home in enumerate(course.surroundings.targets, 1):
        below = "group" if course.roams else f"group-{number}"
        topic_filter = f"$share/{below}/{course.surroundings.prefix}/{below}/#"
        for each in (1, 2):
            name = f"member-{number}-{each}"
            found.append(Subscriber(course, name, home, roams=False, goes=False, topic_filter=topic_filter, qos=2))
        found.append(Publisher(course, f"group-pub-{number}", home, roams=False, below=below, qos=(1, 2)))
    return found
