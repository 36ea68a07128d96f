"""Search in Milvus by words, vectors, names and links.

An index is built and changed in its folder, and published to a collection with a row per passage:
its words for Milvus's BM25, its vector, the keys of its names, its strongest links. The manifest
names the collection; to search there, a machine needs nothing else.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import InputError, RunAborted, require
from ga_dspy.passage import Passage
from ga_dspy.retrieval.encoders import batched
from ga_dspy.retrieval.engine import K1, MOST_TARGETS, B, Links, LocalEngine, Weights
from ga_dspy.retrieval.postings import TITLE_WEIGHT, Rows, alias_keys, mentioned_in, word_keys
from ga_dspy.retrieval.store import COLUMNS, Published, metadata_json, passage_of
from ga_dspy.secrets import without_password

BATCH: Final = 500
"""Rows per request."""

MOST_LINKS: Final = 1000
"""The maximum number of links of a row; the strongest are stored."""

_LONGEST: Final = 65_535
"""Milvus's limit of a text, in bytes."""

_MOST_FOUND: Final = 16_384
"""Milvus's limit of results per request."""


class MilvusEngine:
    """The engine of a collection on a Milvus server, or in a Milvus Lite file.

    Args:
        published: The collection.
        passages: The number of passages.
    """

    def __init__(self, published: Published, passages: int) -> None:
        self.parts, self.size, self.length = published.parts, published.size, published.length
        self._published, self._passages = published, passages
        self._call = partial(_call, published)
        self._word = lru_cache(maxsize=4096)(self._statistics)
        self._call("load_collection")

    def __len__(self) -> int:
        return self._passages

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name of the collection, without the connection."""
        return MilvusEngine, (self._published, self._passages)

    def holds(self, part: str) -> bool:
        """Return whether the collection has "words", "vectors", "aliases" or "mentions"."""
        return part in self.parts

    def rows(self) -> Rows:
        """Return all rows, ascending."""
        blocks = range(0, self.size, _MOST_FOUND)
        parts = (self._rows(f"row >= {at} and row < {at + _MOST_FOUND}") for at in blocks)
        return _sorted(record["row"] for record in chain.from_iterable(parts))

    def row(self, id: str) -> int | None:
        """Return the row of an id; None if there is none."""
        found = self._rows(f"id == {json.dumps(id)}", most=1)
        return int(found[0]["row"]) if found else None

    def restricted(self, where: str) -> MilvusEngine:
        """Reject conditions on metadata.

        Raises:
            InputError: Always, because words, names and links of other passages would influence a
                search.
        """
        raise InputError(
            "conditions on metadata for an index that is searched in Milvus",
            expected="an index that is searched in its folder",
            remedy="build an index for each group of passages, or build without milvus=…",
        )

    def _rows(self, condition: str, fields: Sequence[str] = (), most: int = _MOST_FOUND) -> Any:
        return self._call("query", filter=condition, output_fields=["row", *fields], limit=most)

    def _fields(self, rows: Sequence[int] | Rows, *fields: str) -> dict[int, Any]:
        """Return fields of given rows, by row."""
        parts = (
            self._call("get", ids=part, output_fields=["row", *fields])
            for part in batched(map(int, rows), _MOST_FOUND)
        )
        return {record["row"]: record for record in chain.from_iterable(parts)}

    def _search(self, field: str, data: Any, count: int, condition: str = "") -> tuple[Any, Any]:
        count = min(max(count, 1), _MOST_FOUND)
        (hits,) = self._call(
            "search", data=[data], anns_field=field, limit=count, filter=condition,
            output_fields=["row"],
        )  # fmt: skip
        rows = np.array([hit["row"] for hit in hits], dtype=np.int64)
        scores = np.array([hit["distance"] for hit in hits], dtype=np.float32)
        if field != "words":
            return rows, scores
        # BM25 with a constant factor that Lucene's variant omits; negative in Milvus Lite.
        return rows, np.abs(scores) / np.float32(K1 + 1)

    # --- Words

    def _statistics(self, key: int) -> tuple[int, float, float]:
        """Return the document frequency, the IDF and the highest weight of a word."""
        count = _count(self._call, f"TEXT_MATCH(terms, '{_term(key)}')")
        idf = float(np.log(1 + (len(self) - count + 0.5) / (count + 0.5)))
        _, scores = self._search("words", _term(key), 1)
        return count, idf, float(scores.max(initial=0.0))

    def best(self, query: str, count: int) -> tuple[Rows, NDArray[np.float32]]:
        """Return the rows with the `count` highest BM25 scores, and the scores."""
        terms = _terms(word_keys(query))
        return self._search("words", terms, count) if terms else _NOTHING

    def weigh(self, query: str, rows: Rows) -> Weights:
        """Return the BM25 weights of the words of a query in given rows."""
        words = {k: n for k, n in Counter(word_keys(query)).items() if self._word(k)[0]}
        cells = np.zeros((len(words), len(rows)), dtype=np.float32)
        texts = self._fields(rows, "terms") if words else {}
        for place, row in enumerate(rows.tolist() if words else ()):
            terms = texts[row]["terms"].split()
            norm = K1 * (1 - B + B * len(terms) / self.length)
            for line, key in enumerate(words):
                count = terms.count(_term(key))
                cells[line, place] = self._word(key)[1] * count / (count + norm)
        times = np.array(list(words.values()), dtype=np.float32)
        return Weights(cells, times, np.array([self._word(key)[2] for key in words], np.float32))

    # --- Vectors

    def nearest(self, vector: NDArray[np.float32], count: int) -> Rows:
        """Return the rows nearest to a unit vector, best first."""
        return self._search("vector", vector.tolist(), count)[0]  # type: ignore[no-any-return]

    def cosines(self, vector: NDArray[np.float32], rows: Rows) -> NDArray[np.float32]:
        """Return the cosine of each of the given rows with a unit vector."""
        score_of: dict[int, float] = {}
        if len(rows):
            condition = f"row in {rows.tolist()}"
            hits, scores = self._search("vector", vector.tolist(), len(rows), condition)
            score_of = dict(zip(hits.tolist(), scores.tolist(), strict=True))
        return np.array([score_of.get(row, 0.0) for row in rows.tolist()], dtype=np.float32)

    # --- Names and links

    def _rows_by_name(self, keys: Iterable[int]) -> dict[int, set[int]]:
        """Return the rows with each name, without names of too many passages."""
        rows_of = {key: set[int]() for key in _signed(keys)}
        for part in batched(rows_of, BATCH):
            for record in self._rows(f"array_contains_any(aliases, {part})", ["aliases"]):
                for key in rows_of.keys() & record["aliases"]:
                    rows_of[key].add(record["row"])
        return {
            key % (1 << 64): rows for key, rows in rows_of.items() if 0 < len(rows) <= MOST_TARGETS
        }

    def rows_named(self, text: str) -> Rows:
        """Return the rows with a name that occurs in a text, ascending."""
        candidates: set[int] = set()

        def collect(keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
            candidates.update(keys.tolist())
            return np.zeros(len(keys), dtype=np.bool_)

        mentioned_in([text], collect)
        rows_of = self._rows_by_name(candidates)
        known = np.array(sorted(rows_of), dtype=np.uint64)
        _, keys = mentioned_in([text], lambda keys: np.isin(keys, known))
        return _sorted(row for key in keys.tolist() for row in rows_of[key])

    def links(self, rows: Rows, faint: NDArray[np.float64]) -> Links:
        """Return the links of given rows, as `LocalEngine.links`."""
        fields = self._fields(rows, "links", "weights", "total")
        records = [fields[row] for row in rows.tolist()]
        total = np.array([record["total"] for record in records], dtype=np.float64)
        source = np.repeat(np.arange(len(rows)), [len(record["links"]) for record in records])
        links = chain.from_iterable(record["links"] for record in records)
        weights = chain.from_iterable(record["weights"] for record in records)
        target, weight = np.fromiter(links, np.int64), np.fromiter(weights, np.float64)
        strong = weight >= (faint * total)[source]
        return Links(source[strong], target[strong], weight[strong], total)

    def passages(self, rows: Sequence[int]) -> list[Passage]:
        """Return the passages of given rows."""
        records = self._fields(rows, *COLUMNS)
        return [passage_of(records[row]) for row in rows]


_NO_LINKS: Final = Links(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
_NOTHING: Final = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)


def _sorted(rows: Any) -> Rows:
    return np.unique(np.fromiter(rows, dtype=np.int64))


def _term(key: int) -> str:
    return f"t{key:x}"


def _terms(keys: Sequence[int]) -> str:
    return " ".join(map(_term, keys))


def _signed(keys: Iterable[int]) -> list[int]:
    """Return keys as signed integers, as Milvus stores them, ascending."""
    return sorted(np.fromiter(keys, dtype=np.uint64).view(np.int64).tolist())


@lru_cache(maxsize=16)
def _connected(uri: str) -> Any:
    """Return the client for an address, which opens a Milvus Lite file once per process.

    If the server requires a token, it is read from the environment variable MILVUS_TOKEN.

    Raises:
        InputError: The address contains a password, which manifests would store.
    """
    if without_password(uri) != uri:
        raise InputError(
            f"the address {without_password(uri)} contains a password",
            expected="an address without one",
            remedy="put user:password into the environment variable MILVUS_TOKEN",
        )
    token = os.environ.get("MILVUS_TOKEN", "")
    return require("pymilvus", "cluster").MilvusClient(uri, token=token, timeout=30)


def _call(published: Published, what: str, **arguments: Any) -> Any:
    """Call a method of the Milvus client for a collection.

    Raises:
        RunAborted: The server fails.
    """
    milvus_error = require("pymilvus", "cluster").exceptions.MilvusException
    try:
        method = getattr(_connected(published.uri), what)
        return method(collection_name=published.collection, **arguments)
    except (milvus_error, OSError) as error:
        raise RunAborted(
            f"no answer from Milvus at {without_password(published.uri)} ({error})",
            expected="a running server that has the collection, or a file that ends in .db",
            remedy="check --uri; only one process can open a Milvus Lite file",
        ) from error


def _count(call: Callable[..., Any], condition: str = "") -> int:
    """Return the current number of rows of a collection that meet a condition."""
    (record,) = call("query", filter=condition, output_fields=["count(*)"])
    return int(record["count(*)"])


# --- Publishing

_PARTS: Final = ("words", "vectors", "aliases", "mentions")


def publish(engine: LocalEngine, uri: str, collection: str) -> Published:
    """Write all rows of an engine to a new collection; replace one with the same name.

    Raises:
        InputError: A passage is too long for Milvus.
        RunAborted: The server fails.
    """
    parts = tuple(part for part in _PARTS if engine.holds(part))
    published = Published(uri=uri, collection=collection, parts=parts, size=engine.size)
    call = partial(_call, published)
    if call("has_collection"):
        call("drop_collection")
    _create(call, engine.segments[0].vectors.shape[1] if engine.holds("vectors") else 0)
    words = _send(call, engine, engine.rows())
    return published.model_copy(update={"length": max(words, 1) / max(len(engine), 1)})


def refresh(
    before: LocalEngine, after: LocalEngine, gone: Sequence[int], published: Published
) -> Published | None:
    """Publish a change: send new rows and rows whose links changed, delete others.

    Rows are not sent again only because a name or a span that they share became too common.

    Returns:
        The collection; None if everything has to be published again, because the change renumbered
        the rows or an earlier one was interrupted.
    """
    call, rows = partial(_call, published), after.rows()
    is_renumbered = len(after) - len(before) + len(gone) != after.size - before.size
    if is_renumbered or _count(call) != len(before):
        return None
    new, lost = rows[rows >= before.size], np.array(gone, dtype=np.int64)
    changed = [new]
    if after.holds("mentions"):
        changed.append(after.links(new, np.zeros(len(new))).target)
        changed.append(before.links(lost, np.zeros(len(lost))).target)
    _send(call, after, np.setdiff1d(np.concatenate(changed), after.dead))
    if len(lost):
        call("delete", ids=lost.tolist())
    return published.model_copy(update={"size": after.size})


def withdraw(published: Published) -> None:
    """Drop a collection that no manifest names any more."""
    _call(published, "drop_collection")


def _create(call: Callable[..., Any], dimension: int) -> None:
    milvus = require("pymilvus", "cluster")
    client, kinds = milvus.MilvusClient, milvus.DataType
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
    call("create_collection", schema=schema, index_params=indexes, consistency_level="Strong")


def _send(call: Callable[..., Any], engine: LocalEngine, rows: Rows) -> int:
    """Send rows to a collection; return their number of words."""
    words = 0
    for at in range(0, len(rows), BATCH):
        part = rows[at : at + BATCH]
        links = engine.links(part, np.zeros(len(part))) if engine.holds("mentions") else _NO_LINKS
        records = list[dict[str, Any]]()
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
        call("upsert", data=records)
    return words
