"""Run the notebooks of the docs and write their outputs into them: `make notebooks`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def run(page: Path, folder: str) -> Any:
    """Return a notebook with the outputs that it has now, and nothing that changes by itself."""
    notebook = nbformat.read(page, as_version=4)  # type: ignore[no-untyped-call]
    nbclient.execute(notebook, cwd=folder, timeout=120)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            printed = [o for o in cell.outputs if o.output_type == "stream"]
            others = [o for o in cell.outputs if o.output_type != "stream"]
            text = "".join(o.text for o in printed)
            made = nbformat.v4.new_output("stream", text=text)  # type: ignore[no-untyped-call]
            cell.outputs = [made] if text else []
            cell.outputs += others
    return notebook


if __name__ == "__main__":
    for page in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(run(page, folder), page)  # type: ignore[no-untyped-call]
