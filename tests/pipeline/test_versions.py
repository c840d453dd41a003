"""Which versions of Spark are taken, and that others are told why not."""

from __future__ import annotations

import pyspark
import pytest

from headwater.pipeline.session import NoSpark, make_session
from headwater.pipeline.versions import OldSpark, check_version


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0", "4.10.0.dev1", "5.0.0"])
def test_versions_that_are_taken(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["4.1.4", "4.0.0", "3.5.9"])
def test_versions_that_are_not(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OldSpark, match=r"would be skipped.*4\.2"):
        check_version(version)
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(NoSpark, match=f"PySpark {version}"):
        make_session()
