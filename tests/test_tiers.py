"""The fast tier: what it leaves out exists, and what it must not start is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiers import NOT_FAST, is_left_out, refuse

ROOT = Path(__file__).parent.parent


def test_what_is_left_out_exists() -> None:
    assert [each for each in NOT_FAST if not (ROOT / each).exists()] == []


def test_paths_are_left_out_as_they_stand_in_the_list() -> None:
    assert is_left_out(ROOT / "tests/chaos", ROOT)
    assert not is_left_out(ROOT / "tests/wire", ROOT)
    assert not is_left_out(Path("/elsewhere/tests/chaos"), ROOT)


def test_java_and_other_brokers_are_refused() -> None:
    for program in ("/usr/bin/java", b"/usr/sbin/mosquitto"):
        with pytest.raises(pytest.fail.Exception, match="not for the fast tier"):
            refuse("subprocess.Popen", (program, ["-x"], None, None))
    refuse("subprocess.Popen", ("/usr/bin/python3", [], None, None))
    refuse("open", ("/usr/bin/java", "r", 0))
