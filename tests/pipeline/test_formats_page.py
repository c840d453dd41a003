"""docs/pipeline-source.md has every option of the formats, in the words of the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.pipeline.lake.asked import OPTIONS as OF_THE_READER
from headwater.pipeline.lake.sink import OPTIONS as OF_THE_SINK
from headwater.pipeline.source.settings import OPTIONS as OF_THE_SOURCE

PAGE = (Path(__file__).parent.parent.parent / "docs" / "pipeline-source.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "what"), [*OF_THE_SOURCE.items(), *OF_THE_SINK.items(), *OF_THE_READER.items()])
def test_every_option_is_on_the_page(name: str, what: str) -> None:
    assert f"| `{name}` | {what} |" in PAGE
