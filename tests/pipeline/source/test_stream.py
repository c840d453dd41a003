"""The stream reader, called as Spark calls it."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from headwater.pipeline.options import OptionError
from headwater.pipeline.source.datasource import StreamReader
from headwater.pipeline.source.reading import SCHEMA
from headwater.pipeline.source.shape import Shape
from headwater.pipeline.source.stores import DataLoss
from headwater.store.reader import Gone, Refused, StoreReader, Unreachable
from tests.pipeline.source.some_stores import EXPIRED, WatchedStore, fill, names, rows, settings, span, stream
from tests.store.rest.served import EVERYTHING, Served, serving

ALL = ReadAllAvailable()


def read(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int]]:
    return names(rows(reader, list(reader.partitions(start, end))))


def batches(reader: StreamReader, start: dict[str, Any]) -> list[dict[str, Any]]:
    """Offsets from `start` to where nothing is left."""
    found = [start]
    while (end := reader.latestOffset(found[-1], reader.getDefaultReadLimit())) != found[-1]:
        found.append(end)
        assert len(found) < 1000, "it does not come to an end"
    return found


# ---- where it begins -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "begin"),
    [
        (None, {"s1": 0, "s2": 0}),
        ("earliest", {"s1": 0, "s2": 0}),
        ("latest", {"s1": 10, "s2": 5}),
        ("2025-10-09T08:53:25Z", {"s1": 4, "s2": 4}),
        ("2025-10-09T08:53:25.000001", {"s1": 5, "s2": 5}),
        ("2025-10-09T10:53:28+02:00", {"s1": 7, "s2": 5}),
        ("2000-01-01", {"s1": 0, "s2": 0}),
        ('{"s1": 3, "s2": 5}', {"s1": 3, "s2": 5}),
        ('{"s2": 2}', {"s1": 0, "s2": 2}),
    ],
)
def test_where_it_begins(one: Served, two: Served, said: str | None, begin: dict[str, int]) -> None:
    fill(one, 10)
    fill(two, 5)
    options = {} if said is None else {"startingOffsets": said}
    assert stream(one, two, **options).initialOffset() == begin


def test_a_store_that_is_named_and_away_keeps_its_beginning(one: Served, caplog: pytest.LogCaptureFixture) -> None:
    reader = stream(one, startingOffsets='{"s9": 7, "s1": 0}', unknownStores="keep")
    assert reader.initialOffset() == {"s1": 0, "s9": 7}
    assert "s9" in caplog.text and "none of the addresses" in caplog.text
    fill(one, 2)
    assert reader.latestOffset({"s1": 0, "s9": 7}, ALL) == {"s1": 2, "s9": 7}


def test_stores_that_are_not_meant_have_no_beginning(one: Served, two: Served) -> None:
    assert stream(one, two, store="s2").initialOffset() == {"s2": 0}
    assert stream(one, two, store="s2", startingOffsets='{"s1": 0, "s2": 0}').initialOffset() == {"s2": 0}


def test_a_store_that_is_named_and_nowhere_is_an_error(one: Served, mortal: Served) -> None:
    """What its name was to leave out would be read."""
    fill(one, 5)
    with pytest.raises(OptionError, match=r"startingOffsets names the store s9, .* there are s1, s3"):
        stream(one, mortal, startingOffsets='{"s9": 5}').initialOffset()
    reader = stream(one, mortal, startingOffsets='{"s9": 5}')
    mortal.stop()  # it may be that one
    assert reader.initialOffset() == {"s1": 0, "s9": 5}


def test_one_store_has_to_answer_at_first_and_the_others_come_later(
    one: Served, mortal: Served, caplog: pytest.LogCaptureFixture
) -> None:
    reader, alone, url = stream(one, mortal), stream(mortal), mortal.url
    fill(one, 5)
    mortal.stop()
    assert reader.initialOffset() == {"s1": 0}
    assert url in caplog.text
    assert reader.latestOffset({"s1": 0}, ALL) == {"s1": 5}
    with pytest.raises(Unreachable, match=url):
        alone.initialOffset()


# ---- batches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 3, 7, 1000])
def test_the_same_offsets_are_the_same_rows_however_they_are_cut(one: Served, two: Served, pieces: int) -> None:
    fill(one, 20)
    fill(two, 10)
    start, end = {"s1": 2, "s2": 0}, {"s1": 17, "s2": 9}
    cut = stream(one, two, rowsPerPartition=pieces)
    partitions = list(cut.partitions(start, end))
    assert len(partitions) == -(-15 // pieces) + -(-9 // pieces)
    found = rows(cut, partitions)
    assert names(found) == span("s1", 3, 17) + span("s2", 1, 9)
    fill(one, 5)
    again = stream(one, two)
    assert rows(again, list(again.partitions(start, end))) == found


def test_every_column_is_as_the_store_has_it(one: Served) -> None:
    one.writer.take("a/ü", b"\x00\xff", qos=2, retain=True, publisher="me", properties=b'{"user": []}')
    one.writer.take("b", b"")
    one.writer.sync()
    reader = stream(one)
    first, second = rows(reader, list(reader.partitions({"s1": 0}, {"s1": 2})))
    [expected, _] = StoreReader(one.url, token=EVERYTHING).messages()
    assert first["payload"] == b"\x00\xff" and first["store"] == "s1" and first["value"] is None
    for name in ("position", "topic", "qos", "retain", "publisher"):
        assert first[name] == expected[name], name
    assert json.loads(first["properties"]) == expected["properties"]
    assert first["arrival"].isoformat().startswith(expected["arrival"][:19])
    assert second["payload"] == b"" and second["properties"] is None


@pytest.mark.parametrize(
    ("options", "limit", "sizes"),
    [
        ({}, ReadAllAvailable(), [30]),
        ({"maxRowsPerTrigger": 9}, ReadMaxRows(9), [9, 9, 9, 3]),
        ({"maxOffsetsPerTrigger": 20}, ReadMaxRows(20), [20, 10]),
        ({"maxBytesPerTrigger": 2000}, ReadMaxBytes(2000), [19, 11]),
        ({"maxBytesPerTrigger": 2000, "maxRowsPerTrigger": 17}, ReadMaxRows(17), [17, 13]),
        ({"maxBytesPerTrigger": 2000, "maxRowsPerTrigger": 25}, ReadMaxRows(25), [19, 11]),
        ({"maxBytesPerTrigger": 1, "maxRowsPerTrigger": 17}, ReadMaxRows(17), [1] * 30),
    ],
)
def test_batches_are_as_small_as_one_wants(
    one: Served, two: Served, options: dict[str, int], limit: object, sizes: list[int]
) -> None:
    fill(one, 20)
    fill(two, 10)
    reader = stream(one, two, **options)
    assert reader.getDefaultReadLimit() == limit
    found = batches(reader, reader.initialOffset())
    counts = [sum(end.values()) - sum(start.values()) for start, end in pairwise(found)]
    assert counts == sizes
    together = [row for start, end in pairwise(found) for row in read(reader, start, end)]
    assert sorted(together) == span("s1", 1, 20) + span("s2", 1, 10)


def test_it_says_how_far_stores_are(one: Served, two: Served) -> None:
    fill(one, 20)
    reader = stream(one, two, maxRowsPerTrigger=5)
    assert reader.reportLatestOffset() is None
    assert reader.latestOffset({"s1": 0, "s9": 4}, ReadMaxRows(5)) == {"s1": 5, "s2": 0, "s9": 4}
    assert reader.reportLatestOffset() == {"s1": 20, "s2": 0, "s9": 4}


def test_only_what_the_options_leave_is_read(one: Served) -> None:
    fill(one, 30)
    reader = stream(one, topic="a/1", **{"from": "2025-10-09T08:52:30Z", "to": "2025-10-09T08:52:40"})
    assert read(reader, {"s1": 0}, {"s1": 30}) == [("s1", 10), ("s1", 13), ("s1", 16), ("s1", 19)]


# ---- all that is available now -------------------------------------------------------------------------------------


def test_available_now_ends_although_messages_keep_coming(one: Served, two: Served) -> None:
    fill(one, 10)
    reader = stream(one, two, maxRowsPerTrigger=4)
    reader.prepareForTriggerAvailableNow()
    found = [reader.initialOffset()]
    for _ in range(10):
        fill(one, 7)
        fill(two, 1)
        found.append(reader.latestOffset(found[-1], ReadMaxRows(4)))
        if found[-1] == found[-2]:
            break
    assert [end["s1"] for end in found] == [0, 4, 8, 10, 10]
    assert all(end["s2"] == 0 for end in found)


def test_available_now_reads_a_store_that_is_new_since_the_checkpoint(one: Served, two: Served) -> None:
    fill(one, 3)
    fill(two, 3)
    reader = stream(one, two)
    reader.prepareForTriggerAvailableNow()
    assert batches(reader, {"s1": 1}) == [{"s1": 1}, {"s1": 3, "s2": 0}, {"s1": 3, "s2": 3}]


def test_available_now_does_not_end_without_a_store_that_has_gone_meanwhile(one: Served, mortal: Served) -> None:
    fill(one, 3)
    fill(mortal, 3)
    reader, url = stream(one, mortal), mortal.url
    reader.prepareForTriggerAvailableNow()
    mortal.stop()
    with pytest.raises(Unreachable, match=url):
        reader.latestOffset({"s1": 3, "s3": 1}, ALL)
    assert reader.latestOffset({"s1": 1, "s3": 3}, ALL) == {"s1": 3, "s3": 3}  # of it, all was read


# ---- commits and retention -----------------------------------------------------------------------------------------


def test_retention_waits_for_what_is_committed(one: Served) -> None:
    fill(one, 10)
    reader = stream(one, reader="lake")
    begin = reader.initialOffset()
    assert one.store.trim(EXPIRED).first == 1  # from the beginning on it waits
    end = reader.latestOffset(begin, ALL)
    assert one.store.trim(EXPIRED).first == 1
    assert read(reader, begin, end) == span("s1", 1, 10)
    reader.commit({"s1": 6})
    assert one.store.reader("lake").position == 6
    assert one.store.trim(EXPIRED).first == 7
    reader.commit({"s1": 10})
    assert one.store.trim(EXPIRED).first == 11


def test_what_spark_goes_on_behind_is_committed_and_the_reader_never_goes_back(one: Served) -> None:
    """Spark tells of a batch when it plans the next one; the last would never be told of."""
    fill(one, 10)
    reader = stream(one, reader="lake")
    assert reader.initialOffset() == {"s1": 0}
    assert reader.latestOffset({"s1": 10}, ALL) == {"s1": 10}
    assert one.store.reader("lake").position == 10
    reader.commit({"s1": 6})
    assert one.store.reader("lake").position == 10


def test_without_a_name_nothing_is_told(one: Served) -> None:
    fill(one, 10)
    reader = stream(one)
    reader.initialOffset()
    reader.commit({"s1": 10})
    assert one.get("/v1/readers")["readers"] == []


def test_a_store_that_cannot_be_told_does_not_stop_the_others(
    one: Served, mortal: Served, caplog: pytest.LogCaptureFixture
) -> None:
    fill(one, 3)
    fill(mortal, 3)
    reader = stream(mortal, one, reader="lake")
    reader.initialOffset()
    mortal.stop()
    reader.commit({"s1": 3, "s3": 3})
    assert one.store.reader("lake").position == 3
    assert "s3 could not be told" in caplog.text
    reader.latestOffset({"s1": 3, "s3": 3}, ALL)
    caplog.clear()
    reader.commit({"s1": 3, "s3": 3})  # known not to answer: not even asked
    assert caplog.text == ""


@pytest.mark.parametrize("start", [0, 3])
def test_lost_data_is_an_error_that_says_what_to_do(one: Served, start: int) -> None:
    fill(one, 10)
    one.store.trim(EXPIRED)
    fill(one, 5)
    with pytest.raises(DataLoss, match=rf"s1 has lost the positions {start + 1} to 10 .*`reader`.*failOnDataLoss"):
        stream(one).latestOffset({"s1": start}, ALL)
    stream(one).latestOffset({"s1": 10}, ALL)


def test_data_lost_after_the_batch_was_planned_is_an_error(one: Served) -> None:
    fill(one, 10)
    reader = stream(one)
    partitions = list(reader.partitions({"s1": 0}, {"s1": 10}))
    one.store.trim(EXPIRED)
    with pytest.raises(Gone):
        rows(reader, partitions)


def test_lost_data_is_left_out_and_told_if_one_wants(one: Served, caplog: pytest.LogCaptureFixture) -> None:
    fill(one, 10)
    one.store.trim(EXPIRED)
    fill(one, 5)
    reader = stream(one, failOnDataLoss="false", maxRowsPerTrigger=3, rowsPerPartition=4)
    found = batches(reader, {"s1": 2})
    assert found == [{"s1": 2}, {"s1": 13}, {"s1": 15}]
    assert "positions 3 to 10" in caplog.text
    caplog.clear()
    assert read(reader, found[0], found[1]) == span("s1", 11, 13)
    assert "failOnDataLoss is false" in caplog.text
    assert read(reader, found[1], found[2]) == span("s1", 14, 15)


# ---- stores that come, go and change -------------------------------------------------------------------------------


def test_a_store_that_goes_is_told_once_and_the_others_go_on(
    one: Served, mortal: Served, caplog: pytest.LogCaptureFixture
) -> None:
    fill(mortal, 3)
    reader, url = stream(mortal, one), mortal.url
    start = reader.initialOffset()
    mortal.stop()
    fill(one, 4)
    for _ in range(2):
        end = reader.latestOffset(start, ALL)
    assert end == {"s1": 4, "s3": 0}
    assert read(reader, start, end) == span("s1", 1, 4)
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 1 and url in told[0].getMessage() and "does not answer" in told[0].getMessage()


def test_a_store_comes_back_at_another_address(one: Served, mortal: Served, tmp_path: Path) -> None:
    file = tmp_path / "urls"
    file.write_text(f"# nodes\n{mortal.url}\n\n{one.url}\n")
    reader = stream(urlsFile=file)
    fill(mortal, 3)
    start = reader.initialOffset()
    mortal.stop()
    assert reader.latestOffset(start, ALL) == start
    with serving(mortal.store) as moved:
        fill(moved, 2)
        file.write_text(f"{moved.url}\n  {one.url}  \n")
        end = reader.latestOffset(start, ALL)
        assert end == {"s1": 0, "s3": 5}
        assert read(reader, start, end) == span("s3", 1, 5)
        assert reader.stores.silent == []
        reader.prepareForTriggerAvailableNow()  # the old address is not waited for


def test_a_new_store_begins_with_its_first_message_even_if_the_others_began_late(
    one: Served, two: Served, tmp_path: Path
) -> None:
    file = tmp_path / "urls"
    file.write_text(one.url)
    fill(one, 3)
    fill(two, 5)
    reader = stream(urlsFile=file, startingOffsets="latest", maxRowsPerTrigger=100)
    start = reader.initialOffset()
    file.write_text(f"{one.url}\n{two.url}\n")
    begun = reader.latestOffset(start, ReadMaxRows(100))
    assert (start, begun) == ({"s1": 3}, {"s1": 3, "s2": 0})
    assert read(reader, start, begun) == []
    assert read(reader, begun, reader.latestOffset(begun, ALL)) == span("s2", 1, 5)


def test_a_file_of_addresses_that_is_away_for_a_moment_changes_nothing(
    one: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "urls"
    file.write_text(f"{one.url}\n")
    reader = stream(urlsFile=file)
    start = reader.initialOffset()
    fill(one, 2)
    file.unlink()
    assert reader.latestOffset(start, ALL) == {"s1": 2}
    assert "cannot be read" in caplog.text


def test_a_line_that_is_no_address_is_told_and_the_others_go_on(
    one: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "urls"
    file.write_text(f"{one.url}\nftp://elsewhere\n")
    fill(one, 2)
    assert stream(urlsFile=file).latestOffset({"s1": 0}, ALL) == {"s1": 2}
    assert "is no address" in caplog.text


def test_another_store_at_the_address_has_offsets_of_its_own(one: Served) -> None:
    fill(one, 5)
    reader = stream(one, reader="lake")
    start = reader.initialOffset()
    planned = list(reader.partitions(start, {"s1": 5}))
    one.use(WatchedStore("other"))
    fill(one, 2)
    end = reader.latestOffset(start, ALL)
    assert end == {"other": 0, "s1": 0}
    assert read(reader, end, reader.latestOffset(end, ALL)) == span("other", 1, 2)
    with pytest.raises(Refused, match="another store"):  # never the other's rows under the first one's name
        rows(reader, planned)
    reader.commit({"other": 2, "s1": 0})
    assert one.store.reader("lake").position == 2


def test_a_planned_batch_whose_store_is_nowhere_is_an_error(one: Served) -> None:
    with pytest.raises(DataLoss, match=rf"the store s9.*none of the addresses.*{one.url}"):
        stream(one).partitions({"s9": 0}, {"s9": 5})


def test_a_planned_batch_waits_for_its_own_store_only(one: Served, mortal: Served) -> None:
    fill(one, 5)
    reader = stream(mortal, one)
    mortal.stop()
    assert read(reader, {"s1": 0, "s3": 0}, {"s1": 5, "s3": 0}) == span("s1", 1, 5)


def test_a_store_that_went_back_in_time_is_an_error(one: Served) -> None:
    fill(one, 3)
    with pytest.raises(DataLoss, match=r"s1 .*ends at position 3, and 4 was read before.*back in time.*checkpoint"):
        stream(one).latestOffset({"s1": 4}, ALL)
    assert stream(one).latestOffset({"s1": 3}, ALL) == {"s1": 3}


def test_who_may_not_ask_is_told(one: Served) -> None:
    one.add("little", "a/#")
    for token, status in (("nobody", 401), ("little", 403)):
        with pytest.raises(Refused) as refused:
            stream(one, token=token).initialOffset()
        assert refused.value.status == status
        with pytest.raises(Refused):
            stream(one, token=token).latestOffset({"s1": 0}, ALL)


@pytest.mark.parametrize("answer", [b"{}", b"[]", b"<html>"])
def test_something_else_at_the_address_is_no_store(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(Unreachable, match="something else"):
        StreamReader(settings(url=url), Shape(SCHEMA)).initialOffset()


@contextlib.contextmanager
def answering(said: bytes) -> Iterator[str]:
    """Somebody who says the same to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
