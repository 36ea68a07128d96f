"""What an index of many synthetic passages costs: its build, memory, disk, each search.

Beside it the bare searches of FAISS and bm25s over the same vectors and words. Every part has a
process of its own; memory is the highest resident of each, files mapped into it included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import RunAborted
from ga_dspy.passage import Passage
from ga_dspy.retrieval.engine import K1, B
from ga_dspy.retrieval.index import Index
from ga_dspy.retrieval.postings import KINDS, word_keys

_STOPWORDS = (
    "the of and in to a was is for as on with by he at from his an were are which that it also"
).split()
_SYLLABLES = tuple(first + last for first in "bdfgklmnprstvzhj" for last in ("a", "e", "in", "or"))
_VOCABULARY, _BLOCK = 100_000, 4096


def synthetic(count: int, words: int = 80, seed: int = 0) -> Iterator[Passage]:
    """Make passages of pseudo-words, frequent and rare as Zipf has it, that mention one another.

    Each has a title of its own, mentions three others, popular ones more often, and a name that
    about five passages share.

    Args:
        count: How many.
        words: Words of text in each.
        seed: Another gives another corpus.
    """
    drawn = _Zipf()
    for first in range(0, count, _BLOCK):
        rng = np.random.default_rng((seed, first))
        size = min(_BLOCK, count - first)
        texts = drawn.words(rng, (size, words))
        popular = (count * rng.random((size, 3)) ** 2).astype(np.int64)
        shared = rng.integers(0, max(count // 5, 1), size)
        for row in range(size):
            title, text = name_of(first + row), texts[row].tolist()
            a, b, c = (name_of(int(other)) for other in popular[row])
            third = words // 3
            yield Passage(
                id=str(first + row),
                title=title,
                text=f"{title} {' '.join(text[:third])} {a}. The {' '.join(text[third:-third])} "
                f"{b} by {name_of(int(shared[row]), of=3)}. In {c} {' '.join(text[-third:])}.",
            )


def synthetic_questions(passages: Iterable[Passage], seed: int = 0) -> Iterator[str]:
    """Make of each passage a question that names it, with words that stand in it."""
    rng = np.random.default_rng(seed)
    for passage in passages:
        words = [word for word in passage.text.split() if word.isalpha() and word.islower()]
        a, b, c = rng.choice(words, 3).tolist()
        yield f"Which {a} of the {b} was the {c} by {passage.title}?"


def name_of(number: int, of: int = 1) -> str:
    """A capitalised name of two words that no other number has."""
    mixed = (number * 2_654_435_761 * of) % (1 << 32)
    return " ".join(_syllables(part, 3).capitalize() for part in divmod(mixed, 1 << 16))


def _syllables(number: int, count: int) -> str:
    return "".join(_SYLLABLES[(number >> 6 * place) % len(_SYLLABLES)] for place in range(count))


class _Zipf:
    def __init__(self) -> None:
        ranks = np.arange(_VOCABULARY)
        self._sums = np.cumsum(1 / (ranks + 2.7) ** 1.05)
        rare = (_syllables(rank, 2 + (rank > 4000)) for rank in ranks[len(_STOPWORDS) :].tolist())
        self._words = np.array([*_STOPWORDS, *rare], dtype=object)

    def words(self, rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.object_]:
        """Words drawn at random."""
        found: NDArray[np.object_] = self._words[
            np.searchsorted(self._sums, rng.random(shape) * self._sums[-1])
        ]
        return found


# --- What an index of it costs


def scale(folder: Path, count: int, words: int, encoder: str, queries: int) -> dict[str, Any]:
    """Build an index of a synthetic corpus in a folder, search it, and say what that took.

    Each part runs in a process of its own, whose highest resident memory is told. `faiss` is a bare
    FAISS search of the same vectors, `bm25` a bare one of bm25s over the same words.
    """
    built = _apart("_built", str(folder), count, words, encoder)
    disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    index = Index.open(folder)
    spread = np.linspace(0, len(index) - 1, queries).astype(int)
    questions = list(synthetic_questions(index.engine.passages(spread.tolist())))
    bare = _apart("_bare", str(folder), questions)
    searched = _apart("_searched", str(folder), questions, words)
    return {"passages": count, **built, "disk_mb": disk, **searched, **bare}


def _apart(function: str, *args: Any) -> dict[str, Any]:
    """Run a function of this file in a process of its own; with what it returns."""
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, __file__, function, json.dumps(args)],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RunAborted(
            f"{function} ended with {done.returncode}: {done.stderr.strip()[-300:]}",
            expected="enough memory and disk for so many passages",
            remedy="measure fewer",
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _built(folder: str, count: int, words: int, encoder: str) -> dict[str, Any]:
    begun = now = time.perf_counter()
    parts: dict[str, float] = {}
    stage = "reading"

    def progress(name: str, done: int, total: int) -> None:
        nonlocal stage, now
        if name != stage:
            later = time.perf_counter()
            parts[stage] = parts.get(stage, 0.0) + later - now
            stage, now = name, later

    Index.build(synthetic(count, words), folder, encoder=encoder, progress=progress)
    progress("end", 0, 0)
    return {
        "build_s": time.perf_counter() - begun,
        "build_parts_s": parts,
        "build_rss_mb": peak_mb(),
    }


def _searched(folder: str, questions: list[str], words: int) -> dict[str, Any]:
    begun = time.perf_counter()
    index = Index.open(folder)
    opened = time.perf_counter() - begun
    found: dict[str, Any] = {}
    for kind in KINDS:
        found[kind] = _pace(partial(index.as_kind(kind).search, k=10), questions)
    peak = peak_mb()
    new = list(synthetic(100, words, seed=1))
    new = [p.model_copy(update={"id": f"new {p.id}", "title": f"New {p.title}"}) for p in new]
    begun = time.perf_counter()
    index.add(new)
    added = time.perf_counter()
    index.delete([passage.id for passage in new])
    deleted = time.perf_counter()
    changes = {"add_100_s": added - begun, "delete_100_s": deleted - added}
    return {"open_s": opened, "rss_mb": peak, **found, **changes}


def _bare(folder: str, questions: list[str]) -> dict[str, Any]:
    """The same vectors in FAISS and the same words in bm25s, without anything around them."""
    import bm25s
    import faiss

    engine = Index.open(folder).engine
    near = engine.segments[0].near
    if near is None:
        vectors = engine.vectors(engine.rows())
        near = faiss.IndexFlatIP(vectors.shape[1])
        near.add(vectors)
    encoder = Index.open(folder).encoder
    encoded = {q: encoder.encode_query(q)[None, :] for q in questions} if encoder else {}
    (table,) = engine.tables["words"]
    often, counts = np.diff(table.starts), np.asarray(table.counts, dtype=np.float32)
    idf = np.log(1 + (engine.size - often + 0.5) / (often + 0.5)).astype(np.float32)
    model = bm25s.BM25(k1=K1, b=B)
    model.nonoccurrence_array = None
    model.scores = {
        "data": np.repeat(idf, often) * counts / (counts + engine.norm[table.rows]),
        "indices": np.asarray(table.rows),
        "indptr": np.asarray(table.starts),
        "num_docs": engine.size,
    }

    def words(question: str) -> Any:
        keys = np.array(word_keys(question), dtype=np.uint64)
        places = np.searchsorted(table.keys, keys)
        scores = model.get_scores_from_ids(places[table.keys[places] == keys])
        return np.argpartition(scores, -10)[-10:]

    return {
        "faiss": _pace(lambda question: near.search(encoded[question], 10), questions),
        "bm25": _pace(words, questions),
    }


def _pace(search: Callable[[str], Any], questions: Sequence[str]) -> dict[str, float]:
    """Ask all questions, the first tenth twice: caches are warm as they are in use."""
    for question in questions[: len(questions) // 10 + 1]:
        search(question)
    times = []
    for question in questions:
        begun = time.perf_counter()
        search(question)
        times.append(1000 * (time.perf_counter() - begun))
    return dict(zip(("p50_ms", "p95_ms"), np.percentile(times, (50, 95)).tolist(), strict=True))


def peak_mb() -> float:
    """The highest resident memory of this process, files mapped into it included."""
    status = Path("/proc/self/status")
    if status.is_file():  # what `getrusage` says may be that of the process before
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":  # a part, in a process of its own
    what, arguments = sys.argv[1:]
    print(json.dumps(globals()[what](*json.loads(arguments))))
