"""Pages that show how answers were found: one HTML file each, which loads nothing else."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

_HERE = Path(__file__).parent

# Cytoscape adds a style of its own unless it finds an element with this id; the policy would
# refuse it.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style id="__________cytoscape_stylesheet">{css}</style>
</head>
<body>
<main id="ga"><noscript>This page draws with JavaScript, which is switched off.</noscript></main>
<script type="application/json" id="ga-data">{data}</script>
{scripts}
</body>
</html>
"""


class Assets(NamedTuple):
    """What a page of one's own needs, as text.

    Attributes:
        css: The style, light and dark.
        js: `GaView`, which draws; its first lines say how it is called.
        cytoscape: The library that draws graphs; it comes before `js`.
    """

    css: str
    js: str
    cytoscape: str


@cache
def assets() -> Assets:
    """The style and the scripts of the viewer."""
    names = ("viewer.css", "viewer.js", "cytoscape.min.js")
    return Assets(*((_HERE / name).read_text("utf-8") for name in names))


def page(question: str, prediction: Mapping[str, Any]) -> str:
    """A page on one question.

    Args:
        question: The question.
        prediction: What was answered, as `Prediction.to_dict()` gives it.

    Returns:
        HTML that needs nothing beside it, and may load nothing: its policy forbids it.
    """
    return _document(question, {"question": question, "prediction": prediction})


def live_page(script: str) -> str:
    """A page whose script may ask the server that it came from, and nobody else."""
    return _document("ga_dspy", {}, script, connect="'self'")


def _document(title: str, data: Mapping[str, Any], *more: str, connect: str = "'none'") -> str:
    """HTML that holds the scripts, and the data as text that ends no script."""
    css, js, cytoscape = assets()
    scripts = (cytoscape, js, *more)
    allowed = " ".join(map(_hash, scripts))
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    return _PAGE.format(
        policy=f"default-src 'none'; script-src {allowed}; style-src {_hash(css)}; "
        f"connect-src {connect}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        title=escape(title),
        css=css,
        data=text,
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
