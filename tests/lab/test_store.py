"""The benchmark of the store: a small run with a real node, and runs in which something is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.store.intake import Taken
from headwater_lab import store
from headwater_lab.store import Sizes
from headwater_lab.store_contenders import OurStore

SMALL = Sizes(12_000, 10_000, 3_000, 500, 10, 2)
NAMES = [
    *("intake_qos0/msgs_per_s", "intake_qos1/msgs_per_s", "read_arrow/rows_per_s", "query/p99_ms"),
    *("sqlite/intake_qos0/msgs_per_s", "sqlite/intake_qos1/msgs_per_s", "sqlite/read_arrow/rows_per_s"),
    *("sqlite/query/p99_ms", "file/read_arrow/rows_per_s", "inside/query/p99_ms", "disk/bytes_per_payload_byte"),
]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "QUICK", SMALL)
    monkeypatch.setattr(store, "FULL", SMALL)


def test_a_quick_run_measures_everything_and_leaves_the_documentation_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    arguments = ["--quick", "--json", str(file), "--folder", str(tmp_path), "--docs", str(tmp_path / "docs")]
    assert store.main(arguments) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]
    found = {each["name"]: each["ours"] for each in json.loads(file.read_text())}
    assert all(found[name] > 0 for name in NAMES)
    assert found["query/messages"] == found["read_arrow/rows"] == SMALL.stored
    assert found["intake_qos0/messages"] == SMALL.qos0
    assert found["query/rows"] == found["sqlite/query/rows"] > 0
    assert "Goals that were missed: " in capsys.readouterr().out


@pytest.fixture
def without_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def intake(self: store.Campaign, name: str, qos: int, window: int) -> None:
        self.groups[name] = 5_000

    monkeypatch.setattr(store.Campaign, "_intake", intake)
    monkeypatch.setattr(store.Campaign, "_outside", lambda self: None)


@pytest.mark.usefixtures("without_a_node")
def test_a_full_run_writes_the_documentation(tmp_path: Path) -> None:
    (tmp_path / "performance.md").write_text("# Speed\n\nBy hand.\n")
    assert store.main(["--docs", str(tmp_path), "--folder", str(tmp_path)]) == 0
    page = (tmp_path / "performance.md").read_text()
    assert page.startswith("# Speed\n\nBy hand.\n")
    assert "<!-- bench store: begin" in page and "| SQLite in process |" in page
    (file,) = (tmp_path / "results").glob("store-????-??-??.json")
    assert any(each["name"] == "sqlite/query/p99_ms" for each in json.loads(file.read_text()))


@pytest.mark.usefixtures("without_a_node")
def test_what_is_not_as_it_was_sent_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = OurStore.write

    def forgetful(self: OurStore, taken: Taken) -> None:
        taken.payloads[0] = taken.payloads[0].replace(b"ok", b"no")
        write(self, taken)

    monkeypatch.setattr(OurStore, "write", forgetful)
    assert store.main(["--quick", "--folder", str(tmp_path)]) == 1
    assert "NOT WHAT WAS SENT: inside/read_arrow: messages of" in capsys.readouterr().err
