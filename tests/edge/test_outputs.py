"""Files that a crash at any moment leaves right: each message once, in order."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.edge import outputs
from headwater.edge.copies import Copy
from headwater.edge.outputs import FileOutput, FolderOutput, FunctionOutput, Output
from headwater.edge.rendering import COLUMNS
from headwater.edge.state import OutputError, State

FILTERS = ("t/#",)


def copies(first: int, count: int) -> list[Copy]:
    return [Copy(first + each, "t/a", f"reading {first + each}\n".encode()) for each in range(count)]


def state(position: int) -> State:
    return State("s1", FILTERS, position, live=position)


def positions(path: Path) -> list[int]:
    return [json.loads(line)["position"] for line in path.read_text().splitlines()]


def file_output(folder: Path) -> Output:
    return FileOutput(folder / "out.ndjson")


def folder_output(folder: Path) -> Output:
    return FolderOutput(folder / "out", most=200)


def in_file(folder: Path) -> list[int]:
    return positions(folder / "out.ndjson")


def in_folder(folder: Path) -> list[int]:
    return [each for path in sorted((folder / "out").glob("*.ndjson")) for each in positions(path)]


both = pytest.mark.parametrize(("make", "read"), [(file_output, in_file), (folder_output, in_folder)])


@both
def test_it_goes_on_where_the_last_one_committed(
    make: Callable[[Path], Output], read: Callable[[Path], list[int]], tmp_path: Path
) -> None:
    first = make(tmp_path)
    assert first.resume() is None
    first.write(copies(1, 5))
    first.commit(state(5))
    first.write(copies(6, 9))  # never committed
    first.close()
    assert read(tmp_path) == list(range(1, 15))
    second = make(tmp_path)
    assert second.resume() == state(5)
    assert read(tmp_path) == [1, 2, 3, 4, 5]
    second.write(copies(6, 2))
    second.commit(state(7))
    second.close()
    assert read(tmp_path) == [1, 2, 3, 4, 5, 6, 7]


@both
def test_what_was_never_committed_does_not_count(
    make: Callable[[Path], Output], read: Callable[[Path], list[int]], tmp_path: Path
) -> None:
    first = make(tmp_path)
    first.resume()
    first.write(copies(1, 5))
    first.close()
    second = make(tmp_path)
    assert second.resume() is None
    second.write(copies(1, 3))
    second.commit(state(3))
    second.close()
    assert read(tmp_path) == [1, 2, 3]


@both
def test_one_mirror_at_a_time(
    make: Callable[[Path], Output], read: Callable[[Path], list[int]], tmp_path: Path
) -> None:
    first = make(tmp_path)
    first.resume()
    second = make(tmp_path)
    with pytest.raises(OutputError, match="another mirror that runs"):
        second.resume()
    second.close()
    first.close()


@both
def test_a_state_without_its_file_is_said(
    make: Callable[[Path], Output], read: Callable[[Path], list[int]], tmp_path: Path
) -> None:
    first = make(tmp_path)
    first.resume()
    first.write(copies(1, 5))
    first.commit(state(5))
    first.close()
    [file] = list(tmp_path.rglob("*.ndjson"))
    os.truncate(file, 10)
    second = make(tmp_path)
    with pytest.raises(OutputError, match="has 10 bytes, not"):
        second.resume()
    second.close()


class Killed(Exception):
    pass


@settings(max_examples=60, deadline=None)
@given(kill_at=st.integers(0, 40), groups=st.lists(st.integers(1, 6), min_size=1, max_size=5), folder=st.booleans())
def test_killed_between_any_two_system_calls(
    kill_at: int, groups: list[int], folder: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All calls that change files are counted; at one of them the process dies. Then it goes on to the end."""
    path = tmp_path_factory.mktemp("killed")
    total = sum(groups)
    try:
        with pytest.MonkeyPatch.context() as patch:
            calls = [0]
            for name in ("fsync", "replace", "open"):
                patch.setattr(os, name, _counting(getattr(os, name), calls, kill_at))
            _write_from(folder_output(path) if folder else file_output(path), groups)
    except Killed:
        pass
    _write_from(folder_output(path) if folder else file_output(path), groups)
    assert (in_folder if folder else in_file)(path) == list(range(1, total + 1))
    shutil.rmtree(path)


def _counting(real: Callable[..., object], calls: list[int], kill_at: int) -> Callable[..., object]:
    def counted(*args: object, **named: object) -> object:
        calls[0] += 1
        if calls[0] == kill_at:
            raise Killed
        return real(*args, **named)

    return counted


def _write_from(output: Output, groups: list[int]) -> None:
    try:
        kept = output.resume()
        done = 0 if kept is None else kept.position
        end = 0
        for group in groups:
            end += group
            if end > done:
                output.write(copies(done + 1, end - done))
                done = end
                output.commit(state(done))
    finally:
        output.close()


def test_a_file_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "out.ndjson"
    file.write_text("mine\n")
    with pytest.raises(OutputError, match="no mirror wrote it"):
        FileOutput(file).resume()
    assert file.read_text() == "mine\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.ndjson"]
    with pytest.raises(OutputError, match="no mirror wrote it"):
        FolderOutput(tmp_path).resume()
    assert [path.name for path in tmp_path.iterdir()] == ["out.ndjson"]


def test_a_state_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "out.ndjson.state").write_text("{}")
    output = FileOutput(tmp_path / "out.ndjson")
    with pytest.raises(OutputError, match="no state of a mirror"):
        output.resume()
    output.close()


def test_a_state_of_a_later_version_is_said(tmp_path: Path) -> None:
    (tmp_path / "out.ndjson.state").write_text('{"version": 99}')
    output = FileOutput(tmp_path / "out.ndjson")
    with pytest.raises(OutputError, match="another version"):
        output.resume()
    output.close()


def test_a_folder_has_files_of_bounded_size(tmp_path: Path) -> None:
    output = folder_output(tmp_path)
    output.resume()
    for first in range(1, 41, 4):
        output.write(copies(first, 4))
        output.commit(state(first + 3))
    output.close()
    files = sorted((tmp_path / "out").glob("*.ndjson"))
    assert len(files) > 3
    assert files[0].name == "00000000000000000001.ndjson"
    assert all(path.stat().st_size < 500 for path in files)
    assert in_folder(tmp_path) == list(range(1, 41))


def test_csv_has_one_head_however_often_it_is_resumed(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    for first in (1, 3):
        output = FileOutput(file, "csv")
        output.resume()
        output.write([Copy(first, "t/a", b'a "quoted", text\nof two lines'), Copy(first + 1, "t/\u00fc", b"\xff\x00")])
        output.commit(state(first + 1))
        output.close()
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.reader(lines))
    assert rows[0] == list(COLUMNS)
    assert rows[1:3] == [["1", "t/a", 'a "quoted", text\nof two lines', "", ""], ["2", "t/\u00fc", "", "/wA=", ""]]
    assert [row[0] for row in rows[1:]] == ["1", "2", "3", "4"]


def test_a_function_is_called_and_its_state_kept() -> None:
    got: list[Copy] = []
    output = FunctionOutput(got.extend)
    assert output.resume() is None
    output.write(copies(1, 2))
    output.commit(state(2))
    output.close()
    assert got == copies(1, 2)
    assert FunctionOutput(got.extend, output.state).resume() == state(2)


def test_formats_are_those_that_are_named() -> None:
    assert set(outputs.FORMATS) == {"ndjson", "csv"}
