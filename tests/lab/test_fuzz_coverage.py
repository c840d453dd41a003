"""The fuzzer that is guided by coverage. (Compiled code has no lines, so these are not in tests/fuzz.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater_lab import fuzz_coverage
from headwater_lab.fuzz_coverage import Fuzzer, read, run, write
from headwater_lab.fuzz_script import Script, Step, play


def test_what_reaches_more_is_kept() -> None:
    connect = Script(0, [Step(0, 0, 0, bytes.fromhex("100d00044d5154540502003c000000"))]).to_bytes()
    play(connect)  # what is only done once
    fuzzer = Fuzzer(1)
    assert fuzzer.take(Script(0, []).to_bytes())
    assert fuzzer.take(connect)
    assert not fuzzer.take(connect)
    assert [data for data, _ in fuzzer.scripts][-1] == connect
    assert fuzzer.smallest()[-1] == connect


def test_a_short_campaign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "corpus.txt"
    assert run(0.02, 3, corpus, True) == 0
    assert "seed 3:" in capsys.readouterr().out
    assert 5 < len(read(corpus)) <= 300


def test_a_failure_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(data: bytes) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(fuzz_coverage, "play", broken)
    monkeypatch.chdir(tmp_path)
    corpus = tmp_path / "corpus.txt"
    write(corpus, [b"\x01\x02"])
    with pytest.raises(ZeroDivisionError):
        run(0.01, 3, corpus, False)
    assert "FAILED with seed 3" in capsys.readouterr().err
    assert [read(file) for file in tmp_path.glob("fuzz-failure-*.txt")] == [[b"\x01\x02"]]
