"""A folder of documents as people have them: each file is read right, or named with the reason."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Sequence
from email.message import EmailMessage
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.passage import Passage
from ga_dspy.retrieval import read_files, read_passages

for library in ("pypdfium2", "mammoth", "pptx", "python_calamine"):
    pytest.importorskip(library)


# --- Files of each kind, made by hand


def pdf(*pages: str, title: str = "") -> bytes:
    """A PDF of one line a page, with a bookmark "Summary" on the last."""
    last = 4 + 2 * (len(pages) - 1)
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R /Outlines 100 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, line in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 700 Td ({line}) Tj ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * i} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    numbered = dict(enumerate(objects, 1)) | {
        100: "<< /Type /Outlines /First 101 0 R /Last 101 0 R /Count 1 >>",
        101: f"<< /Title (Summary) /Parent 100 0 R /Dest [{last} 0 R /Fit] >>",
        102: f"<< /Title ({title}) /Author (Ida Lund) /CreationDate (D:20190401120000) >>",
    }
    out, offsets = b"%PDF-1.4\n", {}
    for number, body in numbered.items():
        offsets[number] = len(out)
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    start = len(out)
    out += b"xref\n"
    for number, offset in offsets.items():
        out += f"{number} 1\n{offset:010d} 00000 n \n".encode()
    out += f"trailer\n<< /Size 103 /Root 1 0 R /Info 102 0 R >>\nstartxref\n{start}\n%%EOF".encode()
    return out


CORE = (
    '<cp:coreProperties xmlns:cp="c" xmlns:dc="http://purl.org/dc/elements/1.1/">'
    "<dc:title>{}</dc:title><dc:creator>Ida Lund</dc:creator></cp:coreProperties>"
)


def archive(files: dict[str, str]) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in files.items():
            made.writestr(name, text)
    return out.getvalue()


def docx(*paragraphs: tuple[str, str], table: Sequence[Sequence[str]] = ()) -> bytes:
    """A Word file of (style, text) paragraphs and a table."""
    main = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    rows = (
        "".join(f"<w:tc><w:p><w:r><w:t>{cell}</w:t></w:r></w:p></w:tc>" for cell in row)
        for row in table
    )
    body += f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{id}"><w:name w:val="{name}"/></w:style>'
        for id, name in (("Title", "Title"), ("H1", "heading 1"))
    )
    return archive(
        {
            "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/'
            'content-types"><Default Extension="xml" ContentType="application/xml"/></Types>',
            "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/'
            f'relationships"><Relationship Id="r1" Type="{office}" Target="word/document.xml"/>'
            "</Relationships>",
            "word/document.xml": f'<w:document xmlns:w="{main}"><w:body>{body}</w:body>'
            "</w:document>",
            "word/styles.xml": f'<w:styles xmlns:w="{main}">{styles}</w:styles>',
            "docProps/core.xml": CORE.format("Report of 2019"),
        }
    )


def pptx() -> bytes:
    from pptx import Presentation
    from pptx.util import Inches

    deck = Presentation()
    for number, title in enumerate(("Load", "Closing")):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = f"Point {number} of the talk."
    table = slide.shapes.add_table(2, 2, 0, 0, Inches(2), Inches(1)).table
    for at, cell in enumerate(("Part", "Year", "Deck", "1932")):
        table.cell(at // 2, at % 2).text = cell
    slide.notes_slide.notes_text_frame.text = "Say it slowly."
    out = BytesIO()
    deck.save(out)
    return out.getvalue()


def xlsx() -> bytes:
    from xlsxwriter import Workbook

    out = BytesIO()
    with Workbook(out) as book:
        for name in ("Cables", "Empty"):
            sheet = book.add_worksheet(name)
            for at, row in enumerate(
                (("Product", "Diameter"), ("VK-12", 12)) if name[0] == "C" else ()
            ):
                sheet.write_row(at, 0, row)
    return out.getvalue()


def mail() -> bytes:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "Cables", "ida@example.org", "all@x.org"
    message["Date"] = "Mon, 01 Apr 2019 10:00:00 +0200"
    message.set_content("The cables of the bridge were replaced.")
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="plan.pdf")
    return bytes(message)


CYRILLIC = (
    "Мост через реку был построен инженером Ниной Хауг в тысяча девятьсот тридцать втором году. "
)
PAGE = (
    '<html><head><meta charset="iso-8859-1"><title>Café Zürich, products</title>'
    "<style>p {}</style></head><body><nav>Menu</nav><p>Open\n daily.</p>"
    "<table><tr><th>Product</th><th>Diameter</th></tr><tr><td>VK-12</td><td><p>12 mm</p></td></tr>"
    "</table><pre>if x:\n    return 1</pre><footer>Cookies</footer><script>x()</script></body>"
)
FRONT = (
    "---\ntitle: Halden Bridge report\nauthor: Ida Lund\ntags: [bridge, 2019]\ndate: 2019-04-01\n"
    "---\n"
)
TABLE = "| a | b |\n|---|---|\n| 1 | 2 |"

DAMAGED = b"PK\x03\x04 no"
FILES: dict[str, tuple[bytes | str, str]] = {  # what it holds, and its line
    ".env": ("KEY=1", "left out (hidden)"),
    "CHINESE.TXT": ("桥是由尼尔斯·豪格设计的。", "read (1 passage)"),
    "README": ("Read me.", "read (1 passage)"),
    "a note.txt": ("A note.", "read (1 passage)"),
    "bad-bytes.txt": (
        "Zürich, Genève, Malmö, Århus. ".encode() * 9 + b"\xff.",
        "in part (1 passage; damaged UTF-8, characters lost: 1)",
    ),
    "blank.txt": (" \n\n", "unread (no text)"),
    "broken.docx": (DAMAGED, "unread (BadZipFile: File is not a zip file)"),
    "broken.json": (
        '[{"text": "x"',
        "unread (it does not parse (Expecting ',' delimiter: line 1 column 14 (char 13)))",
    ),
    "broken.parquet": (b"PAR1 no", "unread (it does not parse"),
    "broken.pdf": (b"no PDF", "unread (PdfiumError"),
    "cables.csv": (
        "product;diameter\nVK-12;12 mm\n",
        "read (1 passage; no column of text: read as a table)",
    ),
    "code.py": ("def f(x):\n    if x:\n        return 1\n", "read (1 passage)"),
    "config.json": ('{"debug": true}', "unread (no text: row 1)"),
    "cp1251.txt": (CYRILLIC.encode("cp1251"), "read (1 passage; read as cp1251, a guess)"),
    "deck.pptx": (pptx(), "read (2 passages)"),
    "docs/a note.txt": ("A note.", "read (1 as in another file)"),
    "docs/draft.tmp.md": ("A draft.", "left out (named in .gitignore)"),
    "docs/deep/keep.tmp.md": ("Kept.", "read (1 passage)"),
    "front-broken.md": ("---\ntitle: [a\n---\nText.", "in part (1 passage; front matter that does"),
    "front.md": (f"{FRONT}It recommends to close it.\n\n{TABLE}", "read (1 passage)"),
    "image.png": (b"\x89PNG\r\n\x1a\n\0", "unread (.png is not a supported format)"),
    "junk.txt": (Random(1).randbytes(2000), "unread (binary data, not text)"),
    "key": ("-----BEGIN OPENSSH PRIVATE KEY-----\nAA\n", "unread (it holds a private key)"),
    "latin.html": (PAGE.encode("latin-1", "replace"), "read (1 passage; read as cp1252)"),
    "letter.eml": (mail(), "in part (1 passage; attachments not read: plan.pdf)"),
    "lines.jsonl": (
        '{"id": "7", "text": "One.", "lang": "en"}\n{"te\n\n{"title": "x"}\n',
        "in part (1 passage; invalid JSON: line 2; no text: line 4)",
    ),
    "notes.org": ("* Heading\nText of it.", "read (1 passage)"),
    "paper.pdf": (
        pdf("The bridge has cables.", "It should be closed.", title="Cables"),
        "read (2 passages)",
    ),
    "report.docx": (
        docx(("Title", "The report"), ("H1", "Load"), ("", "It bears 40 t."),
             table=[["Part", "Year"], ["Deck", "1932"]]),
        "read (1 passage)",
    ),
    "rows.tsv": ("id\ttitle\ttext\turl\n1\tNile\tA river.\thttp://n\n", "read (1 passage)"),
    "scan.pdf": (
        pdf("", "Text."),
        "in part (1 passage; no text on page 1",
    ),
    "server.log": ("12:00 started\n12:01 stopped\n", "read (1 passage)"),
    "sheet.xlsx": (xlsx(), "read (1 passage)"),
    "utf16-no-mark.txt": (
        ("The Halden Bridge. " * 9).encode("utf-16-le"),
        "read (1 passage; read as utf_16_le, a guess)",
    ),
    "utf16.txt": ("An ant.".encode("utf-16"), "read (1 passage; read as utf_16)"),
    "wide.csv": ("id,text\n1,Wide.,more\n", "in part (1 passage; more cells than columns: line 2)"),
    "yaml.yml": ("bridge: Halden\n", "read (1 passage)"),
}  # fmt: skip
OTHERS = {  # what is no plain file, or stands in a folder that is left out
    ".hidden/": "left out (hidden)",
    "docs/.gitignore": "left out (hidden)",
    "docs/build/": "left out (named in .gitignore)",
    "index/": "left out (a stored index)",
    "link": "unread (a broken link)",
    "loop/": "left out (a link to a folder)",
    "node_modules/": "left out (third-party packages)",
    "pipe.txt": "unread (not a regular file)",
    "venv/": "left out (a virtual environment)",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("awkward")
    hidden = {
        "docs/.gitignore": "build/\n*.tmp.md\n", "docs/build/out.txt": "Made.",
        "docs/deep/.gitignore": "!keep.tmp.md\n", ".hidden/secret.md": "It is hunter2.",
        "venv/pyvenv.cfg": "", "venv/lib/x.py": "x = 1", "node_modules/x/README.md": "# X",
        "index/manifest.json": "{}", "index/contents-000000/a.txt": "A.",
    }  # fmt: skip
    for name, data in {**{name: data for name, (data, _) in FILES.items()}, **hidden}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    (root / "link").symlink_to(root / "nowhere.txt")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe.txt")
    return root


@pytest.fixture(scope="module")
def found(folder: Path) -> Any:
    return read_files(folder)


def test_every_awkward_file_is_reported_on_its_own_line(found: Any) -> None:
    lines = {file.name: str(file) for file in found.files}
    expected = {**{name: line for name, (_, line) in FILES.items()}, **OTHERS}
    assert set(lines) - {"docs/deep/.gitignore"} == set(expected)
    assert len(expected) >= 40
    wrong = {name: lines[name] for name, line in expected.items()
             if not lines[name].startswith(f"{name}: {line}")}  # fmt: skip
    assert wrong == {}


def text_of(found: Any, name: str) -> tuple[str, str]:
    passages = [p for p in found.passages if p.metadata["source"] == name]
    return "\n\n".join(p.title for p in passages), "\n\n".join(p.text for p in passages)


@pytest.mark.parametrize(
    ("name", "title", "text"),
    [
        ("CHINESE.TXT", "CHINESE", "桥是由尼尔斯·豪格设计的。"),
        ("cables.csv", "cables", "product | diameter\nVK-12 | 12 mm"),
        ("code.py", "code", "def f(x):\n    if x:\n        return 1"),
        ("cp1251.txt", "cp1251", CYRILLIC.strip()),
        ("front.md", "Halden Bridge report", "It recommends to close it.\n\na | b\n1 | 2"),
        ("latin.html", "Café Zürich, products",
         "Open\ndaily.\n\nProduct | Diameter\nVK-12 | 12 mm\n\n```\nif x:\n    return 1\n```"),
        ("paper.pdf", "Cables\n\nCables > Summary",
         "The bridge has cables.\n\nIt should be closed."),
        ("report.docx", "The report > Load",
         "It bears 40 t.\n\nPart | Year\nDeck | 1932"),
        ("server.log", "server", "12:00 started\n12:01 stopped"),
        ("sheet.xlsx", "sheet > Cables", "Product | Diameter\nVK-12 | 12"),
        ("utf16-no-mark.txt", "utf16-no-mark", ("The Halden Bridge. " * 9).strip()),
        ("utf16.txt", "utf16", "An ant."),
    ],
)  # fmt: skip
def test_a_file_is_read_as_a_person_would_read_it(
    found: Any, name: str, title: str, text: str
) -> None:
    assert text_of(found, name) == (title, text)


def test_a_slide_is_read_with_title_text_table_and_notes(found: Any) -> None:
    titles, text = text_of(found, "deck.pptx")
    assert titles == "deck > Load\n\ndeck > Closing"
    first, second = text.split("\n\n")
    assert first == "Point 0 of the talk."
    assert second == "Point 1 of the talk.\nPart | Year\nDeck | 1932\nSay it slowly."


def test_document_properties_become_metadata_not_text(found: Any) -> None:
    about = {p.id: p.metadata for p in found.passages}
    assert about["front.md"] == {
        "source": "front.md", "title": "Halden Bridge report", "author": "Ida Lund",
        "tags": ("bridge", 2019), "date": "2019-04-01", "table": 1, "rows": "1-2",
    }  # fmt: skip
    assert about["paper.pdf#2"] == {
        "source": "paper.pdf", "page": 2, "heading": "Summary", "author": "Ida Lund",
        "date": "2019-04-01", "title": "Cables",
    }  # fmt: skip
    assert about["deck.pptx#2"]["slide"] == 2
    assert about["sheet.xlsx"]["sheet"] == "Cables"
    assert about["report.docx"]["author"] == "Ida Lund"
    assert about["letter.eml"]["author"] == "ida@example.org"
    assert about["letter.eml"]["date"] == "2019-04-01T10:00:00+02:00"
    assert about["rows.tsv#1"] == {"source": "rows.tsv", "url": "http://n"}
    assert about["lines.jsonl#7"]["lang"] == "en"


def test_ids_within_a_folder_are_unique(found: Any) -> None:
    ids = [passage.id for passage in found.passages]
    assert len(set(ids)) == len(ids)
    assert {id for file in found.files for id in file.ids} == set(ids)


def test_strict_stops_at_the_first_file_not_read_completely(folder: Path) -> None:
    with pytest.raises(InputError, match=r"bad-bytes\.txt was not read completely \(damaged UTF-8"):
        read_files(folder, strict=True)
    whole = read_passages(folder / "docs", strict=True)
    assert [p.text for p in whole] == ["A note.", "Kept."]


def test_a_missing_reader_is_named_with_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(package: str, extra: str) -> Any:
        raise MissingExtra(package, extra)

    monkeypatch.setattr("ga_dspy.retrieval.documents.require", missing)
    monkeypatch.setattr("ga_dspy.retrieval.documents.is_cheap", lambda name, data: True)
    lines = {file.name: file for file in read_files(folder).files}
    for name in ("paper.pdf", "deck.pptx", "sheet.xlsx", "report.docx"):
        assert lines[name].status == "unread"
        assert "files" in str(lines[name]) and "pip install" in str(lines[name])
    with pytest.raises(MissingExtra, match="files"):
        read_passages(folder / "paper.pdf")


def test_a_damaged_file_that_was_given_directly_is_an_error_with_its_name(folder: Path) -> None:
    for name in ("broken.pdf", "broken.docx", "junk.txt", "broken.json"):
        with pytest.raises(InputError, match=name):
            read_passages(folder / name)


def test_a_zip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ga_dspy.retrieval.documents._MOST_UNPACKED", 1000)
    monkeypatch.setattr("ga_dspy.retrieval.documents.is_cheap", lambda name, data: True)
    (tmp_path / "a.docx").write_bytes(archive({"word/document.xml": "x" * 2000}))
    with pytest.raises(InputError, match=r"unpacks to 2,000 bytes"):
        read_passages(tmp_path / "a.docx")


def test_yaml_aliases_in_front_matter_cannot_expand_without_limit(tmp_path: Path) -> None:
    levels = "".join(f"{b}: {{x: *{a}, y: *{a}}}\n".replace(f"{b}:", f"{b}: &{b}")
                     for a, b in zip("abcdefgh", "bcdefghi", strict=True))  # fmt: skip
    (tmp_path / "bomb.md").write_text(f"---\na: &a {{x: 1}}\n{levels}---\nText.")
    (passage,) = read_passages(tmp_path)
    assert passage.text == "Text."
    assert len(passage.metadata) <= 64


def test_each_part_of_a_long_table_has_its_column_names(tmp_path: Path) -> None:
    rows = "".join(f"VK-{i},{i} mm,kept in hall {i % 7}\n" for i in range(300))
    (tmp_path / "cables.csv").write_text(f"product,diameter,place\n{rows}")
    passages = read_passages(tmp_path, chunk_tokens=100)
    assert len(passages) > 10
    assert all(p.text.startswith("product | diameter | place\nVK-") for p in passages)
    lines = [line for p in passages for line in p.text.split("\n")[1:]]
    assert lines == [f"VK-{i} | {i} mm | kept in hall {i % 7}" for i in range(300)]


def test_files_of_one_name_in_two_folders_get_different_ids(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(f"The text of {name}.")
    passages = read_passages([tmp_path / "a", tmp_path / "b"])
    assert [p.id for p in passages] == ["README.md", "b/README.md"]


def test_rows_of_two_files_may_have_the_same_ids(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps([{"id": "1", "text": f"Of {name}."}]))
    assert [p.id for p in read_passages(tmp_path)] == ["a.json#1", "b.json#1"]


def test_an_encoder_limited_to_256_tokens_finds_a_fact_at_the_end_of_a_chapter(
    tmp_path: Path,
) -> None:
    from ga_dspy import Index
    from ga_dspy.retrieval.encoders import HashEncoder

    class Short(HashEncoder):
        """Reads the first 256 words of a text, as a transformer reads its first tokens."""

        max_tokens = 256

        def encode(self, texts: Sequence[str]) -> Any:
            return super().encode([" ".join(text.split()[:256]) for text in texts])

    for mine in ("silver", "copper", "salt", "iron"):
        filler = f"The {mine} mine was deepened in spring and its shafts were lined with oak. " * 40
        (tmp_path / f"{mine}.txt").write_text(filler)
    fact = "The physician Elena Marsh cured the miners of silicosis."
    with (tmp_path / "salt.txt").open("a") as file:
        file.write(fact)
    found = {
        size: Index.from_passages(
            read_passages(tmp_path, chunk_tokens=size), kind="dense", encoder=Short(4096)
        )("Which physician cured miners of silicosis?", 1)[0]
        for size in (200, 800)
    }
    assert fact in found[200].text
    assert found[200].source == "salt.txt"
    assert found[800].source != "salt.txt"  # what the encoder does not read is not found


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "Café Zürich"),
        ("cp1252", "Genève et Orléans sont des villes. Le café est fermé à midi."),
        ("cp1252", "Die Brücke wurde 1932 über den Fluß gebaut und später erneuert."),
        ("cp1252", "España: el puente fue diseñado por el señor Núñez en 1932."),
        ("cp1250", "Zażółć gęślą jaźń. Most został zbudowany w roku 1932 przez inżyniera."),
        ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy. Most byl postaven roku 1932."),
        ("cp1254", "Köprü 1932 yılında inşa edildi. Şehir güzeldir, İstanbul'a yakın."),
        ("cp1253", "Η γέφυρα χτίστηκε το 1932 από τον μηχανικό."),
        ("cp932", "日本語の文章です。橋は古い。"),
        ("gb18030", "这座桥建于一九三二年,由工程师设计。"),
        ("cp949", "다리는 1932년에 지어졌다."),
        ("utf-16", "Café Zürich"),
        ("utf-8-sig", "Café Zürich"),
    ],
)
def test_a_text_is_read_in_its_own_encoding(encoding: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    (passage,) = read_passages(tmp_path)
    assert passage.text == text


def test_passages_have_their_source(found: Any) -> None:
    sources = {p.id: p.source for p in found.passages}
    assert sources["paper.pdf#2"] == "paper.pdf, p. 2"
    assert sources["deck.pptx#1"] == "deck.pptx, slide 1"
    assert isinstance(found.passages[0], Passage)
