"""Writes docs/conformance.md from the scenarios' marks: PYTHONPATH=src python scripts/conformance_page.py

The marks (`@clause`, `@clause311`) say which test shows which statement of the standard; tests/broker/clauses.toml says
in a few words what the statement is, whom it binds, and why those without a test have none.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path

from headwater_lab.clauses import shown_by

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "conformance.md"
IDS = ROOT / "tests" / "broker" / "normative_ids.txt"
CLAUSES = ROOT / "tests" / "broker" / "clauses.toml"

HEAD = """\
# Conformance
Headwater is a server of MQTT 5.0 and 3.1.1. Each normative statement of MQTT 5.0 stands here with the scenarios that
show it on a real socket, byte by byte, or the reason why a server cannot show it. A statement that binds the client is
shown by what the server does with a client that breaks it. The words are ours; the standard's count. This page is made
from the scenarios' marks by `scripts/conformance_page.py`.

- Run the scenarios: `./scripts/test tests/broker`, against another broker with `--target HOST:PORT`;
  [results/](results/) has what they find in Mosquitto.
- That they can fail is shown by `./scripts/bench mutants`: it disables one clause after the other in the source, and
  the tests that are named here for it must fail. Its reports are in [results/](results/) too.
"""

DIFFERENCES = """\
## MQTT 3.1.1 and MQTT 3.1
Both versions are served on the same port, and sessions, subscriptions and messages cross between them. A 3.1.1 client
is treated differently where its version has no words for something:

- **MQTT 3.1** (`MQIsdp`, level 3) is served as 3.1.1, whose packets are its own but for CONNECT
  (`tests/broker/test_01_connect.py::test_mqtt_31`). It has no empty client id
  (`tests/broker/test_01_connect.py::test_mqtt_31_without_an_id`), no session present in CONNACK, and SUBSCRIBE,
  UNSUBSCRIBE and PUBREL may be marked as duplicates
  (`tests/broker/test_01_connect.py::test_mqtt_31_marks_more_as_sent_again`). A client id may be longer than its 23
  characters.
- A level with the highest bit (0x83, 0x84) is that of a **bridge of Mosquitto**, which is not part of the standard: it
  gets nothing back that it sent, and sees which messages were retained
  (`tests/broker/test_01_connect.py::test_bridges_of_mosquitto`).
- Errors end the connection without a word: servers send no DISCONNECT in 3.1.1
  (`tests/broker/test_11_disconnect.py::test_no_goodbye_from_the_server_311`). A malformed CONNECT gets no CONNACK.
- Refused connections hear one of the return codes 1 to 5; where none fits, the connection is just closed
  (`tests/broker/test_03_connack.py::test_connection_limit`).
- A client without an id must ask for a clean session, else return code 0x02; it is not told the id it got
  (`tests/broker/test_02_client_id.py::test_empty_with_session_311`).
- Clean session 0 keeps the session for as long as `max_session_expiry` allows, clean session 1 ends it with the
  connection (`tests/broker/test_07_session.py::test_clean_session_ends_with_the_connection_311`).
- A password needs a user name (`tests/broker/test_01_connect.py::test_password_alone_311`).
- Messages from 5.0 clients arrive without their properties, but expire for 3.1.1 clients too
  (`tests/broker/test_24_message_expiry.py::test_messages_of_311_publishers_do_not_expire`).
- A refused filter is 0x80 in SUBACK whatever the reason; UNSUBACK has no codes
  (`tests/broker/test_50_unavailable_features.py::test_wildcards_can_be_unavailable`).
- The upper six bits of a requested QoS must be 0: no subscription options
  (`tests/broker/test_31_subscribe.py::test_in_311_the_requested_qos_is_0_1_or_2`).
- Acknowledgements have no reasons: an unknown PUBREL is answered with a plain PUBCOMP
  (`tests/broker/test_30_acknowledgements.py::test_pubrel_for_an_unknown_identifier_is_answered_in_311`), a message that
  may not be published is acknowledged and dropped
  (`tests/broker/test_52_sys_topics.py::test_clients_may_not_publish_there`).
- A QoS or RETAIN that is switched off ends the connection
  (`tests/broker/test_50_unavailable_features.py::test_publishing_above_the_maximum_qos_ends_a_311_connection`).
- There is no Receive Maximum: our own `max_inflight` counts
  (`tests/broker/test_51_limits.py::test_messages_in_flight_are_bounded_by_us_too`).
- There is no AUTH: its packet type is reserved
  (`tests/broker/test_05_headers.py::test_auth_does_not_exist_311`).

The statements of MQTT 3.1.1 that scenarios show; its ids are not those of MQTT 5.0.
"""


def page() -> str:
    """The whole page. KeyError: an id that clauses.toml does not know."""
    clauses = tomllib.loads(CLAUSES.read_text(encoding="utf-8"))
    ids = IDS.read_text(encoding="utf-8").split()
    shown = shown_by(ROOT)
    reasons: dict[str, str] = clauses["not_the_servers"]
    rows = [_row(id, *_clause(clauses, id), shown.get(id), reasons.get(id)) for id in ids]
    old = shown_by(ROOT, "clause311")
    says311: dict[str, str] = clauses["mqtt311"]
    rows311 = [f"| {id} | {says311[id]} | {_tests(old[id])} |" for id in sorted(old, key=_by_number)]
    tested = sum(id in shown for id in ids)
    return "\n".join(
        [
            HEAD,
            "## MQTT 5.0",
            f"{len(ids)} statements: {tested} have scenarios, {len(reasons)} are not the server's.\n",
            "| id | binds | in short | shown by |\n|---|---|---|---|",
            *rows,
            "",
            DIFFERENCES,
            "| id | in short | shown by |\n|---|---|---|",
            *rows311,
            "",
        ]
    )


def _clause(clauses: dict[str, dict[str, str]], id: str) -> tuple[str, str]:
    """Whom it binds, and what it says."""
    for whom in ("both", "server", "client"):
        if id in clauses[whom]:
            return whom, clauses[whom][id]
    raise KeyError(id)


def _row(id: str, binds: str, says: str, tests: list[str] | None, reason: str | None) -> str:
    return f"| {id} | {binds} | {says} | {_tests(tests) if tests else f'*not the server’s:* {reason}'} |"


def _tests(tests: list[str]) -> str:
    return "<br>".join(f"`{test}`" for test in tests)


def _by_number(id: str) -> list[int]:
    return [int(number) for number in id.removeprefix("MQTT-").replace("-", ".").split(".")]


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page(), encoding="utf-8")
