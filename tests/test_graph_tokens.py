from __future__ import annotations

import importlib.util
import json
import statistics
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation, linearise, parse
from ga_dspy.graph.text import Form
from ga_dspy.tokens import estimate_tokens

LABELS = {"p": 3, "q": 12}


def typical_graph() -> GraphUpdate:
    """Ten directors, ten films and twenty relations, worded as an encyclopedia words them."""
    one, other = (Evidence(passage=passage, start=0, end=9) for passage in LABELS)
    people = list(
        map(" ".join, product(("Anna", "Boris", "Clara", "Ida", "Otto"), ("Hale", "Lee")))
    )
    films = list(
        map(" ".join, product(("Silent", "Golden", "Red", "Lost", "Far"), ("Hill", "Sea")))
    )
    directors = (
        Entity(
            name=name,
            type="person",
            attributes=("American film director", f"born May {year - 1930}, {year}"),
            evidence=(one, other),
        )
        for year, name in enumerate(people, start=1940)
    )
    works = (
        Entity(name=name, type="film", attributes=(f"released in {year}",), evidence=(one,))
        for year, name in enumerate(films, start=1970)
    )
    relations = (
        Relation(head=film, relation=label, tail=person, evidence=(one,))
        for label in ("directed by", "based on a novel by")
        for film, person in zip(films, people, strict=True)
    )
    return GraphUpdate(entities=(*directors, *works), relations=tuple(relations))


def token_costs(graph: GraphUpdate) -> dict[str, int]:
    """Tokens of a graph in each form, labels included, by the cl100k tokenizer."""
    import tiktoken

    encoding = tiktoken.get_encoding("cl100k_base")
    texts = {form: linearise(graph, form, LABELS) for form in get_args(Form)}
    draft = parse(texts["compact"])
    texts["json"] = json.dumps(draft.model_dump(mode="json", exclude_defaults=True))
    return {form: len(encoding.encode(text)) for form, text in texts.items()}


@pytest.fixture
def _bundled_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cl100k vocabulary that litellm ships, so that nothing is downloaded."""
    pytest.importorskip("tiktoken")
    package = importlib.util.find_spec("litellm")
    if package is None or package.origin is None:
        pytest.skip("litellm, which ships the tokenizer's vocabulary, is not installed")
    vocabulary = Path(package.origin).parent / "litellm_core_utils" / "tokenizers"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(vocabulary))


@pytest.mark.usefixtures("_bundled_tokenizer")
def test_the_compact_form_costs_no_more_than_the_papers_and_less_than_json() -> None:
    costs = token_costs(typical_graph())
    assert costs["compact"] <= costs["paper"], costs
    assert costs["compact"] < costs["json"], costs


@pytest.mark.data
@pytest.mark.usefixtures("_bundled_tokenizer")
def test_the_estimate_is_within_a_twentieth_of_the_true_count_on_average(data: Path) -> None:
    import tiktoken

    encoding = tiktoken.get_encoding("cl100k_base")
    rows = json.loads((data / "hotpotqa" / "train.json").read_text())[:60]
    texts = ["".join(sentences) for row in rows for _, sentences in row["context"]]
    ratios = [estimate_tokens(text) / len(encoding.encode(text)) for text in texts if text]
    assert statistics.mean(ratios) == pytest.approx(1, abs=0.05)
    assert statistics.stdev(ratios) < 0.1
