"""The report on another broker, from pytest's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater_lab import strange

OUTPUT = """\
..... [100%]
========================= left out: known deviations =========================
test_dup[v311]: mosquitto 2.0: takes DUP with QoS 0
test_dup[v5]: mosquitto 2.0: takes DUP with QoS 0
test_other: mosquitto 2.0: answers it
5 passed, 3 deselected in 1.50s
"""
FACTS = {"date": "today", "mosquitto": "2.0", "commit": "abc", "cpu": "not told"}


def test_the_report_counts_and_lists_deviations_once() -> None:
    page = strange.markdown(OUTPUT, FACTS)
    assert "- outcome: 5 passed, 3 deselected\n" in page
    assert page.endswith("| answers it | `test_other` |\n| takes DUP with QoS 0 | `test_dup` |\n")
    assert "not told" not in page


def test_only_a_whole_run_that_passed_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    project = ["--project", str(tmp_path)]
    for status, arguments, reported in (
        (1, [], False),
        (0, ["tests/broker/test_09_keep_alive.py"], False),
        (0, [], True),
    ):
        monkeypatch.setattr(strange, "run", lambda project, tests, is_proxied, status=status: (status, OUTPUT))
        assert strange.main(project + arguments) == status
        assert bool(list(tmp_path.glob("docs/results/mosquitto-scenarios-*.md"))) == reported


def test_a_run_through_a_proxy_has_a_report_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[bool] = []

    def run(project: Path, tests: object, is_proxied: bool) -> tuple[int, str]:
        asked.append(is_proxied)
        return 0, OUTPUT

    monkeypatch.setattr(strange, "run", run)
    assert strange.main(["--project", str(tmp_path), "--proxy"]) == 0
    assert asked == [True]
    [file] = tmp_path.glob("docs/results/*")
    assert file.name.startswith("mosquitto-proxy-scenarios-")
    assert file.read_text().startswith("# Our scenarios against Mosquitto behind a proxy\n")
