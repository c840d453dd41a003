"""docs/tables.md says what the tables are."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_current() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "tables_page.py"))["page"]()
    assert (ROOT / "docs" / "tables.md").read_text(encoding="utf-8") == page, "run scripts/tables_page.py"
