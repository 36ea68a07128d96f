"""Which facts of a neighbourhood a question asks for: many by cheap features, few by meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ga_dspy.errors import GaDspyError, MissingExtra
from ga_dspy.graph import Relation
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.features import NAMES, Situation, describe
from ga_dspy.graphrag.verbalise import fact_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ga_dspy.retrieval.encoder import Encoder

FINE_SHARE: Final = 0.5
"""How much of a fact's score the fine stage makes up, where there is one."""

WEIGHTS: Final[Mapping[str, float]] = {
    "relation_words": 2.0,
    "name_words": 0.8,
    "told_words": 0.6,
    "jaccard": 0.5,
    "spelling": 0.3,
    "rarest": 0.5,
    "hops": -0.1,
    "on_path": 0.8,
    "numbers": 0.6,
    "answer_type": 0.5,
    "answer_noun": 0.3,
    "rare_relation": 0.1,
    "confidence": 0.2,
    "plain_value": 0.0,
    "degree": -0.03,
    "link": 0.1,
}
"""The linear ranker: signs from what each feature means, sizes by hand.

Of 29 training questions of HotpotQA and MuSiQue whose answer stands in a fact of the neighbourhood
(56 facts in the mean, graphs read by the embedded LM) it is among the first 12 for 25, by cosine
alone for 24, by both for 26.
"""

_REMEMBERED: Final = 20_000


class RankedFact(NamedTuple):
    """An edge, how well it fits the question (comparable within one search), and its words.

    >>> fact = Relation(head="Oslo", relation="capital of", tail="Norway")
    >>> RankedFact(3, 0.5, "Oslo capital of Norway", fact).text
    'Oslo capital of Norway'
    """

    edge: int
    score: float
    text: str
    relation: Relation


class RankerMismatch(GaDspyError):
    """The weights of the coarse stage were fitted for other features than the code now has."""

    def __init__(self, path: Path, fitted: Sequence[str]) -> None:
        super().__init__(
            f"{path} was fitted for the features {', '.join(fitted)}; expected "
            f"{', '.join(NAMES)}; fit it again with ga_dspy.graphrag.ranker_fit.fit"
        )
        self.path, self.fitted = path, tuple(fitted)


class NoCrossEncoder(GaDspyError):
    """The cross-encoder of the fine stage is no folder of this machine."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no folder {name!r} with a cross-encoder; expected 'encoder', None, or the "
            "local folder of a sentence-transformers cross-encoder, which is never downloaded; "
            "download the model first and pass its folder"
        )
        self.name = name


class Coarse(Protocol):
    """Scores facts by their features."""

    name: str

    def scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """One score a row of `features.describe`, higher is better."""
        ...


class Fine(Protocol):
    """Scores facts by their wording."""

    name: str

    def scores(self, question: str, facts: Sequence[str]) -> NDArray[np.floating]:
        """One score a fact, higher is better."""
        ...


class Linear:
    """A weighted sum of the features."""

    name = "linear"

    def scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """One score a row, higher is better."""
        import numpy as np

        weighted: NDArray[np.float64] = features @ np.array([WEIGHTS[name] for name in NAMES])
        return weighted


class Boosted:
    """Gradient-boosted trees fitted by `ga_dspy.graphrag.ranker_fit`."""

    name = "lightgbm"

    def __init__(self, path: Path) -> None:
        try:
            import lightgbm
        except ImportError as error:
            raise MissingExtra("lightgbm", "offline") from error
        self._trees = lightgbm.Booster(model_file=str(path))
        if tuple(self._trees.feature_name()) != NAMES:
            raise RankerMismatch(path, self._trees.feature_name())

    def scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """One score a row, higher is better."""
        import numpy as np

        return np.asarray(self._trees.predict(features, num_threads=1), dtype=np.float64)


class ByCosine:
    """The cosine of question and fact under the encoder of the index; facts are remembered."""

    name = "encoder"

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._known: dict[str, NDArray[np.float32]] = {}

    def scores(self, question: str, facts: Sequence[str]) -> NDArray[np.floating]:
        """One cosine a fact."""
        import numpy as np

        known = self._known
        new = [fact for fact in dict.fromkeys(facts) if fact not in known]
        fresh = dict(zip(new, self._encoder.encode(new), strict=True)) if new else {}
        vectors = np.stack([fresh[fact] if fact in fresh else known[fact] for fact in facts])
        # Another thread may look facts up in the old one; it is never changed.
        self._known = {**known, **fresh} if len(known) + len(fresh) <= _REMEMBERED else fresh
        cosines: NDArray[np.floating] = vectors @ self._encoder.encode_query(question)
        return cosines


class ByCrossEncoder:
    """A cross-encoder of sentence-transformers in a local folder."""

    name = "cross-encoder"

    def __init__(self, folder: str) -> None:
        if not Path(folder).is_dir():
            raise NoCrossEncoder(folder)
        self._folder = folder

    def scores(self, question: str, facts: Sequence[str]) -> NDArray[np.floating]:
        """One score a fact."""
        import numpy as np

        pairs = [(question, fact) for fact in facts]
        return np.asarray(_cross_encoder(self._folder).predict(pairs, show_progress_bar=False))


def fine_stage(fine: str | None, encoder: Encoder | None) -> Fine | None:
    """The fine stage by its name; None where none is wanted or the index has no encoder.

    Raises:
        NoCrossEncoder: It names something other than "encoder" that is no folder here.
    """
    if fine == "encoder":
        return None if encoder is None else ByCosine(encoder)
    return None if fine is None else ByCrossEncoder(fine)


def rank(
    edges: NDArray[np.int64],
    at: Situation,
    graph: CorpusGraph,
    question: str,
    *,
    coarse: Coarse,
    fine: Fine | None,
    pool: int,
    keep: int,
) -> tuple[RankedFact, ...]:
    """The facts that fit a question best, best first; equal ones by edge.

    Args:
        edges: The edges to choose from.
        at: What their features depend on.
        graph: The caller's graph.
        question: The question.
        coarse: Scores all of them.
        fine: Scores the best `pool` again; their score is a mixture of both.
        pool: How many facts the fine stage sees.
        keep: How many to return.
    """
    import numpy as np

    if not len(edges):
        return ()
    scores = coarse.scores(describe(edges, at))
    first = np.lexsort((edges, -scores))[: max(pool, keep)]
    edges, scores = edges[first], _scaled(scores[first])
    relations = [graph.edge(j) for j in edges.tolist()]
    texts = [fact_text(relation) for relation in relations]
    if fine is not None:
        close = _scaled(fine.scores(question, texts))
        scores = (1 - FINE_SHARE) * scores + FINE_SHARE * close
    order = np.lexsort((edges, -scores))[:keep].tolist()
    return tuple(
        RankedFact(int(edges[i]), round(float(scores[i]), 6), texts[i], relations[i]) for i in order
    )


def _scaled(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """From 0 for the lowest to 1 for the highest; all 1 where they are equal."""
    import numpy as np

    low, high = float(scores.min()), float(scores.max())
    if high == low:
        return np.ones(len(scores))
    return np.asarray((scores - low) / (high - low), dtype=np.float64)


@lru_cache(maxsize=2)
def _cross_encoder(folder: str) -> Any:
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise MissingExtra("sentence-transformers", "retrieval") from error
    return CrossEncoder(folder, local_files_only=True)
