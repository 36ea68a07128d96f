"""Pages on which one sees how an answer was found: what stands in the file."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from ga_dspy import viewer

HERE = Path(viewer.__file__).parent
CYTOSCAPE = "081591ab735b2b6a3b31a3c60f8f3a3e2fee8c92939e0c7820ad1208571b6cd8"


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="ga-data">(.*?)</script>', page, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_bundled_library_is_the_one_that_its_makers_published() -> None:
    """Version 3.34.4 from npm, `package/dist/cytoscape.min.js`."""
    assert hashlib.sha256((HERE / "cytoscape.min.js").read_bytes()).hexdigest() == CYTOSCAPE
    assert "The Cytoscape Consortium" in (HERE / "cytoscape.LICENSE").read_text("utf-8")


def test_markup_in_a_text_ends_no_script_and_changes_nothing_else() -> None:
    hostile = '</script><!--<script>alert(1)</script> & "\\u003c"'
    page = viewer.page(hostile, {"answer": hostile})
    assert data_of(page) == {"question": hostile, "prediction": {"answer": hostile}}
    assert page.count("alert(1)") == 2 + 1 and "<script>alert(1)" not in page


def test_a_page_may_load_nothing_and_runs_its_own_scripts_alone() -> None:
    page = viewer.page("Who?", {"answer": "she"})
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1] and policy[1].count("sha256-") == 3
    assert not re.search(r"<(link|img|iframe|script)[^>]* (src|href)=", page)
