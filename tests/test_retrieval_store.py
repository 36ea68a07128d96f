"""An index in a folder: whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import string
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import dspy
import faiss
import numpy as np
import pyarrow
import pytest

from ga_dspy.errors import DamagedFile, InputError, InUse, UnknownFormat
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index, segments
from ga_dspy.retrieval.encoders import HashEncoder, as_encoder, load_encoder
from ga_dspy.retrieval.postings import KINDS
from ga_dspy.retrieval.store import writing

TOWNS = [
    Passage(id=f"t{i}", title=f"Town {i}", text=f"Town {i} lies on river{i % 5} near Peak {i % 3}.")
    for i in range(40)
]


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ga_dspy.retrieval.encoders.SHARD", 8)


def build(folder: Path, passages: Sequence[Passage] = TOWNS, **more: Any) -> Index:
    return Index.build(passages, folder, **{"encoder": "hash-64", **more})


@pytest.mark.parametrize("kind", KINDS)
def test_an_opened_index_searches_like_the_one_in_memory(kind: str, tmp_path: Path) -> None:
    build(tmp_path / "index", kind=kind)
    opened = Index.open(tmp_path / "index")
    memory = Index.from_passages(TOWNS, kind=kind, encoder="hash-64")
    for query in ("river3 near Peak 1", "Town 7", "what lies on river2?"):
        assert opened.search(query, 6) == memory.search(query, 6)
    assert (opened.kind, len(opened), list(opened)) == (kind, 40, TOWNS)


def forge(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change a file, and the manifest so that it fits."""
    (path,) = folder.rglob(name)
    manifest = json.loads((folder / "manifest.json").read_text())
    path.write_bytes(change(path.read_bytes()))
    data = path.read_bytes()
    record = manifest["files"][str(path.relative_to(folder))]
    record.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    (folder / "manifest.json").write_text(json.dumps(manifest))


def pointing_beyond(data: bytes) -> bytes:
    """A table in which all texts but the last end far behind what the file holds."""
    table = pyarrow.ipc.open_file(data).read_all()
    for place, name in enumerate(table.column_names):
        (texts,) = table[name].chunks
        ends = np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1).copy()
        ends[1:-1] += 2**40 * (name == "text")
        buffers = [None, pyarrow.py_buffer(ends.tobytes()), texts.buffers()[2]]
        forged = pyarrow.Array.from_buffers(texts.type, len(texts), buffers)
        table = table.set_column(place, name, forged)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("passages.arrow", pointing_beyond),
        ("words.starts.i8", lambda data: data[:-16]),
        ("words.rows.i4", lambda data: data[:-4]),
        ("words.counts.u2", lambda data: data + b"\0\0"),
        ("words.rows.i4", lambda data: b"\xff\xff\xff\x7f" * (len(data) // 4)),
    ],
)
def test_inconsistent_tables_are_refused_even_with_a_matching_manifest(
    name: str, change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    build(tmp_path / "index", kind="sparse")
    forge(tmp_path / "index", name, change)
    with pytest.raises(DamagedFile, match="build it again"):
        Index.open(tmp_path / "index")("Town 7 on river2")


def beyond(data: bytes) -> bytes:
    """Lists of which all but the first and the last begin far behind the table."""
    starts = np.frombuffer(data, np.int64).copy()
    starts[1:-1:2] += 2**36
    return starts.tobytes()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("aliases.starts.i8", beyond),
        ("spans.of.i8", beyond),
        ("vectors.f4", lambda data: data[: len(data) // 2]),
        ("nearest.faiss", lambda data: data[:200]),
    ],
)
def test_inconsistent_lists_and_vectors_are_refused_without_using_memory(
    name: str, change: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "EXACT", 20)
    build(tmp_path / "index", kind="linked")
    forge(tmp_path / "index", name, change)
    query = " and ".join(f"Town {place} on river{place} near Peak {place}" for place in range(40))
    with pytest.raises(DamagedFile, match="build it again"):
        Index.open(tmp_path / "index")(query)


def test_faiss_allocates_no_more_memory_than_the_file_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, limits = faiss.read_index, list[int]()

    def reading(path: str, flags: int) -> Any:
        limits.append(faiss.get_deserialization_vector_byte_limit())
        return read(path, flags)

    monkeypatch.setattr(segments, "EXACT", 20)
    monkeypatch.setattr(faiss, "read_index", reading)
    usual = faiss.get_deserialization_vector_byte_limit()
    build(tmp_path / "index", kind="dense")
    Index.open(tmp_path / "index")
    (file,) = tmp_path.rglob("nearest.faiss")
    assert {*limits} == {file.stat().st_size}
    assert faiss.get_deserialization_vector_byte_limit() == usual


def test_changes_persist_when_the_index_is_reopened(tmp_path: Path) -> None:
    index = build(tmp_path / "index")
    index.add([Passage(id="new", title="Harbour", text="A lighthouse.")])
    index.delete(["t7", "t8"])
    opened = Index.open(tmp_path / "index")
    assert opened.search("lighthouse in Town 7", 5) == index.search("lighthouse in Town 7", 5)
    assert [opened.manifest.generation, opened.manifest.passages, len(opened)] == [2, 39, 39]
    opened.verify()
    assert len(list((tmp_path / "index").glob("contents-*"))) == 1


def test_a_change_succeeds_even_if_old_contents_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("busy")

    index = build(tmp_path / "index")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", refuse)
        index.delete(["t1"])
    index.delete(["t2"])
    assert len(Index.open(tmp_path / "index")) == 38
    assert len(list((tmp_path / "index").glob("contents-*"))) == 1


def test_a_change_to_an_index_changed_by_another_process_is_refused(tmp_path: Path) -> None:
    one, other = build(tmp_path / "index"), Index.open(tmp_path / "index")
    one.delete(["t1"])
    with pytest.raises(InUse, match="open it again"):
        other.delete(["t2"])
    assert other(TOWNS[1].text, 1)[0].id == "t1"


def test_two_writers_at_once_are_refused(tmp_path: Path) -> None:
    index = build(tmp_path / "index")
    with (
        writing(tmp_path / "index"),
        pytest.raises(InUse, match="being written by another process"),
    ):
        index.delete(["t1"])


def test_rebuilding_the_same_index_opens_it_and_a_different_one_is_refused(tmp_path: Path) -> None:
    build(tmp_path / "index", encoder=counted())
    again = counted()
    build(tmp_path / "index", encoder=again)
    assert again.texts == 0
    with pytest.raises(InputError, match=r"already holds .*40 passages"):
        build(tmp_path / "index", TOWNS[:5])


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match=r"already holds .*thesis\.txt"):
        build(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


BUILD = """
    import os, signal, sys, time
    from pathlib import Path
    from ga_dspy.passage import Passage
    from ga_dspy.retrieval import Index
    from ga_dspy.retrieval.encoders import HashEncoder

    class Slow(HashEncoder):
        def encode(self, texts):
            if stop_at == "encoding" and len(list(work.glob("*.npy"))) == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().encode(texts)

    folder, stop_at = Path(sys.argv[1]), sys.argv[2]
    work = folder / ".building"
    towns = [
        Passage(
            id=f"t{i}", title=f"Town {i}", text=f"Town {i} lies on river{i % 5} near Peak {i % 3}."
        )
        for i in range(40)
    ]
    if stop_at == "writing":
        import ga_dspy.storage as storage
        storage.write_atomically = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    if stop_at == "adding":
        index = Index.open(folder)
        import ga_dspy.storage as storage
        storage.write_atomically = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        index.add([Passage(id="new", text="A lighthouse.")])
    import ga_dspy.retrieval.encoders as encoders
    encoders.SHARD = 8
    Index.build(towns, folder, encoder=Slow(64))
"""


def killed(folder: Path, stop_at: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BUILD), str(folder), stop_at],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr


def test_a_build_killed_while_encoding_resumes_without_encoding_again(tmp_path: Path) -> None:
    killed(tmp_path / "index", "encoding")
    with pytest.raises(InputError, match="run the same build again"):
        Index.open(tmp_path / "index")
    encoder = counted()
    index = build(tmp_path / "index", encoder=encoder)
    assert encoder.texts == 40 - 3 * 8
    assert index.search("Town 7", 3) == Index.from_passages(TOWNS, encoder=counted()).search(
        "Town 7", 3
    )
    assert not (tmp_path / "index" / ".building").exists()


def test_a_build_killed_before_the_last_step_is_not_opened_and_loses_no_vector(
    tmp_path: Path,
) -> None:
    killed(tmp_path / "index", "writing")
    with pytest.raises(InputError, match="an unfinished build"):
        Index.open(tmp_path / "index")
    encoder = counted()
    build(tmp_path / "index", encoder=encoder).verify()
    assert encoder.texts == 0


def test_a_killed_add_leaves_the_old_index(tmp_path: Path) -> None:
    build(tmp_path / "index")
    killed(tmp_path / "index", "adding")
    index = Index.open(tmp_path / "index")
    index.verify()
    assert len(index) == 40
    index.add([Passage(id="new", text="A lighthouse.")])
    assert index("lighthouse", 1)[0].id == "new"
    assert len(list((tmp_path / "index").glob("contents-*"))) == 1


def test_a_shard_that_a_power_failure_emptied_is_encoded_again(tmp_path: Path) -> None:
    killed(tmp_path / "index", "encoding")
    next((tmp_path / "index" / ".building").glob("*.npy")).write_bytes(b"")
    encoder = counted()
    build(tmp_path / "index", encoder=encoder)
    assert encoder.texts == 40 - 2 * 8


@pytest.mark.parametrize("name", ["passages.arrow", "vectors.f4", "words.rows.i4", "spans.keys.u8"])
def test_a_truncated_or_missing_file_is_detected_on_opening(name: str, tmp_path: Path) -> None:
    build(tmp_path / "index")
    path = tmp_path / "index" / "contents-000000" / "0000" / name
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(DamagedFile, match=f"{path.name} has .* bytes"):
        Index.open(tmp_path / "index")
    path.unlink()
    with pytest.raises(DamagedFile, match="is missing"):
        Index.open(tmp_path / "index")


def test_a_changed_byte_is_detected_on_opening_a_small_index_and_by_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "index")
    path = tmp_path / "index" / "contents-000000" / "0000" / "vectors.f4"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFile, match=r"vectors\.f4 has SHA-256"):
        Index.open(tmp_path / "index")
    monkeypatch.setattr("ga_dspy.storage._HASHED_BY_DEFAULT", 0)
    index = Index.open(tmp_path / "index")
    with pytest.raises(DamagedFile, match="SHA-256"):
        index.verify()


def test_a_folder_without_an_index_and_a_foreign_manifest_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"manifest\.json"):
        Index.open(tmp_path / "nowhere")
    build(tmp_path / "index")
    manifest = tmp_path / "index" / "manifest.json"
    saved = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**saved, "format": 99}))
    with pytest.raises(UnknownFormat, match="format"):
        Index.open(tmp_path / "index")
    manifest.write_text("{")
    with pytest.raises(UnknownFormat, match="is not the manifest of an index of format 3"):
        Index.open(tmp_path / "index")


def test_an_encoder_other_than_the_vectors_own_is_refused(tmp_path: Path) -> None:
    build(tmp_path / "index")
    with pytest.raises(InputError, match=r"'hash-32'.*'hash-64'"):
        Index.open(tmp_path / "index", encoder=HashEncoder(32))


def test_opening_an_index_with_a_custom_encoder_requires_passing_it(tmp_path: Path) -> None:
    build(tmp_path / "index", encoder=Own())
    with pytest.raises(InputError, match="'own'"):
        Index.open(tmp_path / "index")
    assert Index.open(tmp_path / "index", encoder=Own())("Town 7", 1)[0].id == "t7"


def letters(texts: list[str]) -> list[list[float]]:
    """How often each letter and digit stands in a text: not normalised, not even an array."""
    return [[float(text.lower().count(c)) for c in string.printable[:36]] for text in texts]


@pytest.mark.parametrize(
    "encoder", [letters, dspy.Embedder(letters, caching=False), SimpleNamespace(encode=letters)]
)
def test_a_function_or_a_dspy_embedder_can_be_the_encoder(encoder: Any, tmp_path: Path) -> None:
    index = build(tmp_path / "index", encoder=encoder)
    assert index("Town 7", 1)[0].id == "t7"
    assert (index.encoder and index.encoder.name) == "letters"
    with pytest.raises(InputError, match=r"built with 'letters'.*encoder="):
        Index.open(tmp_path / "index")
    opened = Index.open(tmp_path / "index", encoder=encoder)
    assert opened.search("Town 7", 3) == index.search("Town 7", 3)
    assert pickle.loads(cloudpickle.dumps(opened)).search("Town 7", 3) == index.search("Town 7", 3)
    in_memory = Index.from_passages(TOWNS, encoder=encoder)
    copied = pickle.loads(cloudpickle.dumps(in_memory))
    assert copied.search("Town 7", 3) == index.search("Town 7", 3)


def test_a_dspy_embedder_is_named_after_its_model() -> None:
    assert as_encoder(dspy.Embedder("openai/some-model")).name == "openai/some-model"


def test_another_function_of_the_same_name_is_refused(tmp_path: Path) -> None:
    build(tmp_path / "index", encoder=lambda texts: letters(texts))
    with pytest.raises(InputError, match=r"<lambda>.*another vector"):
        Index.open(tmp_path / "index", encoder=lambda texts: letters([t[::3] for t in texts]))
    with pytest.raises(InputError, match=r"has fingerprint"):
        Index.open(tmp_path / "index", encoder=lambda texts: [v[:9] for v in letters(texts)])


@pytest.mark.parametrize("output", [[1.0, 2.0], [[1.0, 2.0]], [[0.0, 0.0]] * 40])
def test_a_function_that_does_not_return_one_vector_per_text_is_named(output: Any) -> None:
    with pytest.raises(InputError, match=r"encoder .*lambda.* returned"):
        Index.from_passages(TOWNS, encoder=lambda texts: output)


@pytest.mark.parametrize("encoder", [None, 5, b"name", HashEncoder])
def test_an_object_that_is_not_an_encoder_is_refused(encoder: Any) -> None:
    with pytest.raises(InputError, match=r"is not an encoder.*dspy\.Embedder"):
        Index.from_passages(TOWNS, encoder=encoder)


def test_an_encoder_with_changed_weights_is_refused_at_the_first_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "index")
    monkeypatch.setattr(
        "ga_dspy.retrieval.encoders.load_encoder", lambda name: load_encoder("hash-32")
    )
    with pytest.raises(InputError, match="has fingerprint"):
        Index.open(tmp_path / "index")("Town 7", 1)


def test_a_sparse_index_needs_no_encoder(tmp_path: Path) -> None:
    index = build(tmp_path / "index", kind="sparse", encoder="no/such-model")
    assert index.manifest.encoder is None
    assert Index.open(tmp_path / "index")("Town 7", 1)[0].id == "t7"


def counted() -> Any:
    class Counted(HashEncoder):
        texts = 0

        def encode(self, texts: Sequence[str]) -> Any:
            self.texts += len(texts)
            return super().encode(texts)

    return Counted(64)


class Own:
    """An encoder that no name loads."""

    name, fingerprint, dimension = "own", "own-1", 64

    def encode(self, texts: Sequence[str]) -> Any:
        return HashEncoder(64).encode(texts)

    def encode_query(self, text: str) -> Any:
        return HashEncoder(64).encode_query(text)
