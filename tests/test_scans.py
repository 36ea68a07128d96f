"""Scanned pages are read by OCR; the passages of a table know its page and rows."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from test_documents import docx, pdf

from ga_dspy.errors import require
from ga_dspy.retrieval import Index, documents, read_files, scans
from ga_dspy.retrieval.documents import read_document
from ga_dspy.retrieval.read import Sources

needs_extra = pytest.mark.skipif(
    not scans.is_installed(), reason="needs the extra `scans`: pip install -e '.[scans]'"
)

ROWS = [["Crossing", "Opened", "Designer"], ["Halden Bridge", "1931", "Nils Haug"],
        ["Kvam Tunnel", "1987", "Ola Brekke"], ["Vesle Viaduct", "2012", "Ida Lund"]]  # fmt: skip
TABLE = "\n".join(" | ".join(row) for row in ROWS)
BEFORE, AFTER = "The county keeps these crossings.", "The council pays for all of them."


def scanned(table: Sequence[Sequence[str]] = (), turn: float = 0.7) -> Any:
    """A page as a scanner sees it: an image, not quite straight."""
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("L", (1240, 900), 250)
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(34)
    draw.text((120, 120), BEFORE, 20, font)
    for y, row in enumerate(table):
        for x, cell in enumerate(row):
            left, top = 120 + 320 * x, 220 + 80 * y
            draw.rectangle((left, top, left + 320, top + 80), outline=20, width=3)
            draw.text((left + 20, top + 20), cell, 20, font)
    draw.text((120, 620), AFTER, 20, font)
    return page.rotate(turn, expand=True, fillcolor=250)


def scan(path: Path, *pages: Any) -> Path:
    pages[0].save(path, save_all=True, append_images=pages[1:], resolution=150)
    return path


def born_digital() -> bytes:
    """A PDF page with a ruled table between two sentences."""
    content = BEFORE
    for y, row in enumerate(ROWS):
        for x, cell in enumerate(row):
            left, bottom = 72 + 120 * x, 640 - 20 * y
            content += f") Tj ET {left} {bottom} 120 20 re S "
            content += f"BT /F1 11 Tf {left + 5} {bottom + 6} Td ({cell}"
    return pdf(f"{content}) Tj ET BT /F1 12 Tf 72 500 Td ({AFTER}", title="Crossings")


def test_without_the_extra_a_scan_is_reported_with_its_pages_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scans, "is_installed", lambda: False)
    document = read_document("scan.pdf", pdf("", "Text.", ""))
    (note,) = document.notes
    assert not document.whole and [s.text for s in document.sections] == ["Text."]
    assert note.startswith("no text on page 1, 3 (scanned?") and "'.[scans]'" in note


def test_a_sync_reads_scanned_pages_once_the_extra_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.pdf").write_bytes(pdf("", "Text."))
    monkeypatch.setattr(documents, "is_cheap", lambda *_: True)
    monkeypatch.setattr(scans, "is_installed", lambda: False)
    sources = Sources().with_paths(tmp_path, [tmp_path / "docs"])
    before = sources.read(tmp_path)
    index = Index.from_passages(before.passages)
    sources = sources.model_copy(update={"files": before.files})

    read = require("pypdfium2", "files").PdfDocument(pdf("Scanned."))[0]
    monkeypatch.setattr(scans, "is_installed", lambda: True)
    monkeypatch.setattr(scans, "find_tables", lambda _: {})
    monkeypatch.setattr(scans, "read_scan", lambda _: (read, []))
    found = sources.read(tmp_path, index)
    assert [p.text for p in before.passages] == ["Text."]
    assert [(p.text, p.source) for p in found.passages] == [
        ("Scanned.", "a.pdf, p. 1"), ("Text.", "a.pdf, p. 2"),
    ]  # fmt: skip


@needs_extra
def test_a_scan_is_read_with_its_page_and_its_table(tmp_path: Path) -> None:
    path = scan(tmp_path / "scan.pdf", scanned(), scanned(ROWS))
    found = read_files(path)
    assert [(p.text, p.source) for p in found.passages] == [
        (f"{BEFORE}\n{AFTER}", "scan.pdf, p. 1"),
        ("\n\n".join([BEFORE, TABLE, AFTER]), "scan.pdf, p. 2, table 1, rows 1-4"),
    ]
    assert str(found.files[0]) == "scan.pdf: read (2 passages; read by OCR: page 1, 2)"


@needs_extra
@pytest.mark.parametrize("turn", [90, 180])
def test_a_page_scanned_upside_down_or_sideways_is_rotated(turn: int, tmp_path: Path) -> None:
    path = scan(tmp_path / "scan.pdf", scanned(ROWS, turn))
    sections = read_document(path.name, path.read_bytes()).sections
    assert [section.text for section in sections] == [BEFORE, TABLE, AFTER]


@needs_extra
def test_a_table_of_a_pdf_is_read_once_row_by_row() -> None:
    document = read_document("report.pdf", born_digital())
    assert [section.text for section in document.sections] == [BEFORE, TABLE, AFTER]
    assert document.sections[1].metadata == {"page": 1, "table": 1, "heading": "Summary"}


@needs_extra
def test_the_embedded_text_of_a_rotated_page_is_unchanged() -> None:
    data = born_digital().replace(b"/MediaBox", b"/Rotate 90 /MediaBox")
    (section,) = read_document("report.pdf", data).sections
    assert section.text.split("\n") == [BEFORE, *(" ".join(row) for row in ROWS), AFTER]


HEADER, BODY = ("Part", "Number"), [(f"Cable VK-{row}", str(row)) for row in range(2, 60)]


def csv_with_a_blank_line() -> bytes:
    lines = ["Part,Number", *map(",".join, BODY)]
    return "\n".join([*lines[:9], "", *lines[10:]]).encode()


def sheet_with_a_blank_row() -> bytes:
    from xlsxwriter import Workbook

    out = BytesIO()
    with Workbook(out) as book:
        sheet = book.add_worksheet("Cables")
        for number, row in enumerate([HEADER, *BODY]):
            sheet.write_row(number, 1, row if number != 9 else ("", ""))
    return out.getvalue()


def page() -> bytes:
    rows = "".join(f"<tr><td>{part}</td><td>{number}</td></tr>" for part, number in BODY)
    head = "<h1>Cables</h1><p>All of them.</p><table><tr><th>Part</th><th>Number</th></tr>"
    return f"{head}{rows}</table>".encode()


@pytest.mark.parametrize(
    ("name", "data", "place"),
    [
        ("a.csv", csv_with_a_blank_line(), "a.csv"),
        ("a.xlsx", sheet_with_a_blank_row(), "a.xlsx, sheet Cables"),
        ("a.html", page(), "a.html, table 1"),
        ("a.docx", docx(("", "All of them."), table=[HEADER, *BODY]), "a.docx, table 1"),
    ],
)
def test_each_part_of_a_long_table_states_its_rows(
    name: str, data: bytes, place: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    passages = read_files(tmp_path / name, chunk_tokens=80).passages
    tables = [passage for passage in passages if "rows" in passage.metadata]
    assert len(tables) > 4
    for passage in tables:
        header, *rows = passage.text.split("\n")
        numbers = [row.rpartition(" | ")[2] for row in rows]
        assert header == "Part | Number"
        assert passage.source == f"{place}, rows {numbers[0]}-{numbers[-1]}"
