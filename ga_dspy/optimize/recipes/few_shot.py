"""Recipes that find demonstrations: labelled rows, and traces of questions answered well."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import dspy

from ga_dspy.optimize.demos import labelled
from ga_dspy.optimize.recipes.base import (
    Context,
    Examples,
    Needs,
    Recipe,
    Work,
    need_package,
    need_positive,
    need_questions,
)
from ga_dspy.programs import MultiHopProgram


@dataclass(frozen=True)
class LabeledFewShot(Recipe):
    """Train rows as demos of the predictor that answers.

    A row holds a question and its answer, so the demos show how short an answer is and in which
    form; the predictors that read and judge get none, since no row says what they should write.

    Attributes:
        demos: How many rows, drawn with the seed.
    """

    demos: int = 8
    name: ClassVar[str] = "labeled"

    def check(self, needs: Needs) -> None:
        """As many train questions as demos."""
        need_positive(self.name, {"demos": self.demos})
        need_questions(self.name, "train", needs.train, self.demos)

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """One look at the validation questions."""
        return Work(validation)

    def fit(
        self, program: MultiHopProgram, train: Examples, validation: Examples, *, context: Context
    ) -> MultiHopProgram:
        """Draw the rows."""
        return labelled(program, random.Random(context.seed).sample(list(train), self.demos))


@dataclass(frozen=True)
class BootstrapFewShot(Recipe):
    """Demos from the program's own traces of train questions that it answered well.

    Attributes:
        demos: The most for a predictor.
        rounds: Attempts at a question, the second and later ones at temperature 1.
    """

    demos: int = 4
    rounds: int = 1
    name: ClassVar[str] = "bootstrap"

    def check(self, needs: Needs) -> None:
        """As many train questions as demos."""
        need_positive(self.name, {"demos": self.demos, "rounds": self.rounds})
        need_questions(self.name, "train", needs.train, self.demos)

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Train questions until there are enough demos, then the validation questions."""
        return Work(min(train, 3 * self.demos) * self.rounds + validation)

    def fit(
        self, program: MultiHopProgram, train: Examples, validation: Examples, *, context: Context
    ) -> MultiHopProgram:
        """Collect traces in the order of the questions."""
        return bootstrapped(program, train, context, self.demos, self.rounds)


@dataclass(frozen=True)
class BootstrapRandomSearch(Recipe):
    """Several bootstraps over shuffled questions; the one that scores best is kept.

    Attributes:
        candidates: Demo sets to try, beside the one in the order of the questions.
        demos: The most for a predictor; each set has its own number, from 1.
        rounds: Attempts at a question.
    """

    candidates: int = 8
    demos: int = 4
    rounds: int = 1
    name: ClassVar[str] = "bootstrap-rs"

    def check(self, needs: Needs) -> None:
        """As many train questions as demos."""
        settings = {"candidates": self.candidates, "demos": self.demos, "rounds": self.rounds}
        need_positive(self.name, settings)
        need_questions(self.name, "train", needs.train, self.demos)

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """For each set some train questions and all validation questions."""
        one = min(train, 3 * self.demos) * self.rounds + validation
        return Work((self.candidates + 1) * one)

    def fit(
        self, program: MultiHopProgram, train: Examples, validation: Examples, *, context: Context
    ) -> MultiHopProgram:
        """Search."""
        search = random_search(self, context)
        # -3 and -2 stand for no demos and for bare rows: the given program is scored anyway.
        tried = range(-1, self.candidates)
        return search.compile(  # type: ignore[no-any-return]
            program, trainset=list(train), valset=list(validation), restrict=tried
        )


@dataclass(frozen=True)
class KNNFewShot(Recipe):
    """Demos from the train questions that lie nearest to the validation questions.

    DSPy's own KNNFewShot picks neighbours anew for every question asked, by running the program
    on them first; that multiplies the cost of an answer and cannot be saved. Here the same
    nearest-neighbour search chooses once which train questions the demos are made from: those
    that are most often among the `neighbours` of a validation question.

    Attributes:
        demos: The most for a predictor.
        neighbours: How many nearest train questions each validation question votes for.
        encoder: Name of the sentence encoder, as `ga_dspy.retrieval.load_encoder` takes it.
    """

    demos: int = 4
    neighbours: int = 3
    encoder: str = "auto"
    name: ClassVar[str] = "knn"

    def check(self, needs: Needs) -> None:
        """A sentence encoder; as many train questions as demos and neighbours."""
        need_positive(self.name, {"demos": self.demos, "neighbours": self.neighbours})
        need_package("sentence_transformers", "retrieval")
        need_questions(self.name, "train", needs.train, max(self.demos, self.neighbours))

    def work(self, train: int, validation: int, predictors: int) -> Work:
        """Train questions until there are enough demos, then the validation questions."""
        return Work(min(train, 3 * self.demos) + validation)

    def fit(
        self, program: MultiHopProgram, train: Examples, validation: Examples, *, context: Context
    ) -> MultiHopProgram:
        """Collect traces of the nearest questions first."""
        from ga_dspy.retrieval import load_encoder

        encode = dspy.Embedder(load_encoder(self.encoder).encode, caching=False)
        search = dspy.KNN(self.neighbours, list(train), encode)
        votes = Counter(
            near.question for asked in validation for near in search(question=asked.question)
        )
        nearest = sorted(train, key=lambda example: -votes[example.question])
        return bootstrapped(program, nearest, context, self.demos, 1)


def bootstrapped(
    program: MultiHopProgram, train: Examples, context: Context, demos: int, rounds: int
) -> MultiHopProgram:
    """DSPy's BootstrapFewShot, with demos of well-answered questions only and no bare rows."""
    optimizer = dspy.BootstrapFewShot(
        metric=context.metric,
        metric_threshold=context.metric.threshold,
        max_bootstrapped_demos=demos,
        max_labeled_demos=0,
        max_rounds=rounds,
    )
    return optimizer.compile(program, trainset=list(train))  # type: ignore[no-any-return]


def random_search(recipe: BootstrapRandomSearch, context: Context) -> Any:
    """DSPy's optimizer for a recipe."""
    return dspy.BootstrapFewShotWithRandomSearch(
        metric=context.metric,
        metric_threshold=context.metric.threshold,
        max_bootstrapped_demos=recipe.demos,
        max_labeled_demos=0,
        max_rounds=recipe.rounds,
        num_candidate_programs=recipe.candidates,
        num_threads=context.threads,
    )
