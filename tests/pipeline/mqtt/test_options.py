"""Options: what is taken, and errors that say what to write instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.pipeline.mqtt.options import BadOption, ReadOptions, WriteOptions
from headwater.pipeline.options import OF_SPARK

LEAST = {"broker": "mqtt://localhost", "topics": "a/#", "spool": "/tmp/spool"}


def test_names_have_no_case_and_values_their_kinds() -> None:
    options = ReadOptions.of(
        {**LEAST, "CLIENTID": "me", "qos": "2", "positions": "TRUE", "spoolbytes": "2m", "maxRowsPerTrigger": "10"}
    )
    assert (options.client_id, options.qos, options.positions) == ("me", 2, True)
    assert (options.spool_bytes, options.max_rows) == (2 << 20, 10)
    assert ReadOptions.from_json(options.as_json()) == options


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topcs": "a"}, "unknown option 'topcs' of format('mqtt'); did you mean 'topics'?"),
        ({"nonsense": "a"}, "unknown option 'nonsense' of format('mqtt'); there are broker, username"),
        ({"qos": "3"}, "option qos: a whole number, at least 0 and at most 2, not '3'"),
        ({"qos": "high"}, "option qos: a whole number"),
        ({"receiveMaximum": "65536"}, "at most 65,535"),
        ({"positions": "maybe"}, "option positions: true or false, not 'maybe'"),
        ({"broker": "localhost:1883"}, "mqtt://localhost:1883"),
        ({"broker": "mqtt://localhost:port"}, "mqtt://localhost:1883"),
        ({"broker": "mqtt://localhost/topic"}, "mqtt://localhost:1883"),
        ({"topics": ""}, "filters such as"),
        ({"topics": "a/#/b"}, "filters such as"),
        ({"topics": '["a", 5]'}, "filters such as"),
        ({"topics": '["a"'}, "filters such as"),
        ({"topics": "$share/g/a"}, "filters such as"),
        ({"group": "a/b"}, "a name without / + #"),
        ({"spoolBytes": "many"}, "bytes, such as"),
        ({"spool": "hdfs://host/spool"}, "option spool: a folder on a disk, such as"),
        ({"spool": "s3a://bucket/spool"}, "option spool: a folder on a disk, such as"),
        ({"spool": ""}, "option spool: a folder on a disk, such as"),
        ({"linger": "0"}, "seconds, more than 0"),
        ({"linger": "nan"}, "seconds, more than 0"),
        ({"shared": "false", "connections": "2"}, "shared=true"),
        ({"shared": "false", "group": "g"}, "leave out either"),
        ({"ca": "file"}, "mqtts://"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=re.escape(said)):
        ReadOptions.of({**LEAST, **given})


def test_a_missing_option_is_named() -> None:
    for name in LEAST:
        with pytest.raises(BadOption, match=f"the option {name} is missing"):
            ReadOptions.of({each: value for each, value in LEAST.items() if each != name})


def test_a_password_is_not_in_errors_or_descriptions() -> None:
    options = ReadOptions.of({**LEAST, "broker": "mqtt://me:secret%40@localhost", "password": "secret"})
    assert "secret" not in repr(options)
    assert ReadOptions.of({**LEAST, "broker": "mqtt://me:secret%40@localhost"}).credentials == ("me", "secret@")
    assert options.credentials == ("me", "secret")


@pytest.mark.parametrize("spool", ["/tmp/spool", "file:/tmp/spool", "file:///tmp/spool"])
def test_a_folder_is_written_as_spark_writes_it(spool: str) -> None:
    assert ReadOptions.of({**LEAST, "spool": spool}).folder == Path("/tmp/spool")


def test_topics_are_a_list_or_json() -> None:
    assert ReadOptions.of({**LEAST, "topics": "a/+, b/#,a/+"}).topics == ("a/+", "b/#")
    assert ReadOptions.of({**LEAST, "topics": '["a,b", "c"]'}).topics == ("a,b", "c")


def test_filters_are_shared_by_a_group_of_ones_own_unless_told() -> None:
    options = ReadOptions.of(LEAST)
    assert options.filters == (f"$share/{options.member_id}/a/#",)
    assert ReadOptions.of({**LEAST, "group": "g"}).filters == ("$share/g/a/#",)
    assert ReadOptions.of({**LEAST, "shared": "false"}).filters == ("a/#",)
    other = ReadOptions.of({**LEAST, "spool": "/tmp/other"})
    assert options.member_id == ReadOptions.of(LEAST).member_id != other.member_id


def test_spoolers_differ_by_what_concerns_them() -> None:
    options = ReadOptions.of(LEAST)
    assert options.digest() == ReadOptions.of({**LEAST, "maxRowsPerTrigger": "5"}).digest()
    assert options.digest() != ReadOptions.of({**LEAST, "topics": "b"}).digest()


def test_a_writer_takes_what_spark_adds_and_nothing_else() -> None:
    given = {"broker": "mqtt://localhost", "checkpointlocation": "/tmp/c", "queryname": "q"}
    assert WriteOptions.of(given, OF_SPARK).qos == 1
    with pytest.raises(BadOption, match="did you mean 'inflight'"):
        WriteOptions.of({**given, "inflght": "1"}, OF_SPARK)
    with pytest.raises(BadOption, match="without wildcards"):
        WriteOptions.of({**given, "topic": "a/#"}, OF_SPARK)
    with pytest.raises(BadOption, match="option run"):
        WriteOptions.of({**given, "run": "../x"}, OF_SPARK)
