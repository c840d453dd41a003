"""The options of the source: read, checked, and kept to oneself."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater.pipeline.options import OptionError
from headwater.pipeline.source.settings import ROWS_PER_PARTITION, WAIT_FOR_STORE, read_settings

URL = "http://localhost:8080"


def test_what_is_not_said_has_a_value() -> None:
    found = read_settings({"url": URL})
    assert (found.start, found.end, found.fail_on_loss) == ("earliest", "latest", True)
    assert (found.rows_per_partition, found.patience) == (ROWS_PER_PARTITION, WAIT_FOR_STORE)
    assert (found.most_rows, found.most_bytes, found.reader, found.topic) == (None, None, None, None)


def test_addresses_are_of_the_option_and_the_file_each_once(tmp_path: Path) -> None:
    (tmp_path / "urls").write_text(f"# two\n\n http://c \n{URL}\nhttp://c\n")
    found = read_settings({"url": URL, "urlsFile": str(tmp_path / "urls")})
    assert found.addresses() == [URL, "http://c"]
    assert read_settings({"url": f" {URL} , http://b,,"}).addresses() == [URL, "http://b"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "'url' is needed, such as http://localhost:8080"),
        ({"url": " , "}, "'url' is needed"),
        ({"url": "ftp://x"}, "'ftp://x' is no address such as http://localhost:8080"),
        ({"url": f"{URL},mqtt://x"}, "'mqtt://x' is no address"),
        ({"url": URL, "token": "t", "user": "u"}, "either `token`, or `user` and `password`"),
        ({"urlsFile": "f", "token": "t", "user": "u"}, "either `token`, or `user` and `password`"),
        ({"url": URL, "startingOffset": "latest"}, "did you mean 'startingOffsets'?"),
        ({"url": URL, "startingOffsets": "soon"}, "is earliest, latest, a time such as"),
        ({"url": URL, "startingOffsets": '{"s": -1}'}, "'startingOffsets' is earliest"),
        ({"url": URL, "startingOffsets": '{"s": true}'}, "'startingOffsets' is earliest"),
        ({"url": URL, "startingOffsets": '{"s": 1.5}'}, "'startingOffsets' is earliest"),
        ({"url": URL, "startingOffsets": "{s"}, "'startingOffsets' is earliest"),
        ({"url": URL, "endingOffsets": "now"}, "'endingOffsets' is earliest"),
        ({"url": URL, "from": "yesterday"}, "'from' is a time such as 2026-01-31T12:00:00Z, not 'yesterday'"),
        ({"url": URL, "from": "2026-01-31", "to": "2026-01-31T00:00:00Z"}, "'from' is not before `to`"),
        ({"url": URL, "to": "5"}, "'to' is a time"),
        ({"url": URL, "topic": "a/#/b"}, "'topic' is 'a/#/b'"),
        ({"url": URL, "topic": ""}, "'topic' is ''"),
        ({"url": URL, "maxRowsPerTrigger": "0"}, "from 1 on"),
        ({"url": URL, "waitForStore": "long"}, "a number of seconds"),
        ({"url": URL, "reader": "a", "groupId": "b"}, "'groupId' says the same as reader"),
        ({"url": URL, "minOffsetsPerTrigger": "5", "maxRowsPerTrigger": "4"}, "is 5, and a batch has 4 at most"),
        (
            {"url": URL, "minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"},
            "'maxTriggerDelay' is a time such as 30s",
        ),
        ({"url": URL, "maxTriggerDelay": "5s"}, "'maxTriggerDelay' needs minOffsetsPerTrigger"),
        ({"url": URL, "startingTimestamp": "noon"}, "'startingTimestamp' is a time"),
        ({"url": URL, "startingTimestamp": "9" * 30}, "'startingTimestamp' is milliseconds since 1970"),
        ({"url": URL, "startingTimestamp": "1", "startingOffsets": "latest"}, "says the same as startingOffsets"),
        ({"url": URL, "payloadColumn": "data"}, "'payloadColumn' needs payloadSchema"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as error:
        read_settings(given)
    assert said in str(error.value)


def test_offsets_are_a_word_a_time_or_positions() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for text, value in [
        ("latest", "latest"),
        (" earliest ", "earliest"),
        ("2026-01-31T12:00", noon),
        ("2026-01-31T13:00:00+01:00", noon),
        ('{"s1": 5, "s2": 0}', {"s1": 5, "s2": 0}),
        ("{}", {}),
    ]:
        assert read_settings({"url": URL, "startingOffsets": text}).start == value


def test_times_without_a_zone_are_in_utc() -> None:
    found = read_settings({"url": URL, "from": "2026-01-31", "to": "2026-01-31T12:00:00-05:00"})
    assert found.measured_from == datetime(2026, 1, 31, tzinfo=UTC)
    assert found.measured_to == datetime(2026, 1, 31, 17, tzinfo=UTC)


def test_secrets_are_in_no_text_and_travel_to_executors() -> None:
    found = read_settings({"url": URL, "user": "alice", "password": "s3cret"})
    assert "s3cret" not in repr(found)
    assert "t0ken" not in repr(read_settings({"url": URL, "token": "t0ken"}))
    assert pickle.loads(pickle.dumps(found)) == found


def test_names_that_users_of_kafka_know() -> None:
    found = read_settings(
        {"url": URL, "groupId": "mine", "startingTimestamp": "1769860800000", "endingTimestamp": "2026-02-01"}
    )
    assert (found.reader, found.start) == ("mine", datetime(2026, 1, 31, 12, tzinfo=UTC))
    assert found.end == datetime(2026, 2, 1, tzinfo=UTC)
    waiting = read_settings(
        {"url": URL, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "9", "maxTriggerDelay": "30s"}
    )
    assert (waiting.least_rows, waiting.most_rows, waiting.longest_delay) == (5, 9, 30.0)
    assert read_settings({"url": URL, "minOffsetsPerTrigger": "5"}).longest_delay == 900.0
