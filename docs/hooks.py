"""The site: pages that lie above docs/, and the examples of docstrings as code."""

from __future__ import annotations

import inspect
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File

ABOVE = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages above, and the notebooks as pages."""
    for name in ABOVE:
        text = (Path(config.docs_dir).parent / name).read_text()
        files.append(File.generated(config, name, content=text.replace("](docs/", "](")))
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(notebook)
        cells = json.loads(Path(notebook.abs_src_path).read_text())["cells"]
        text = "\n\n".join(part for cell in cells for part in _shown(cell))
        files.append(
            File.generated(config, notebook.src_uri.replace(".ipynb", ".md"), content=text)
        )
    return files


def _shown(cell: dict[str, Any]) -> list[str]:
    """Return the text of a cell, or its code and what it printed."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    parts = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "text/html" in data:
            parts.append("".join(data["text/html"]))
        else:
            printed = "".join(output.get("text") or data["text/plain"]).rstrip()
            parts.append(f"```text\n{printed}\n```")
    return parts


def on_page_markdown(markdown: str, **_: Any) -> str:
    """In the site, what lies above docs/ lies in it, and notebooks are pages."""
    markdown = re.sub(r"(\]\([\w/]*notebooks/\w+)\.ipynb", r"\1.md", markdown)
    return re.sub(rf"\]\(\.\./((?:\.\./)*(?:{'|'.join(ABOVE)}))", r"](\1", markdown)


WORKER, OURS = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker.js"


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load the worker of the offline search from the site, not from another host."""
    return output.replace(WORKER, "../" * page.url.count("/") + OURS)


def on_post_template(output: str, **_: Any) -> str:
    """Load it in the page for errors, too."""
    return output.replace(WORKER, OURS)


class Settings(griffe.Extension):
    """Programs are shown with the arguments that their declared settings make."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Take the docstring of the class itself, which lists them."""
        if cls.docstring and cls.path.startswith(("ga_dspy.programs.", "ga_dspy.graphrag.")):
            made = getattr(import_module(cls.module.path), cls.name, None)
            if hasattr(made, "declared"):
                cls.docstring.value = inspect.getdoc(made) or ""


class Doctests(griffe.Extension):
    """Examples in docstrings are shown as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence each paragraph that begins with a prompt."""
        if obj.docstring:
            fenced = re.sub(r"(?m)^(>>> (?:.+\n?)+)", r"```pycon\n\1\n```\n", obj.docstring.value)
            obj.docstring.value = fenced
