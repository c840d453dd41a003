"""`headwater edge forwards`: where a node forwards its store to, and how far it has come (docs/forwarding.md)."""

from __future__ import annotations

import json
from typing import Any, Final

from headwater.cli.admin import Admin, AdminError, read_token
from headwater.cli.cluster import AsJson, AskOptions, print_table, span, with_ask_options
from headwater.cli.failure import fail

COMMAND: Final = "edge forwards"


@with_ask_options
def forwards(of: AskOptions, as_json: AsJson = False) -> None:
    """Where the node forwards its store to, by the node's admin API. Behind are positions of the store at which
    something may be owed; position is the last one in front of them."""
    try:
        found = Admin(of.admin, read_token(COMMAND, of.token_file)).ask("/v1/forwards")
    except AdminError as error:
        fail(COMMAND, error.detail or str(error))
    if as_json:
        print(json.dumps(found))
    elif found:
        _print(found)
    else:
        print("the node forwards to nobody: it has no [[forward]] in its settings (docs/forwarding.md)")


def _print(found: list[dict[str, Any]]) -> None:
    from headwater.cli.fitted import Column, Kind, number, printable

    columns = [Column("forward"), Column("to", Kind.SPARE), Column("state", Kind.WHOLE), number("position")]
    columns += [number("behind"), number("oldest"), number("under way", Kind.SPARE), number("parked", Kind.SPARE)]
    columns += [number("forwarded"), number("again", Kind.SPARE), number("given up"), number("lost"), Column("why")]
    rows = [
        [
            *(printable(each["name"]), printable(", ".join(each["addresses"])), "up" if each["up"] else "down"),
            *(f"{each['position']:,}", f"{each['behind']:,}", span(each["seconds_behind"]) if each["behind"] else ""),
            *(f"{each[name]:,}" for name in ("under_way", "parked", "forwarded", "sent_again", "given_up", "lost")),
            printable(each["error"]),
        ]
        for each in found
    ]
    print_table(columns, rows)
