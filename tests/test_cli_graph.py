"""`ga-dspy graph` as a user meets it: what it prints, what it writes, how it fails."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ga_dspy import Schema, extractive_lm
from ga_dspy.cli import main
from ga_dspy.cli.choices import choose_corpus
from ga_dspy.graphrag import GraphIndex, Summaries, build_graph, open_graph
from ga_dspy.graphrag.stored import SUMMARIES
from ga_dspy.passage import Metadata, Passage
from ga_dspy.retrieval import Index

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "ga_dspy" / "demo" / "corpus.jsonl"
PRIVATE = "d043"
"""The passage about the ship that Brunel designed."""

pytest.importorskip("igraph")


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def run(*args: str | Path, cwd: Path) -> Done:
    """Run a command in a process of its own."""
    code = "from ga_dspy.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "graph", *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "80"},
    )
    return Done(done.returncode, done.stdout, done.stderr)


def run_here(*args: str | Path, cwd: Path) -> Done:
    """Run a command in this process, which saves its start."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setenv("COLUMNS", "80")
        patch.setattr(sys, "argv", ["ga-dspy", "graph", *map(str, args)])
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit) as ended:
            main()
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def said(*args: str | Path, cwd: Path, start: Callable[..., Done] = run_here) -> str:
    """What a command prints, its lines joined; it must succeed and keep to 80 columns."""
    done = start(*args, cwd=cwd)
    assert done.code == 0, done.err
    assert all(len(line.rstrip()) <= 80 for line in done.out.splitlines()), done.out
    return " ".join(done.out.split())


def error_of(*args: str | Path, cwd: Path) -> str:
    """The one line on stderr that a command ends with."""
    done = run_here(*args, cwd=cwd)
    assert done.code == 2, done.out
    lines = done.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("ga-dspy: "), done.err
    return lines[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sparse index over the shipped corpus and a file of labels."""
    folder = tmp_path_factory.mktemp("graph")
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    passages = [Passage.model_validate_json(line) for line in lines]
    Index.build(passages, folder / "index", kind="sparse")
    (folder / "labels.json").write_text(json.dumps({PRIVATE: ["yard"], "d999": ["yard"]}))
    return folder


@pytest.fixture(scope="module")
def built(folder: Path) -> str:
    """What the build of `folder / "graph"` printed."""
    return said("build", "--index", "index", "--out", "graph", "--labels", "labels.json",
                "--summaries", cwd=folder)  # fmt: skip


@pytest.fixture
def graph(folder: Path, built: str) -> Path:
    """The folder of a built graph, in which one passage has the label "yard"."""
    assert built
    return folder / "graph"


def test_a_build_prints_its_cost_first_and_its_sizes_last(graph: Path, built: str) -> None:
    stored = open_graph(graph)
    manifest = stored.manifest
    assert re.search(r"to read: 122 passages, about 122 LM calls and [\d,]+ tokens", built)
    assert "run the same command again to resume" in built
    for what, count in (("entities", manifest.entities), ("relations", manifest.relations),
                        ("communities", len(stored.communities))):  # fmt: skip
        assert f"{what} {count}" in built
    assert "failed 0 of 122 passages" in built
    assert re.search(r"seconds [\d.]+ graph graph", built)
    assert "embedded extractive LM" in built


def test_labels_of_an_unknown_passage_are_reported(graph: Path, built: str) -> None:
    assert "has labels, but is not in the index: d999" in built


def test_a_finished_build_makes_no_calls(graph: Path, folder: Path) -> None:
    again = said("build", "--index", "index", "--out", graph, "--labels", "labels.json", cwd=folder)
    assert "to read: nothing, all 122 passages were read before" in again


def test_stats_prints_sizes_relation_wordings_and_central_entities(
    graph: Path, folder: Path
) -> None:
    told = said("stats", graph, "--label", "yard", cwd=folder)
    stored = open_graph(graph)
    assert f"entities {stored.manifest.entities}," in told
    assert f"relations {stored.manifest.relations} in" in told
    assert "born in (" in told and "Robert Louis Stevenson" in told
    public = said("stats", graph, cwd=folder)
    assert f"relations {len(stored.graph.public.relations)} in" in public


def test_show_prints_private_relations_only_with_the_label(graph: Path, folder: Path) -> None:
    ship = "← designed by ← SS Great Britain"
    brunel = "isambard kingdom brunel"
    held = said("show", graph, brunel, "--label", "yard", cwd=folder)
    assert f"{ship} {PRIVATE}" in held
    without = said("show", graph, brunel, cwd=folder)
    assert "Isambard Kingdom Brunel" in without
    assert ship not in without and PRIVATE not in without


def test_show_prints_every_namesake(graph: Path, folder: Path) -> None:
    told = said("show", graph, "River Avon", cwd=folder)
    assert "River Avon (Bristol)" in told and "River Avon (Warwickshire)" in told


def test_an_unknown_name_suggests_similar_names_that_the_caller_may_see(
    graph: Path, folder: Path
) -> None:
    assert "similar names: River Avon (Bristol), River Avon (Warwickshire)" in error_of(
        "show", graph, "Rivver Avon", cwd=folder
    )
    ship = "SS Grate Britain"
    assert "SS Great Britain" not in error_of("show", graph, ship, cwd=folder)
    assert "SS Great Britain" in error_of("show", graph, ship, "--label", "yard", cwd=folder)


def test_paths_prints_the_shortest_paths_with_their_passages(graph: Path, folder: Path) -> None:
    ends = ("Bristol", "Isambard Kingdom Brunel")
    told = said("paths", graph, *ends, "--label", "yard", cwd=folder)
    assert "SS Great Britain" in told and "cost" in told and PRIVATE in told
    assert "SS Great Britain" not in said("paths", graph, *ends, cwd=folder)
    assert "no path of at most" in said("paths", graph, "Bath", "Wernher von Braun", cwd=folder)


def test_communities_are_listed_by_level_with_their_summaries(graph: Path, folder: Path) -> None:
    stored = open_graph(graph)
    first = stored.communities[0]
    listing = said("communities", graph, "--level", "0", "--most", "3", cwd=folder)
    assert f"0 0 {len(first.nodes)} {len(first.edges)}" in listing
    assert f"and {sum(c.level == 0 for c in stored.communities) - 3} more" in listing
    summary = Summaries(graph / SUMMARIES).cached(stored.communities)[first.key]
    assert summary.title in listing and summary.text.split()[0] in listing


def test_merges_are_listed_with_the_rule(graph: Path, folder: Path) -> None:
    assert "Bath, Somerset Bath same name d035" in said("merges", graph, cwd=folder)


def test_an_export_has_only_what_the_caller_may_see(graph: Path, folder: Path) -> None:
    out = folder / "new" / "it.graphml"
    assert "wrote new/it.graphml" in said("export", graph, "--out", "new/it.graphml", cwd=folder)
    told = out.read_text(encoding="utf-8")
    assert "River Avon" in told and "SS Great Britain" not in told


def test_a_page_has_only_what_the_caller_may_see_with_quotes(graph: Path, folder: Path) -> None:
    assert "wrote it.html" in said("view", graph, "--out", "it.html", cwd=folder)
    bare = (folder / "it.html").read_text(encoding="utf-8")
    assert "River Avon" in bare and "timber port" not in bare
    options = ("--index", "index", "--out", "it.html")
    said("view", graph, *options, cwd=folder)
    public = (folder / "it.html").read_text(encoding="utf-8")
    assert "timber port" in public and "screw propeller" not in public
    assert "SS Great Britain" not in public and PRIVATE not in public
    assert Summaries(graph / SUMMARIES).cached(open_graph(graph).communities)
    assert '"title": "' in public.partition('"communities": ')[2].partition("]")[0]
    said("view", graph, *options, "--label", "yard", cwd=folder)
    assert "launched at Bristol" in (folder / "it.html").read_text(encoding="utf-8")


def test_rules_are_applied_without_reading_passages_again(graph: Path, folder: Path) -> None:
    copy = folder / "ruled"
    shutil.copytree(graph, copy)
    rules = {
        "relations": ["flows through", "designed by"],
        "relation_labels": {"designed by": ["city"]},
        "overrides": {"same": [["Bath", "No Such Place"]]},
    }
    (folder / "rules.json").write_text(json.dumps(rules))
    (folder / "open.json").write_text("{}")
    arguments = ("build", "--index", "index", "--out", copy, "--rules", "rules.json")
    told = said(*arguments, "--labels", "open.json", cwd=folder)
    assert "to read: nothing" in told
    assert "kept out" in told and "labels city" in told
    assert "label that no longer restricts anything: yard" in told
    assert "unused override: same: 'Bath' and 'No Such Place'" in told
    stored = open_graph(copy)
    assert {r.relation for r in stored.graph.relations} == {"flows through", "designed by"}
    assert {r.relation for r in stored.graph.public.relations} == {"flows through"}


def test_an_update_prints_what_was_read_and_the_new_sizes(graph: Path, folder: Path) -> None:
    copy = folder / "updated"
    shutil.copytree(graph, copy)
    shutil.copytree(folder / "index", folder / "grown")
    index = Index.open(folder / "grown")
    changed = index.get("d036")
    index.delete(["d036", "d001"])
    index.add([Passage(id="d036", title=changed.title, text=f"{changed.text} It is short."),
               Passage(id="new", title="Zorn", text="The Zorn is a river in France.")])  # fmt: skip
    told = said("update", "--index", "grown", "--graph", copy, cwd=folder)
    assert "read 2 passages passages 122, before 122" in told
    before, after = (open_graph(folder).manifest for folder in (graph, copy))
    assert f"entities {after.entities}, before {before.entities}" in told
    assert open_graph(copy).graph.find("Zorn")
    again = said("update", "--index", "grown", "--graph", copy, cwd=folder)
    assert "read 0 passages" in again
    assert open_graph(copy).manifest.labels == ("yard",)


def test_a_paid_lm_is_not_called_without_consent(folder: Path) -> None:
    args = ("build", "--index", "index", "--out", "paid", "--lm", "openai/m", "--api-base",
            "http://127.0.0.1:9/v1", "--timeout", "1")  # fmt: skip
    assert "--yes" in error_of(*args, cwd=folder)
    assert not (folder / "paid").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("show", "nowhere", "Bath"), "nowhere holds no manifest.json"),
        (("build", "--index", "index", "--out", "x", "--rules", "absent.json"), "absent.json: no"),
        (("build", "--index", "index", "--out", "x", "--rules", "{bad}"), "minimum: Extra inputs"),
        (("build", "--index", "index", "--out", "x", "--labels", "{bad}"), "bad.json: minimum"),
        (("build", "--index", "index", "--out", "x", "--labels", "open.csv"), "Invalid JSON"),
        (("update", "--index", "index", "--graph", "nowhere"), "nowhere holds no manifest.json"),
        (("paths", "{graph}", "Bath", "bath"), "are the same entity"),
        (("export", "{graph}", "--out", "."), "is a folder"),
        (("view", "{graph}", "--out", "."), "is a folder"),
        (("view", "{graph}", "--index", "nowhere"), "nowhere"),
    ],
)
def test_an_error_is_one_clear_line_and_exit_code_2(
    graph: Path, folder: Path, args: tuple[str, ...], message: str
) -> None:
    (folder / "bad.json").write_text('{"minimum": 1}')
    (folder / "open.csv").write_text("passage,labels\nd001,\n")
    told = error_of(*(arg.format(graph=graph, bad="bad.json") for arg in args), cwd=folder)
    assert message in told


def test_an_error_of_the_process_is_one_line_and_exit_code_2_too(folder: Path) -> None:
    done = run("stats", "nowhere", cwd=folder)
    assert done.code == 2 and done.out == ""
    assert len(done.err.splitlines()) == 1 and done.err.startswith("ga-dspy: nowhere holds")


def test_where_restricts_the_graph_of_a_program(tmp_path: Path) -> None:
    texts = {"a": "Ada Lovelace was born in London.", "b": "Otto Brandt was born in Aarhus."}
    rows = [Passage(id=k, text=v, metadata=Metadata({"tenant": k})) for k, v in texts.items()]
    Index.build(rows, tmp_path / "index", encoder="hash-64")
    build_graph(Index.open(tmp_path / "index"), tmp_path / "graph", lm=extractive_lm())
    opened = choose_corpus(tmp_path / "index", tmp_path / "graph", "graph-rag", wanted=["tenant=a"])
    assert isinstance(opened, GraphIndex)
    assert opened.graph.find("Ada Lovelace") and not opened.graph.find("Otto Brandt")


def test_an_unknown_label_is_reported(graph: Path, folder: Path) -> None:
    done = run_here("merges", graph, "--label", "yrad", cwd=folder)
    assert done.code == 0 and "needs the label yrad" in done.err


def test_help_explains_the_rules_file(folder: Path) -> None:
    told = said("build", "--help", cwd=folder)
    for part in ("min_confidence", "relation_labels", "overrides", "critical"):
        assert part in told


# --- A schema, and the cost of a build

SCHEMA = """
entities: {person: a human being, place: a town or a river}
relations: {was born in: [person, place]}
other: drop
"""


def test_a_build_with_a_schema_stops_at_its_cap_and_updates_keep_the_schema(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    asked = ("build", "--index", folder / "index", "--out", "g", "--schema", "schema.yaml",
             "--per-call", "2")  # fmt: skip
    error = error_of(*asked, "--max-calls", "20", cwd=tmp_path)
    assert "a cap was reached after 20 LM calls" in error and "82 of 122 passages are left" in error
    assert error.endswith("Run the same command again to resume: finished passages are kept in g.")
    built = said(*asked, cwd=tmp_path)
    assert "to read: 82 passages, about 41 LM calls" in built and "40 were read before" in built
    manifest = open_graph(tmp_path / "g").manifest
    assert f"dropped {manifest.dropped['outside the schema']} outside the schema" in built
    assert f"cost 61 LM calls, {manifest.tokens:,} tokens" in built
    grounded = f"grounded {manifest.stated} of {manifest.proposed} relations (100.0 %)"
    assert grounded in built and grounded in said("stats", "g", cwd=tmp_path)
    names = {r.relation for r in open_graph(tmp_path / "g").graph.relations}
    assert names == {"was born in"}
    again = said("update", "--index", folder / "index", "--graph", "g", cwd=tmp_path)
    assert "nothing, all 122 passages were read before" in again
    assert "read by" in error_of("build", "--index", folder / "index", "--out", "g", cwd=tmp_path)


def test_a_proposed_schema_is_written_once(folder: Path, tmp_path: Path) -> None:
    asked = ("schema", "propose", "--index", folder / "index", "--out", "s.yaml", "--sample", "4")
    told = said(*asked, cwd=tmp_path)
    assert "person" in told and "wrote s.yaml" in told
    assert "person" in Schema.read(tmp_path / "s.yaml").types
    assert "s.yaml exists" in error_of(*asked, cwd=tmp_path)
    (tmp_path / "s.yaml").write_text("types: [person]")
    error = error_of("build", "--index", folder / "index", "--out", "g2", "--schema", "s.yaml",
                     cwd=tmp_path)  # fmt: skip
    assert "types" in error and "Expected a schema" in error
