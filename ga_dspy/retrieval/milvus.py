"""The engine of an index on a cluster: Milvus finds words, vectors and names, and keeps the links.

The folder of an index is where it is built and changed; what a search reads is published to a
collection, a row a passage: its words as Milvus's own BM25 takes them, its vector, the keys of its
names, its strongest links. The folder's manifest names the collection and is all that a machine
needs to search there.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import InputError, RunAborted, require
from ga_dspy.passage import Passage
from ga_dspy.retrieval.analysis import TITLE_WEIGHT, alias_keys, mentioned_in, word_keys
from ga_dspy.retrieval.engine import K1, MOST_TARGETS, B, Links, LocalEngine, Weights
from ga_dspy.retrieval.postings import Rows
from ga_dspy.retrieval.store import COLUMNS, Published, metadata_json, passage_of
from ga_dspy.secrets import without_password

BATCH: Final = 500
"""Rows that are sent at once."""

MOST_LINKS: Final = 1000
"""The links that are kept of a row, the strongest; walks go no further from one."""

_LONGEST: Final = 65_535
"""Bytes that Milvus takes for a text."""

_MOST_FOUND: Final = 16_384


class MilvusEngine:
    """A collection of passages on a Milvus server, or in a file of Milvus Lite.

    Args:
        published: Where they are.
        passages: How many it holds.
    """

    def __init__(self, published: Published, passages: int) -> None:
        self.uri, self.collection = published.uri, published.collection
        self.parts, self.size, self.length = published.parts, published.size, published.length
        self._published, self._passages = published, passages
        self._client = _connected(published.uri)
        self._word = lru_cache(maxsize=4096)(self._statistics)
        self._ask("load_collection")

    def __len__(self) -> int:
        return self._passages

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the address."""
        return MilvusEngine, (self._published, self._passages)

    def holds(self, part: str) -> bool:
        """Whether the collection has "words", "vectors", "aliases" or "mentions"."""
        return part in self.parts

    def stored(self) -> int:
        """How many rows the collection has now."""
        (record,) = self._ask("query", filter="", output_fields=["count(*)"])
        return int(record["count(*)"])

    def few(self) -> None:
        """None: what is kept at hand could change in the collection."""
        return

    def rows(self) -> Rows:
        """All rows, ascending."""
        found = (
            self._rows(f"row >= {at} and row < {at + _MOST_FOUND}")
            for at in range(0, self.size, _MOST_FOUND)
        )
        return _sorted(record["row"] for part in found for record in part)

    def row(self, id: str) -> int | None:
        """The row of an id; None where there is none."""
        found = self._rows(f"id == {json.dumps(id)}", most=1)
        return int(found[0]["row"]) if found else None

    def restricted(self, where: str) -> MilvusEngine:
        """Refuse conditions on metadata.

        Raises:
            InputError: Always: the collection cannot leave their words, names and links out.
        """
        raise InputError(
            "conditions on metadata over passages that are searched in Milvus",
            expected="an index that is searched in its folder",
            remedy="build one for each group of passages, or without milvus=…",
        )

    def _ask(self, what: str, **arguments: Any) -> Any:
        """Have the client do something with the collection.

        Raises:
            RunAborted: The server fails.
        """
        with _answering(self.uri):
            return getattr(self._client, what)(collection_name=self.collection, **arguments)

    def _rows(self, condition: str, fields: Sequence[str] = (), most: int = _MOST_FOUND) -> Any:
        return self._ask("query", filter=condition, output_fields=["row", *fields], limit=most)

    def _fields(self, rows: Sequence[int] | Rows, *fields: str) -> dict[int, Any]:
        """Fields of given rows, by row."""
        ids = [int(row) for row in rows]
        found: dict[int, Any] = {}
        for at in range(0, len(ids), _MOST_FOUND):
            part = ids[at : at + _MOST_FOUND]
            for record in self._ask("get", ids=part, output_fields=["row", *fields]):
                found[record["row"]] = record
        return found

    def _search(self, field: str, data: Any, count: int, condition: str = "") -> tuple[Any, Any]:
        count = min(max(count, 1), _MOST_FOUND)
        (found,) = self._ask(
            "search", data=[data], anns_field=field, limit=count, filter=condition,
            output_fields=["row"],
        )  # fmt: skip
        rows = np.array([hit["row"] for hit in found], dtype=np.int64)
        scores = np.array([hit["distance"] for hit in found], dtype=np.float32)
        # Robertson's BM25, and negative in Milvus Lite; Lucene's leaves a constant factor out.
        return rows, np.abs(scores) / np.float32(K1 + 1) if field == "words" else scores

    # --- Words

    def _statistics(self, key: int) -> tuple[int, float, float]:
        """In how many rows a word stands, its inverse document frequency, its highest weight."""
        (record,) = self._ask("query", filter=_holds(key), output_fields=["count(*)"])
        count = int(record["count(*)"])
        idf = float(np.log(1 + (len(self) - count + 0.5) / (count + 0.5)))
        _, scores = self._search("words", _term(key), 1)
        return count, idf, float(scores.max(initial=0.0))

    def best(self, query: str, count: int) -> tuple[Rows, NDArray[np.float32]]:
        """The rows with the `count` highest BM25 scores, and these."""
        terms = _terms(word_keys(query))
        return self._search("words", terms, count) if terms else _NOTHING

    def weigh(self, query: str, rows: Rows) -> Weights:
        """The BM25 weight of each of the query's words in given rows."""
        asked = {k: n for k, n in Counter(word_keys(query)).items() if self._word(k)[0]}
        cells = np.zeros((len(asked), len(rows)), dtype=np.float32)
        texts = self._fields(rows, "terms") if asked else {}
        for place, row in enumerate(rows.tolist() if asked else ()):
            terms = texts[row]["terms"].split()
            norm = K1 * (1 - B + B * len(terms) / self.length)
            for line, key in enumerate(asked):
                often = terms.count(_term(key))
                cells[line, place] = self._word(key)[1] * often / (often + norm)
        times = np.array(list(asked.values()), dtype=np.float32)
        return Weights(cells, times, np.array([self._word(key)[2] for key in asked], np.float32))

    # --- Vectors

    def nearest(self, vector: NDArray[np.float32], count: int) -> Rows:
        """The rows nearest to a unit vector, best first."""
        return self._search("vector", vector.tolist(), count)[0]  # type: ignore[no-any-return]

    def cosines(self, vector: NDArray[np.float32], rows: Rows) -> NDArray[np.float32]:
        """The cosine of given rows with a unit vector."""
        found = np.zeros(len(rows), dtype=np.float32)
        if len(rows):
            among = f"row in {rows.tolist()}"
            close, scores = self._search("vector", vector.tolist(), len(rows), among)
            score = dict(zip(close.tolist(), scores.tolist(), strict=True))
            found[:] = [score.get(row, 0.0) for row in rows.tolist()]
        return found

    # --- Names and links

    def _named(self, keys: Sequence[int]) -> dict[int, set[int]]:
        """The rows that go by each key; those of too many passages name none."""
        wanted = set(keys)
        found: dict[int, set[int]] = {}
        signed = _signed(wanted)
        for at in range(0, len(signed), BATCH):
            among = f"array_contains_any(aliases, {signed[at : at + BATCH]})"
            for record in self._rows(among, ["aliases"]):
                for key in np.array(record["aliases"], np.int64).view(np.uint64).tolist():
                    if key in wanted:
                        found.setdefault(key, set()).add(record["row"])
        return {key: rows for key, rows in found.items() if len(rows) <= MOST_TARGETS}

    def named(self, text: str) -> Rows:
        """The rows whose name stands in a text, ascending."""
        tried: set[int] = set()

        def note(keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
            tried.update(keys.tolist())
            return np.zeros(len(keys), dtype=np.bool_)

        mentioned_in([text], note)
        rows_of = self._named(sorted(tried))
        known = np.array(sorted(rows_of), dtype=np.uint64)
        _, keys = mentioned_in([text], lambda keys: np.isin(keys, known))
        return _sorted(row for key in keys.tolist() for row in rows_of[key])

    def links(self, rows: Rows, faint: NDArray[np.float64]) -> Links:
        """The links of given rows, without those of less than a share of a row's total."""
        found = self._fields(rows, "links", "weights", "total")
        total = np.array([found[row]["total"] for row in rows.tolist()], dtype=np.float64)
        targets = [np.array(found[row]["links"], dtype=np.int64) for row in rows.tolist()]
        weights = [np.array(found[row]["weights"], dtype=np.float64) for row in rows.tolist()]
        source = np.repeat(np.arange(len(rows)), [len(each) for each in targets])
        target = np.concatenate([*targets, _NO_LINKS.target])
        weight = np.concatenate([*weights, _NO_LINKS.weight])
        strong = weight >= (faint * total)[source]
        return Links(source[strong], target[strong], weight[strong], total)

    def passages(self, rows: Sequence[int]) -> list[Passage]:
        """The passages of given rows."""
        rows = list(rows)
        found = self._fields(rows, *COLUMNS)
        return [passage_of(found[row]) for row in rows]


_NO_LINKS: Final = Links(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
_NOTHING: Final = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)


def _sorted(rows: Any) -> Rows:
    return np.unique(np.fromiter(rows, dtype=np.int64))


def _term(key: int) -> str:
    return f"t{key:x}"


def _terms(keys: Sequence[int]) -> str:
    return " ".join(map(_term, keys))


def _holds(key: int) -> str:
    return f"TEXT_MATCH(terms, '{_term(key)}')"


def _signed(keys: Iterable[int]) -> list[int]:
    """Keys as Milvus keeps them, ascending."""
    return sorted(np.fromiter(keys, dtype=np.uint64).view(np.int64).tolist())


@contextmanager
def _answering(uri: str) -> Iterator[None]:
    try:
        yield
    except (require("pymilvus", "cluster").exceptions.MilvusException, OSError) as error:
        raise RunAborted(
            f"no answer from Milvus at {without_password(uri)} ({error})",
            expected="a running server that holds the collection, or a file that ends in .db",
            remedy="check --uri; a file of Milvus Lite serves one process",
        ) from error


@lru_cache(maxsize=16)
def _connected(uri: str) -> Any:
    """A client for an address; a file of Milvus Lite is opened once a process.

    The token, where the server wants one, is that of the environment, MILVUS_TOKEN.

    Raises:
        InputError: The address has a password in it, which would be written into manifests.
        RunAborted: There is no server.
    """
    if without_password(uri) != uri:
        raise InputError(
            f"the address {without_password(uri)} has a password in it",
            expected="an address alone",
            remedy="put user:password into the environment variable MILVUS_TOKEN",
        )
    with _answering(uri):
        token = os.environ.get("MILVUS_TOKEN", "")
        return require("pymilvus", "cluster").MilvusClient(uri, token=token, timeout=30)


# --- Publishing

_PARTS: Final = ("words", "vectors", "aliases", "mentions")


def publish(engine: LocalEngine, uri: str, collection: str) -> Published:
    """Put all rows of an engine into a new collection, in place of one of this name.

    Raises:
        InputError: A passage is too long for Milvus.
        RunAborted: The server fails.
    """
    client, parts = _connected(uri), tuple(part for part in _PARTS if engine.holds(part))
    with _answering(uri):
        if client.has_collection(collection):
            client.drop_collection(collection)
        vectors = engine.holds("vectors")
        _create(client, collection, engine.segments[0].vectors.shape[1] if vectors else 0)
        words = sum(_send(client, collection, engine, engine.rows()))
    length = max(words, 1) / max(len(engine), 1)
    return Published(uri=uri, collection=collection, parts=parts, size=engine.size, length=length)


def refresh(
    before: LocalEngine, after: LocalEngine, gone: Sequence[int], published: Published
) -> Published:
    """Publish a change: new rows, those whose links it touched; then delete what is gone.

    The other rows stay as they are, also where a name or a span that they share became too common.
    """
    client = _connected(published.uri)
    rows = after.rows()
    new = rows[rows >= before.size]
    touched = [new]
    if after.holds("mentions"):
        lost = np.array(sorted(gone), dtype=np.int64)
        touched += [
            engine.links(some, np.zeros(len(some))).target
            for engine, some in ((after, new), (before, lost))
            if len(some)
        ]
    changed = np.setdiff1d(np.concatenate(touched), after.dead)
    with _answering(published.uri):
        for _ in _send(client, published.collection, after, changed):
            pass
        if len(gone):
            client.delete(published.collection, ids=[int(row) for row in gone])
    return published.model_copy(update={"size": after.size})


def withdraw(published: Published) -> None:
    """Drop a collection that no manifest names any more."""
    with _answering(published.uri):
        _connected(published.uri).drop_collection(published.collection)


def _create(client: Any, collection: str, dimension: int) -> None:
    milvus = require("pymilvus", "cluster")
    kinds = milvus.DataType
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("row", kinds.INT64, is_primary=True)
    for name in ("id", "title", "text", "metadata"):
        schema.add_field(name, kinds.VARCHAR, max_length=_LONGEST)
    schema.add_field(
        "terms", kinds.VARCHAR, max_length=_LONGEST, enable_analyzer=True, enable_match=True,
        analyzer_params={"tokenizer": "standard"},
    )  # fmt: skip
    schema.add_field("words", kinds.SPARSE_FLOAT_VECTOR)
    if dimension:
        schema.add_field("vector", kinds.FLOAT_VECTOR, dim=dimension)
    for name, kind in (("aliases", kinds.INT64), ("links", kinds.INT64), ("weights", kinds.FLOAT)):
        schema.add_field(name, kinds.ARRAY, element_type=kind, max_capacity=MOST_LINKS)
    schema.add_field("total", kinds.DOUBLE)
    schema.add_function(
        milvus.Function(
            name="bm25", function_type=milvus.FunctionType.BM25,
            input_field_names=["terms"], output_field_names="words",
        )
    )  # fmt: skip
    indexes = client.prepare_index_params()
    indexes.add_index(
        "words", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25",
        params={"bm25_k1": K1, "bm25_b": B},
    )  # fmt: skip
    if dimension:
        indexes.add_index("vector", index_type="AUTOINDEX", metric_type="IP")
    client.create_collection(
        collection, schema=schema, index_params=indexes, consistency_level="Strong"
    )


def _send(client: Any, collection: str, engine: LocalEngine, rows: Rows) -> Iterator[int]:
    """Send rows; gives the number of words of each batch."""
    for at in range(0, len(rows), BATCH):
        part = rows[at : at + BATCH]
        links = _NO_LINKS
        if engine.holds("mentions"):
            links = engine.links(part, np.zeros(len(part)))
        records, words = list[dict[str, Any]](), 0
        vectors = engine.vectors(part) if engine.holds("vectors") else None
        for place, passage in enumerate(engine.passages(part.tolist())):
            mine = np.flatnonzero(links.source == place)
            mine = mine[np.argsort(-links.weight[mine], kind="stable")][:MOST_LINKS]
            keys = word_keys(passage.title) * TITLE_WEIGHT + word_keys(passage.text)
            words += len(keys)
            record = {
                "row": int(part[place]), "id": passage.id, "title": passage.title,
                "text": passage.text, "metadata": metadata_json(passage),
                "terms": _terms(keys),
                "aliases": _signed(alias_keys(passage.title, passage.text)),
                "links": links.target[mine].tolist(), "weights": links.weight[mine].tolist(),
                "total": float(links.total[place]) if len(links.total) else 0.0,
                **({} if vectors is None else {"vector": vectors[place].tolist()}),
            }  # fmt: skip
            for name in ("text", "terms", "metadata"):
                if len(str(record[name]).encode()) > _LONGEST:
                    raise InputError(
                        f"passage {passage.id!r} is too long for Milvus ({name})",
                        expected=f"at most {_LONGEST:,} bytes",
                        remedy="cut documents into smaller pieces (--chunk-tokens)",
                    )
            records.append(record)
        client.upsert(collection, records)
        yield words
