"""Words in tantivy and in an index: build, disk, memory, searches, one thread each.

`pip install tantivy`, then `python tests/measure_words.py 300000`. Each part has a process of its
own. "same words" gives tantivy the words as the index counts them, "own words" the texts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
from measure_scale import peak_mb, synthetic, synthetic_questions

from ga_dspy.retrieval import segments
from ga_dspy.retrieval.engine import LocalEngine, Segment
from ga_dspy.retrieval.postings import TITLE_WEIGHT, mapped, word_keys
from ga_dspy.retrieval.store import PASSAGES, PassageTable

QUERIES, CANDIDATES = 200, 300


def written(folder: str, count: int) -> dict[str, Any]:
    """Write the passages of `make bench ARGS=scale`."""
    PassageTable.of(synthetic(count), Path(folder) / PASSAGES)
    return {}


def ours(folder: str) -> dict[str, Any]:
    """Build the words of an index."""
    table, work = PassageTable.open(Path(folder) / PASSAGES), Path(folder) / "ours"
    work.mkdir()
    begun = time.process_time()
    with mock.patch("os.cpu_count", return_value=1):
        segments.make_engine(table, "sparse", [], work)
    spent = time.process_time() - begun
    return {"build_cpu_s": spent, "build_mb": peak_mb(), "disk_mb": disk(work)}


def ours_searched(folder: str) -> dict[str, Any]:
    """Search them."""
    begun = time.process_time()
    table, work = PassageTable.open(Path(folder) / PASSAGES), Path(folder) / "ours"
    engine = LocalEngine([Segment(0, table, mapped(work), work)])
    opened = time.process_time() - begun

    def search(question: str) -> list[int]:
        rows, scores = engine.best(question, 10)
        return [int(row) for row in rows[np.lexsort((rows, -scores))][:10]]

    def weigh(place: int) -> Any:
        return engine.weigh(questions(table)[place], candidates(len(table), place))

    return {"open_ms": 1000 * opened, **searches(table, search, weigh)}


def _tantivy(folder: str, same: bool) -> tuple[Any, Callable[[str], list[str]], Path]:
    """Return an index of tantivy, the words of a text, and the folder."""
    library: Any = import_module("tantivy")
    work, kinds = Path(folder) / f"tantivy-{same}", library.Tokenizer
    work.mkdir(exist_ok=True)
    analyzer = library.TextAnalyzerBuilder(kinds.whitespace() if same else kinds.simple())
    if not same:
        for each in ("lowercase", "ascii_fold"):
            analyzer = analyzer.filter(getattr(library.Filter, each)())
        for each in ("stopword", "stemmer"):
            analyzer = analyzer.filter(getattr(library.Filter, each)("english"))
    schema = library.SchemaBuilder()
    schema.add_text_field("words", tokenizer_name="ours", index_option="freq")
    schema.add_unsigned_field("row", indexed=True, fast=True)
    index, built = library.Index(schema.build(), path=str(work)), analyzer.build()
    index.register_tokenizer("ours", built)
    return index, lambda text: keyed(text) if same else built.analyze(text), work


def keyed(text: str) -> list[str]:
    """Return the words of a text as an index counts them."""
    return [f"{key:x}" for key in word_keys(text)]


def tantivy(folder: str, same: bool) -> dict[str, Any]:
    """Build an index of tantivy."""
    library: Any = import_module("tantivy")
    table = PassageTable.open(Path(folder) / PASSAGES)
    index, _, work = _tantivy(folder, same)
    begun = time.process_time()
    writer = index.writer(heap_size=256_000_000, num_threads=1)
    for row, passage in enumerate(table):
        text = " ".join([*[passage.title] * TITLE_WEIGHT, passage.text])
        if same:
            text = " ".join([*keyed(passage.title) * TITLE_WEIGHT, *keyed(passage.text)])
        document = library.Document(words=text)
        document.add_unsigned("row", row)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    spent = time.process_time() - begun
    return {"build_cpu_s": spent, "build_mb": peak_mb(), "disk_mb": disk(work)}


def tantivy_searched(folder: str, same: bool) -> dict[str, Any]:
    """Search it."""
    library: Any = import_module("tantivy")
    begun = time.process_time()
    table = PassageTable.open(Path(folder) / PASSAGES)
    index, words, _ = _tantivy(folder, same)
    searcher, query, occur = index.searcher(), library.Query, library.Occur
    opened = time.process_time() - begun

    def terms(question: str) -> list[Any]:
        return [query.term_query(index.schema, "words", word) for word in words(question)]

    def run(asked: Any, most: int) -> Any:
        found = searcher.search(asked, most, count=False).hits
        rows = searcher.fast_field_values("row", [address for _, address in found])
        return rows, [score for score, _ in found]

    def search(question: str) -> list[int]:
        found, _ = run(query.boolean_query([(occur.Should, t) for t in terms(question)]), 10)
        return [int(row) for row in found]

    def weigh(place: int) -> Any:
        rows = candidates(len(table), place).tolist()
        among = query.const_score_query(query.term_set_query(index.schema, "row", rows), 0.0)
        both = [[(occur.Must, t), (occur.Must, among)] for t in terms(questions(table)[place])]
        return [run(query.boolean_query(pair), CANDIDATES) for pair in both]

    found = searches(table, search, weigh)
    return {"open_ms": 1000 * opened, "segments": searcher.num_segments, **found}


def disk(work: Path) -> float:
    """Return the megabytes of a folder."""
    return sum(path.stat().st_size for path in work.rglob("*") if path.is_file()) / 1e6


def candidates(count: int, seed: int) -> Any:
    """Rows that a ranking would score."""
    return np.unique(np.random.default_rng(seed).integers(0, count, CANDIDATES))


def gold_rows(table: PassageTable) -> list[int]:
    """The rows of the passages that the questions name."""
    return [int(row) for row in np.linspace(0, len(table) - 1, QUERIES)]


_QUESTIONS: list[str] = []


def questions(table: PassageTable) -> list[str]:
    """The questions of `make bench ARGS=scale`."""
    if not _QUESTIONS:
        _QUESTIONS.extend(synthetic_questions(table[row] for row in gold_rows(table)))
    return _QUESTIONS


def searches(
    table: PassageTable, search: Callable[[str], list[int]], weigh: Callable[[int], Any]
) -> dict[str, Any]:
    """Run all questions twice; CPU time, median."""
    asked = questions(table)
    _, cold = timed(search, asked)
    found, warm = timed(search, asked)
    _, weighed = timed(weigh, range(len(asked)))
    return {
        "first_ms": cold[0], "cold_ms": float(np.median(cold)), "warm_ms": float(np.median(warm)),
        "warm_p95_ms": float(np.percentile(warm, 95)), "weigh_300_ms": float(np.median(weighed)),
        "search_mb": peak_mb(), "found": found,
        "gold_at_10": sum(r in f for r, f in zip(gold_rows(table), found, strict=True)) / QUERIES,
    }  # fmt: skip


def timed(work: Callable[[Any], Any], items: Sequence[Any]) -> tuple[list[Any], list[float]]:
    """Call for each item; return the results and the CPU milliseconds."""
    results, times = [], []
    for item in items:
        begun = time.process_time()
        results.append(work(item))
        times.append(1000 * (time.process_time() - begun))
    return results, times


def apart(function: str, *arguments: Any) -> dict[str, Any]:
    """Run a function of this file in a process of its own."""
    command = [sys.executable, __file__, function, json.dumps(arguments)]
    return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))


def main(count: int) -> None:
    """Print a column for each of the three."""
    with TemporaryDirectory() as folder:
        apart("written", folder, count)
        columns = {
            "the index": apart("ours", folder) | apart("ours_searched", folder),
            **{
                name: apart("tantivy", folder, same) | apart("tantivy_searched", folder, same)
                for name, same in (("tantivy, same words", True), ("tantivy, own words", False))
            },
        }
    first = columns["the index"]["found"]
    for name, column in columns.items():
        found = column.pop("found")
        alike = sum(len(set(a) & set(b)) for a, b in zip(first, found, strict=True))
        print(name, json.dumps({**column, "alike_at_10": alike / sum(map(len, first))}))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(int(sys.argv[1]))
    else:
        print(json.dumps(globals()[sys.argv[1]](*json.loads(sys.argv[2]))))
