"""What the service says of itself, and the questions that it proposes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dspy
import httpx
import pytest
from test_serve import asked, serving

import ga_dspy
from ga_dspy import viewer
from ga_dspy.cli import main
from ga_dspy.serve import Key, Service, make_app
from ga_dspy.serve.service import make_examples

PASSAGES = [
    ga_dspy.Passage(id=id, title=title, text=text, metadata={"tenant": tenant})
    for id, title, text, tenant in (
        ("1", "Ada Berg", "Ada Berg built the Halden Bridge.", "acme"),
        ("2", "Halden Bridge", "The Halden Bridge crosses the Tista.", "acme"),
        ("3", "Tista", "A river in the south.", "acme"),
        ("4", "Nils Haug", "Nils Haug owns the Zenith Works.", "zenith"),
        ("5", "Zenith Works", "A factory.", "zenith"),
    )
]
OURS, THEIRS = "What connects Ada Berg and Tista?", "What is Nils Haug?"


@pytest.fixture(scope="module")
def index() -> ga_dspy.Index:
    return ga_dspy.Index.from_passages(PASSAGES, kind="sparse")


def test_about_lists_the_indexed_files_the_passages_and_the_lm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    Path("docs/bridge.txt").write_text("Ada Berg built the Halden Bridge.")
    monkeypatch.setattr("sys.argv", ["ga-dspy", "index", "build", "docs", "--out", "made"])
    with pytest.raises(SystemExit, match="0"):
        main()
    with asked(ga_dspy.Index.open("made")) as client:
        about = client.get("/about").json()
    assert (about["corpus"], about["passages"], about["can_write"]) == ("docs", 1, False)
    assert set(about["lms"].values()) == {"ga-dspy/extractive"}


def test_example_questions_are_made_from_titles_that_other_passages_mention(
    index: ga_dspy.Index,
) -> None:
    with asked(index) as client:
        assert client.get("/about").json()["examples"] == [OURS, THEIRS]


@pytest.mark.parametrize(
    ("title", "text"),
    [("", "x"), ("Ada", "Ada."), ("Halden Bridge", "Halden Bridges."), ("(a|b)*", "[")],
)
def test_no_example_question_is_made_without_a_link_between_passages(title: str, text: str) -> None:
    read = [ga_dspy.Passage(id="1", title=title, text=text), ga_dspy.Passage(id="2", text=text)]
    assert make_examples(read) == []


def test_given_examples_are_used_unless_the_index_is_empty() -> None:
    with dspy.context(lm=ga_dspy.extractive_lm()):
        for held, expected in ((PASSAGES, ["Who?"]), ([], [])):
            index = ga_dspy.Index.from_passages(PASSAGES, kind="sparse")
            found = index if held else index.without_passages()
            service = Service(ga_dspy.GraphAnchor(found), examples=["Who?"])
            assert service.about().examples == expected


def test_a_key_with_conditions_learns_only_of_its_own_passages(index: ga_dspy.Index) -> None:
    keys = [
        Key.of(name.encode() * 4, where={"tenant": name}) for name in ("acme", "zenith", "nobody")
    ]
    with dspy.context(lm=ga_dspy.extractive_lm()):
        service = Service(ga_dspy.GraphAnchor(index), examples=["Who owns the Zenith Works?"])
    counts = {"acme": (3, [OURS]), "zenith": (2, [THEIRS]), "nobody": (0, [])}
    with serving(make_app(service, keys=keys)) as url:
        assert httpx.get(f"{url}/about").status_code == 401
        for name, (passages, examples) in counts.items():
            found: Any = httpx.get(f"{url}/about", headers={"X-API-Key": name * 4}).json()
            assert (found["corpus"], found["passages"]) == ("", passages)
            assert found["examples"] == examples


def test_only_the_keys_that_may_read_an_answer_can_save_its_page(index: ga_dspy.Index) -> None:
    keys = [Key.of(name.encode() * 4, where={"tenant": name}) for name in ("acme", "zenith")]
    with asked(index, keys=keys) as client:
        ours, theirs = ({"X-API-Key": name * 4} for name in ("acme", "zenith"))
        record = client.post("/ask", json={"question": "Who built it?"}, headers=ours).json()
        path = f"/runs/{record['id']}/page"
        saved = client.get(path, headers=ours)
        assert saved.text == viewer.page("Who built it?", record)
        assert saved.headers["content-type"].startswith("text/html")
        refused = client.get(path, headers=theirs).status_code, client.get(path).status_code
        assert refused == (404, 401)
