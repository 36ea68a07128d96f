"""Fuzzing: what each reader makes of files and replies that were tampered with, by seed.

A target has good files and a reader of them. An input is these files with faults in one: bits
flipped, parts cut out, doubled or mixed, JSON values of other types, pieces that break readers. A
reader may read it, or refuse it by a named error; anything else has escaped, and is to be mended.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import dspy

from ga_dspy import artifact
from ga_dspy.demo import corpus, questions
from ga_dspy.errors import GaDspyError
from ga_dspy.eval import protocol_of, run
from ga_dspy.eval.datasets import load
from ga_dspy.eval.result import RunJournal
from ga_dspy.graph import from_json, linearise, to_json
from ga_dspy.graphrag import build_graph, open_graph
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.lm.replies import read_reply
from ga_dspy.lm.store import CallStore, StoredCall
from ga_dspy.optimize.recipes import recipe
from ga_dspy.programs import GraphAnchor
from ga_dspy.programs.calls import ask, drive
from ga_dspy.programs.loop import wrap_errors
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.settings import read_pairs
from ga_dspy.retrieval import Index, read_passages, segments
from ga_dspy.signatures import AnswerQuestion, GraphProposal, ReadAndJudge
from ga_dspy.testing import asked_fields, scripted_lm

SLOWEST: Final = 2000
"""Milliseconds of CPU time that no input may take."""


class Target(NamedTuple):
    """Good files by path, and what reads a folder of them, of which the named one was changed."""

    name: str
    files: Mapping[str, bytes]
    read: Callable[[Path, str], object]


class Fuzzed(NamedTuple):
    """What a target made of its inputs.

    Attributes:
        target: Its name.
        inputs: How many there were.
        refused: By a named error.
        read: Without an error.
        escaped: With any other error.
        slowest: Milliseconds of CPU time that the slowest took.
        growth: Megabytes by which the most memory of the process grew.
        faults: The errors that escaped, each with the first input that brought it.
    """

    target: str
    inputs: int
    refused: int
    read: int
    escaped: int
    slowest: float
    growth: float
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing escaped and nothing took too long."""
        return not self.escaped and self.slowest < SLOWEST


def fuzz(target: Target, inputs: int, seed: int = 0) -> Fuzzed:
    """Let a target read inputs; each is the same for its number, the seed and the good files."""
    counts, faults, slowest = {"read": 0, "refused": 0, "escaped": 0}, dict[str, str](), 0.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    logging.disable(logging.ERROR)
    with TemporaryDirectory() as place:
        for number in range(inputs):
            folder, outcome = Path(place) / "input", "read"
            name = _write(folder, target.files, random.Random(f"{target.name} {seed} {number}"))
            begun = time.process_time()
            try:
                target.read(folder, name)
            except (GaDspyError, dspy.AdapterParseError):
                outcome = "refused"
            except Exception as error:  # noqa: BLE001 - what escapes is what is sought
                outcome = "escaped"
                text = f"input {number} ({name}): {str(error)[:200]!r}"
                faults.setdefault(f"{target.name}: {type(error).__name__}", text)
            slowest = max(slowest, 1000 * (time.process_time() - begun))
            counts[outcome] += 1
            shutil.rmtree(folder)
    logging.disable(logging.NOTSET)
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    said = tuple(f"{what} at {first}" for what, first in faults.items())
    return Fuzzed(target.name, inputs, **counts, slowest=slowest, growth=growth, faults=said)


def _write(folder: Path, files: Mapping[str, bytes], rng: random.Random) -> str:
    """Write the files with faults in one of them; in half of the inputs the manifest fits it."""
    name = rng.choice(list(files))
    known, new = files[name], _spoilt(rng, files[name], list(files.values()))
    changed = {**files, name: new}
    if name != (about := "manifest.json") and about in files and rng.random() < 0.5:
        digests = [hashlib.sha256(data).hexdigest().encode() for data in (known, new)]
        sizes = [f'"bytes": {len(data)},'.encode() for data in (known, new)]
        changed[about] = files[about].replace(digests[0], digests[1]).replace(sizes[0], sizes[1])
    for path, data in changed.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return name


_PIECES: Final = (
    *(b"\0", b"\xed\xa0\x80", b"\\ud800", b"\xff\xfe", b"1e999", b"-1", b"9" * 5000, b"null"),
    *(b"[" * 5000, b'{"a":' * 5000, b"(" * 2000, b'"', b"\r\n", b",", b"[[ ## answer ## ]]"),
    *(b"->", b"<answer>", b"</think>", b"\xe2\x80\xae", b"=1+1", b"NaN", b"../..", b"[1] " * 500),
    *(b"x" * 100_000, b"<div>" * 2000, b"> " * 1000, b"\xe2\x80\xa8", b"{{", b"\\" * 99, b"|"),
)
_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0.5, 10**400, 1e308, "", "\ud800\0", "x" * 10_000, [], {}, [[]], [None]),
)


def _spoilt(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    if rng.random() < 0.3 and (exchanged := _exchanged(rng, data)):
        return exchanged
    for _ in range(rng.randint(1, 4)):
        start = rng.randint(0, len(data))
        end = min(len(data), start + rng.choice((1, 8, 64, 4096)))
        part, other = data[start:end], rng.choice(others)
        made = (
            bytes(byte ^ 1 << rng.randrange(8) for byte in part[:1]) + part[1:],
            b"",
            part + part,
            rng.choice(_PIECES) + part,
            rng.randbytes(rng.randint(1, 16)),
            other[rng.randint(0, len(other)) :],
        )
        data = data[:start] + rng.choice(made) + rng.choice((data[end:], data[end:], b""))
    return data


def _exchanged(rng: random.Random, data: bytes) -> bytes:
    """A JSON file, or a line of one, with a value somewhere in it exchanged; else nothing."""
    lines = data.split(b"\n") if b"\n{" in data else [data]
    place, key = rng.randrange(len(lines)), 0
    try:
        holder: Any = [json.loads(lines[place])]
    except ValueError:
        return b""
    whole = holder
    while isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.8:
        holder = holder[key]
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key] = rng.choice(_VALUES)
    lines[place] = json.dumps(whole[0]).encode()
    return b"\n".join(lines)


# --- The targets, over the shipped corpus and questions.

_REPLY: Final = {
    "additions": "Entities:\n- Titan (moon; found: 1655) [1]\n- Saturn [2]\nRelations:\n"
    "1. Titan -> moon of -> Saturn (time: 2005) (confidence: 0.9) [1,2]",
    "reasoning": "It holds.", "judgement": "sufficient", "candidate": "Titan", "next_query": "",
    "links": "1", "verdict": "answered", "cited": "1", "answer": "Titan", "guess": "",
}  # fmt: skip


def targets(folder: Path) -> Iterator[Target]:
    """The targets; what they read well is made in an empty folder."""
    asked = json.loads(questions("dev").read_text("utf-8"))[:3]
    (folder / "questions.json").write_text(json.dumps(asked), "utf-8")
    form = "\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in _REPLY.items())
    tags = "\n".join(f"<{name}>{value}</{name}>" for name, value in _REPLY.items())
    replies = _encoded({"form": form, "tags": tags, "json": json.dumps(_REPLY)})
    yield Target("graph lines", {"lines": _REPLY["additions"].encode()}, _read_lines)
    yield Target("replies", replies, _read_replies)
    yield Target("adapters", replies, _ask)
    rows = [passage.model_dump() for passage in corpus()[:6]]
    text = "".join(f"# {row['title']}\n\n- > {row['text']}\n\n" for row in rows)
    page = "".join(f"<h1>{row['title']}</h1><p>{row['text']}<script>" for row in rows)
    table = "".join(f'"{row["id"]}","{row["text"]}"\n' for row in rows)
    files = {"a.jsonl": "\n".join(map(json.dumps, rows)), "a.csv": f"id,text\n{table}",
             "a.json": json.dumps(rows), "a.md": text, "a.txt": text, "a.html": page}  # fmt: skip
    yield Target("passages", _encoded(files), lambda at, name: read_passages(at / name))
    sound = {"hotpotqa": json.dumps(asked), "musique": json.dumps(_MUSIQUE)}
    yield Target("datasets", _encoded(sound), lambda at, name: load(name, at / name))
    index = Index.build(corpus()[:6], folder / "index", kind="sparse")
    lm = scripted_lm(lambda prompt: {name: _REPLY.get(name, "") for name in asked_fields(prompt)})
    with dspy.context(lm=lm):
        program = GraphAnchor(index, max_steps=1)
        artifact.save(program, folder / "artifact")
        build_graph(index, folder / "graph", threads=1)
        examples, source = load("hotpotqa", folder / "questions.json"), folder / "questions.json"
        about = protocol_of(program, examples, name="x", dataset="hotpotqa", source=source, lm=lm)
        run(program, examples, out=folder / "run", protocol=about)
        graph = to_json(program(question="Which moon is Titan?").graph).encode()
    yield Target("artifact", _files(folder / "artifact"), _read_artifact)
    with patch.object(segments, "EXACT", 5):  # so that FAISS indexes them
        Index.build(corpus()[:40], folder / "linked", encoder="hash-16")
    for name, kept in (("index", "index"), ("linked index", "linked")):
        yield Target(name, _files(folder / kept), lambda at, _: Index.open(at)("Titan", 3))
    yield Target("stored graph", _files(folder / "graph"), _read_graph)
    yield Target("graph", {"a": graph}, lambda at, _: linearise(from_json(_text(at / "a"))))
    yield Target("journal", {"a": (folder / "run" / "journal.sqlite").read_bytes()}, _read_run)
    with CallStore(folder / "ledger.sqlite", "compilation") as ledger:
        ledger.keep("key", "task", StoredCall({"outputs": ["Titan"]}, 3, 0.1))
    yield Target("ledger", {"l.sqlite": (folder / "ledger.sqlite").read_bytes()}, _read_ledger)
    yield Target("settings", {"set": b"demos=3 candidates=4 seed=1"}, _read_settings)


_MUSIQUE: Final = {
    "id": "2hop__1_2", "question": "Who?", "answer": "Ada", "answer_aliases": ["A."],
    "paragraphs": [{"idx": 0, "title": "Ada", "paragraph_text": "Ada.", "is_supporting": True}],
}  # fmt: skip


def _encoded(texts: Mapping[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in texts.items()}


def _files(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by their paths in it."""
    every = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in every}


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _read_lines(at: Path, name: str) -> str:
    return GraphProposal.model_validate(_text(at / name)).format()  # type: ignore[no-any-return]


def _read_replies(at: Path, name: str) -> None:
    for signature in (ReadAndJudge, AnswerQuestion):
        read_reply(signature, _text(at / name), ())


def _ask(at: Path, name: str) -> None:
    """A reply as long as an LM's may be, read by one of the adapters."""
    text = _text(at / name)[:20_000]
    kinds = (PlainAdapter, dspy.ChatAdapter, dspy.JSONAdapter, dspy.XMLAdapter)
    inputs, adapter = dict.fromkeys(ReadAndJudge.input_fields, text), kinds[len(text) % 4]()
    with dspy.context(lm=scripted_lm(lambda prompt: text), adapter=adapter):
        asked = ask("read", dspy.Predict(ReadAndJudge), inputs, Meter(), required=("judgement",))
        drive(wrap_errors("read", asked))


def _read_artifact(at: Path, _: str) -> None:
    artifact.verify(at)
    artifact.load(at, retriever=lambda query, k: [])


def _read_graph(at: Path, _: str) -> None:
    stored = open_graph(at)
    len(stored.communities)
    stored.graph.public.find("Titan")


def _read_run(at: Path, name: str) -> None:
    with RunJournal(at / name) as journal:
        journal.results()


def _read_ledger(at: Path, name: str) -> None:
    with CallStore(at / name, "compilation") as ledger, ledger.turn("key"):
        pass


def _read_settings(at: Path, name: str) -> None:
    recipe("bootstrap-rs", **read_pairs(_text(at / name).split(), "--set"))
