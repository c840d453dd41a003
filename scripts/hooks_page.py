"""Writes docs/hooks.md from the table of events: PYTHONPATH=src python scripts/hooks_page.py"""

from __future__ import annotations

import argparse
from pathlib import Path

from headwater.node.hooks import EVENTS, FILTER, GUARD, WATCHER

PAGE = Path(__file__).parent.parent / "docs" / "hooks.md"

HEAD = """\
# Hooks
A hook is a function that the broker calls at an event. `broker.hooks.add(event, function)` adds one, `remove` takes it
away again, `@broker.hooks.on(event)` adds the function below it; [examples/hooks.py](../examples/hooks.py) shows all
three kinds at work. Hooks may come and go while the broker runs.

Hooks of an event are called in the order in which they were added, on the broker's own thread, between two packets:
they must not block and must not keep what they are given for changing it later. `client` is the connection, with
`client_id`, `username`, `address`, `version`; for a will, whose connection is gone, it is the session.

A hook that raises is contained: the exception is logged and counted (`Statistics.hook_failures`), and the broker goes
on: for a guard as if it had refused (0x83), for a filter with the value as it was.

Nobody listening costs nothing. Events marked *slow* are those of every message: while one of them has a hook, messages
take the ordinary way through the broker, which is several times slower than the hot path but means the same.

This page is made from the source by `scripts/hooks_page.py`.
"""

KINDS = {
    GUARD: """
## Guards
A guard may veto: every guard has to agree. It refuses by returning `False` (0x87, not authorized) or by raising
`Refusal(reason, text, server_reference)`; anything else agrees. For `auth_packet` a guard returns
`Challenge(data, done, username)` to go on with the exchange, or None when it does not know the method. `username` of
the last step (`done`) is who the client is: rules, quotas, bans and its session go by it alone, and without it the
client is nobody. The user name in its CONNECT was not proved by the exchange, and does not count.
""",
    FILTER: """
## Filters
A filter may transform: it returns a new value for its first argument, or None to leave it as it is. The next filter
gets what the one before has made of it.
""",
    WATCHER: """
## Watchers
A watcher cannot affect anything; what it returns is ignored.
""",
}

COLUMNS = "\n| event | arguments | when | slow |\n|---|---|---|---|\n"


def page() -> str:
    text = HEAD
    for kind, introduction in KINDS.items():
        text += introduction + COLUMNS
        for name, event in EVENTS.items():
            if event.kind == kind:
                text += f"| `{name}` | `{event.arguments}` | {event.doc} | {'slow' if event.slow else ''} |\n"
    return text


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page(), encoding="utf-8")
