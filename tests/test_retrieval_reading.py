"""From files to passages."""

from __future__ import annotations

import csv
import json
import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ga_dspy.errors import InputError
from ga_dspy.retrieval import read_files, read_passages
from ga_dspy.retrieval.read import CHUNK_TOKENS, PARAGRAPH_TOKENS, Chunking, chunk_text
from ga_dspy.text import estimate_tokens

HOTPOT = [
    {
        "_id": "q1",
        "question": "?",
        "context": [["Nile", ["The Nile is a river.", " It is long."]], ["Aswan", ["A city."]]],
    },
    {"_id": "q2", "question": "?", "context": [["Nile", ["The Nile is a river.", " It is long."]]]},
]
MUSIQUE = [
    {
        "id": "m1",
        "paragraphs": [
            {"idx": 0, "title": "Nile", "paragraph_text": "Course of the Nile."},
            {"idx": 1, "title": "Nile", "paragraph_text": "History of the Nile."},
            {"idx": 2, "title": "Oslo", "paragraph_text": "A city."},
        ],
    }
]


def write(path: Path, content: Any) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in content))
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_hotpotqa_contexts_are_pooled_once_per_title(tmp_path: Path) -> None:
    passages = read_passages(write(tmp_path / "dev.json", HOTPOT))
    assert [(p.id, p.title, p.text) for p in passages] == [
        ("Nile", "Nile", "The Nile is a river. It is long."),
        ("Aswan", "Aswan", "A city."),
    ]


def test_2wiki_sentences_without_spaces_between_them_are_separated(tmp_path: Path) -> None:
    rows = [{"context": [["Nile", ["A river.", "It is long."]]]}]
    (passage,) = read_passages(write(tmp_path / "dev.json", rows))
    assert passage.text == "A river. It is long."


def test_one_title_with_two_texts_gets_two_ids_in_any_order(tmp_path: Path) -> None:
    one = read_passages(write(tmp_path / "a.jsonl", MUSIQUE))
    turned = [{"paragraphs": MUSIQUE[0]["paragraphs"][::-1]}]
    other = read_passages(write(tmp_path / "b.jsonl", turned))
    assert {p.id: p.text for p in one} == {p.id: p.text for p in other}
    assert len({p.id for p in one}) == 3
    assert one[2].id == "Oslo"
    assert one[0].id.startswith("Nile [")


def test_several_files_are_pooled(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a.json", HOTPOT), write(tmp_path / "b.jsonl", MUSIQUE)]
    assert len(read_passages(paths)) == 5


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv", "parquet"])
def test_rows_of_title_and_text_are_read_from_every_table_format(
    ending: str, tmp_path: Path
) -> None:
    rows = [{"id": "7", "title": "Nile", "text": "A river."}, {"id": "8", "title": "", "text": "B"}]
    path = tmp_path / f"corpus.{ending}"
    if ending == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["id", "title", "text"])
            writer.writeheader()
            writer.writerows(rows)
    elif ending == "parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        write(path, rows)
    passages = read_passages(path)
    assert [p.model_dump(exclude={"metadata"}) for p in passages] == rows
    assert {p.source for p in passages} == {path.name}


def test_dirty_rows_are_counted_and_the_others_survive(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[Any] = [
        *HOTPOT,
        {"context": []},
        {"context": [["Title alone"], ["Oslo", ["A city."]], ["Void", []], 3]},
        {"title": "no text"},
        "no object",
        {"text": "caf\ud800"},
    ]
    path = write(tmp_path / "dirty.json", rows)
    with caplog.at_level(logging.WARNING, logger="ga_dspy"):
        passages = read_passages(path)
    assert [p.title for p in passages] == ["Nile", "Aswan", "Oslo", ""]
    (said,) = (record.getMessage() for record in caplog.records)
    assert said == (
        "1 of 1 files were not read completely: dirty.json: in part (4 passages; "
        "no paragraphs: row 3; no paragraph: row 4, row 4; no text: row 4, row 5; "
        "not an object: row 6)"
    )


def test_a_broken_line_is_skipped_and_a_broken_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"title": "Nile", "text": "A river."}\n{"title": \n')
    assert len(read_passages(path)) == 1
    with pytest.raises(InputError, match=r"broken\.json"):
        read_passages(write(tmp_path / "broken.json", '[{"title": "Nile"'))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="parquet"):
        read_passages(tmp_path / "broken.parquet")


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("a.md", "# A\nOne\u2028two\x0cthree\n\n# B\nFour", ["One\u2028two\x0cthree", "Four"]),
        ("a.tsv", 'id\ttext\n1\t"Hello\n2\tb "c"\n', ['"Hello', 'b "c"']),
        ("a.csv", "\nid;text\n1;a, b\n", ["a, b"]),
        ("a.csv", "sep=;\nid;text\n1;a, b\n", ["a, b"]),
        ("a.csv", 'id,text\n1,"a" b\n2,c\n', ["a b", "c"]),
    ],
)
def test_unusual_line_breaks_quotes_and_separators_lose_no_text(
    name: str, content: str, texts: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert [passage.text for passage in read_passages(tmp_path / name)] == texts


@pytest.mark.parametrize("own", [{}, {"title": "Toll"}, {"id": "a"}])
def test_rows_of_one_text_and_other_columns_are_all_read(
    own: dict[str, str], tmp_path: Path
) -> None:
    tenants = ["acme", "zenith", "acme"]
    rows = [{"text": "The toll is 3 crowns.", "tenant": tenant, **own} for tenant in tenants]
    rows[1] |= {"id": "z"} if "id" in own else {}
    passages = read_passages(write(tmp_path / "rows.json", rows))
    assert [passage.metadata["tenant"] for passage in passages] == ["acme", "zenith"]
    assert len({passage.id for passage in passages}) == 2


def test_a_row_that_is_also_in_another_file_counts_as_repeated(tmp_path: Path) -> None:
    rows = [{"id": "1", "text": "A river.", "lang": lang} for lang in ("en", "no")]
    paths = [write(tmp_path / f"{row['lang']}.json", [row]) for row in rows]
    found = read_files(paths)
    assert [(len(file.ids), file.repeated) for file in found.files] == [(1, 0), (0, 1)]


def test_a_context_that_is_a_text_is_the_text_of_its_row(tmp_path: Path) -> None:
    rows = [{"title": "Nile", "context": "A river.", "question": "What?"}]
    (passage,) = read_passages(write(tmp_path / "squad.json", rows))
    assert (passage.title, passage.text) == ("Nile", "A river.")


def test_a_link_to_a_gitignore_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("*")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / ".gitignore").symlink_to(tmp_path / "rules")
    (tmp_path / "docs" / "nile.txt").write_text("A river.")
    assert [passage.id for passage in read_passages(tmp_path / "docs")] == ["nile.txt"]


def test_an_unclosed_quote_is_an_error_and_swallows_no_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('id,text\n1,a\n2,"b\n3,c\n')
    with pytest.raises(InputError, match="a quote after line 2 does not close"):
        read_passages(path)


def test_files_without_passages_and_unknown_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text: row 1"):
        read_passages(write(tmp_path / "bamboogle.json", [{"question": "?", "answer": "!"}]))
    with pytest.raises(InputError, match="no passages in"):
        read_passages(write(tmp_path / "empty.txt", ""))
    with pytest.raises(InputError, match=r"\.pdf"):
        read_passages(write(tmp_path / "book.pdf", "x"))
    with pytest.raises(InputError, match=r"no .*nowhere"):
        read_passages(tmp_path / "nowhere.json")


def test_a_folder_of_documents_is_searched_at_every_depth(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    write(tmp_path / "deep" / "er" / "note.txt", "A note.")
    write(tmp_path / "guide.md", "# Guide\n\nHello.")
    write(tmp_path / "data.bin", "ignored")
    assert {p.id: p.title for p in read_passages(tmp_path)} == {
        "deep/er/note.txt": "note",
        "guide.md": "Guide",
    }


def test_markdown_headings_become_the_title_path_and_code_comments_do_not(tmp_path: Path) -> None:
    long = "Sentence number one is here. " * 50
    text = f"# Guide\n\n{long}\n\n## Install\n\n{long}\n\n```\n# comment\n```\n\nEnd\n===\n\n{long}"
    passages = read_passages(write(tmp_path / "guide.md", text))
    assert [p.title for p in passages] == ["Guide", "Guide > Install", "End"]
    assert "# comment" in passages[1].text
    assert [p.id for p in passages] == ["guide.md#1", "guide.md#2", "guide.md#3"]


def test_short_sections_are_joined_and_keep_their_headings(tmp_path: Path) -> None:
    text = "# Guide\n\nHello.\n\n## Install\n\nRun pip.\n\n## Use\n\nCall it."
    (passage,) = read_passages(write(tmp_path / "guide.md", text))
    assert passage.title == "Guide"
    assert passage.text == "Hello.\n\nInstall\nRun pip.\n\nUse\nCall it."


def test_html_is_read_as_text_under_its_headings(tmp_path: Path) -> None:
    page = (
        "<html><head><title>t</title><style>p {}</style></head><body><nav>Menu</nav>"
        "<h1>Nile &amp; <em>Delta</em></h1><p>A river.<p>Long<br>one.<script>var x;</script>"
        "<ul><li>One</li><li>Two</li></ul></body></html>"
    )
    (passage,) = read_passages(write(tmp_path / "nile.html", page))
    assert passage.title == "Nile & Delta"
    assert passage.text == "A river.\n\nLong\none.\n\n* One\n* Two"


def test_long_texts_are_split_at_sentences_into_similar_sizes() -> None:
    sentences = [f"Sentence {i} tells of river number {i} and its towns." for i in range(400)]
    chunks = chunk_text(" ".join(sentences))
    assert " ".join(chunks) == " ".join(sentences)
    assert all(chunk.endswith(".") and chunk.startswith("Sentence") for chunk in chunks)
    assert all(CHUNK_TOKENS / 2 <= estimate_tokens(chunk) <= CHUNK_TOKENS for chunk in chunks)


def test_chunks_overlap_if_an_overlap_is_set() -> None:
    sentences = [f"Sentence {i} tells of river number {i}." for i in range(100)]
    chunks = chunk_text(" ".join(sentences), Chunking(chunk_tokens=100, overlap=30))
    assert all(two.split(".")[0] in one for one, two in pairwise(chunks))
    assert all(estimate_tokens(chunk) <= 100 for chunk in chunks)
    assert chunks[-1].endswith("river number 99.")


@pytest.mark.parametrize(("chunk_tokens", "overlap"), [(0, 0), (19, 0), (100, 51), (100, -1)])
def test_a_chunk_size_or_an_overlap_out_of_range_is_refused(
    tmp_path: Path, chunk_tokens: int, overlap: int
) -> None:
    (tmp_path / "note.txt").write_text("A note.")
    with pytest.raises(InputError, match="chunk_tokens from 20"):
        read_files(tmp_path, chunk_tokens=chunk_tokens, overlap=overlap)


def test_a_text_of_one_very_long_word_is_split() -> None:
    chunks = chunk_text("a" * 40_000)
    assert all(estimate_tokens(chunk) <= CHUNK_TOKENS for chunk in chunks)
    assert "".join(chunks) == "a" * 40_000


@pytest.mark.parametrize("numbers", [{"chunk_tokens": 5}, {"overlap": 300}, {"overlap": -1}])
def test_an_invalid_chunk_size_is_an_error(numbers: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=next(iter(numbers))):
        read_passages(write(tmp_path / "a.txt", "A note."), **numbers)


def test_the_chunk_size_includes_the_title(tmp_path: Path) -> None:
    text = "# A guide to the rivers of the north\n\n" + "The Nile flows on and on. " * 300
    path = write(tmp_path / "guide.md", text)
    for most in (40, 200, 400):
        passages = read_passages(path, chunk_tokens=most)
        sizes = [estimate_tokens(f"{p.title}. {p.text}") for p in passages]
        assert max(sizes) <= most + 2
        assert len(sizes) > 2000 / most


def test_dataset_paragraphs_are_split_only_above_their_own_limit(tmp_path: Path) -> None:
    text = "The Nile flows on and on. " * 100
    assert CHUNK_TOKENS < estimate_tokens(text) < PARAGRAPH_TOKENS
    rows = [{"paragraphs": [{"title": "Nile", "paragraph_text": text}]}]
    assert len(read_passages(write(tmp_path / "musique.json", rows), chunk_tokens=100)) == 1


def test_long_rows_are_split_into_numbered_parts_under_one_title(tmp_path: Path) -> None:
    rows = [{"title": "Nile", "text": "The Nile flows on and on. " * 300}]
    passages = read_passages(write(tmp_path / "corpus.json", rows))
    assert len(passages) > 1
    assert [p.id for p in passages] == [f"Nile#{n}" for n in range(1, len(passages) + 1)]
    assert {p.title for p in passages} == {"Nile"}


@pytest.mark.data
def test_the_official_files_give_the_known_numbers_of_passages(data: Path) -> None:
    hotpot = [data / "hotpotqa" / f"{n}.json" for n in ("train", "dev_distractor", "dev_fullwiki")]
    assert len({p.title for p in read_passages(hotpot)}) == 8099
    assert len(read_passages(data / "musique" / "dev.jsonl")) > 1500
    wiki = [data / "2wikimultihopqa" / f"{n}.json" for n in ("dev", "corpus")]
    assert len({p.title for p in read_passages(wiki)}) == 7401
