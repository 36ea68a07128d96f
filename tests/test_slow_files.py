"""Files made to cost hours or all memory: each is named and given up, and the others are read."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from test_documents import archive, docx, pdf, pptx

from ga_dspy.cli.console import Console, show_progress
from ga_dspy.errors import InputError
from ga_dspy.retrieval import documents, read_files

for library in ("pypdfium2", "mammoth", "pptx", "python_calamine"):
    pytest.importorskip(library)


def sheet(body: str) -> bytes:
    """A workbook of one sheet."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    return archive(
        {
            "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Override '
            f'PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
            f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
            "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets><sheet '
            'name="S" sheetId="1" r:id="r1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
            f'<Relationship Id="r1" Type="{office}/worksheet" Target="worksheets/sheet1.xml"/>'
            "</Relationships>",
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{body}</sheetData>'
            "</worksheet>",
        }
    )


def cell(at: str) -> str:
    row = at.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return f'<row r="{row}"><c r="{at}" t="inlineStr"><is><t>x</t></is></c></row>'


def beyond_its_directory() -> bytes:
    """An archive whose directory says that a part of 50 MB has 10 bytes."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("word/document.xml", "x" * 50_000_000)
    data = bytearray(out.getvalue())
    at = data.rindex(b"PK\x01\x02") + 24
    data[at : at + 4] = (10).to_bytes(4, "little")
    return bytes(data)


SLOW: dict[str, Callable[[], bytes]] = {
    "paragraphs.docx": lambda: docx(*[("", "x")] * 300_000),
    "run.docx": lambda: docx(("", "x" * 50_000_000)),
    "links.md": lambda: b"[a](" * 400_000,
    "attributes.html": lambda: b"<a href='" * 40_000,
    "front.md": lambda: b"---\n" + b"- a: b\n" * 200_000 + b"---\nx",
}
BROKEN: dict[str, Callable[[], bytes]] = {
    "lies.docx": beyond_its_directory,
    "nested.html": lambda: b"<div>" * 30_000,
    "far.xlsx": lambda: sheet(cell("A1") + cell("XFD1048576")),
}


def limit(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let a file take so long, whatever its size."""
    monkeypatch.setattr(documents, "SECONDS", seconds)
    monkeypatch.setattr(documents, "PER_MEGABYTE", 0.0)


@pytest.mark.slow
def test_a_maliciously_slow_file_is_reported_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 2.0)
    for name, make in SLOW.items():
        (tmp_path / name).write_bytes(make())
    (tmp_path / "z.md").write_text("The bridge is red.")
    stages: list[str] = []
    begun = time.monotonic()
    found = read_files(tmp_path, progress=lambda stage, done, count: stages.append(stage))
    assert time.monotonic() - begun < 5 * len(SLOW)
    *slow, last = found.files
    assert (last.name, last.status) == ("z.md", "read")
    assert {file.name for file in slow if "not read within 2 s" in str(file)} == SLOW.keys()
    assert {f"reading {name}" for name in SLOW} <= set(stages)


def test_a_file_that_crashes_its_parser_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    for name, make in BROKEN.items():
        (tmp_path / name).write_bytes(make())
    (tmp_path / "pages.pdf").write_bytes(pdf("x").replace(b"/Count 1 >>", b"/Count 9999999 >>", 1))
    (tmp_path / "z.pdf").write_bytes(pdf("The bridge is old."))
    status = {file.name: file.status for file in read_files(tmp_path).files}
    assert status == {**dict.fromkeys(BROKEN, "unread"), "pages.pdf": "read", "z.pdf": "read"}


def test_a_slow_file_that_was_given_directly_is_an_error_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 1.0)
    (tmp_path / "links.md").write_bytes(SLOW["links.md"]())
    with pytest.raises(InputError, match=r"links\.md cannot be read as md \(not read within 1 s\)"):
        read_files(tmp_path / "links.md")


def test_the_separate_process_reads_files_as_this_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {
        "a.docx": docx(("Title", "The report"), ("H1", "Load"), ("", "It bears 40 t.")),
        "b.pptx": pptx(),
        "c.md": b"---\ntitle: T\ndate: 2019-04-01\ntags: [a, 2]\n---\n# H\nText.\n",
        "d.pdf": pdf("One.", "Two."),
        "e.docx": b"no archive",
    }
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    read: list[Any] = []
    for is_cheap in (True, False):
        monkeypatch.setattr(documents, "is_cheap", lambda name, data, it=is_cheap: it)
        read.append(read_files(tmp_path))
    assert read[0] == read[1]


def test_a_progress_bar_names_the_file_that_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(Console(force_terminal=True)) as progress:
        progress("reading slow.docx", 0, 2)
    assert "reading slow.docx" in capsys.readouterr().out
