"""Questions measured: one forward pass for the graph of each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ga_dspy.arena.attention.cases import AttentionCase
from ga_dspy.arena.attention.model import LocalModel, load_model
from ga_dspy.arena.attention.prompt import Prompt, Tokens, compose, mention_tokens, tokenize
from ga_dspy.arena.attention.reading import read
from ga_dspy.arena.attention.report import AttentionReport, Skipped
from ga_dspy.arena.attention.step import StepMeasure, TokenSets, measure_step
from ga_dspy.arena.attention.weights import perplexity
from ga_dspy.errors import GaDspyError, InputError


class PromptTooLong(GaDspyError):
    """A prompt has more tokens than the model reads; it is never cut."""

    def __init__(self, step: int, tokens: int, context: int) -> None:
        super().__init__(
            f"the prompt with the graph of step {step} has {tokens:,} tokens; expected at most "
            f"{context:,}, the model's context; use a model that reads more"
        )
        self.step, self.tokens, self.context = step, tokens, context


class Progress(NamedTuple):
    """How far the measuring is, in questions; `skipped` of those done were not measured."""

    done: int
    total: int
    skipped: int


def measure(
    case: AttentionCase,
    local: LocalModel,
    *,
    layers: Sequence[int] | None = None,
    graph_after_passages: bool = True,
) -> tuple[StepMeasure, ...]:
    """Measure one question with the graph of each step, first to last.

    Args:
        case: The question.
        local: The model, from `load_model`.
        layers: Which layers to average over, from 0, such as `range(16, 32)`; None for all.
        graph_after_passages: Whether the graph stands after the passages or before them, in which
            case it cannot attend to them and what it would give them is None.

    Raises:
        PromptTooLong: The prompt of a step exceeds the model's context; nothing was measured.
        InputError: There is no such layer.
        WeightsUnavailable: The model does not hand out what is measured.
        NoTokens: The tokenizer's offsets leave a part of the prompt out.
        TemplateUnusable: Its chat template fails.
    """
    chosen = _layers(local, layers)
    steps = range(1, len(case.graphs) + 1)
    prompts = [
        compose(case, step, local.tokenizer, graph_after_passages=graph_after_passages)
        for step in steps
    ]
    tokens = [tokenize(prompt, local.tokenizer) for prompt in prompts]
    for step, there in zip(steps, tokens, strict=True):
        if local.context is not None and len(there.ids) > local.context:
            raise PromptTooLong(step, len(there.ids), local.context)
    return tuple(
        _read_step(local, there.ids, step, chosen, _sets(case, step, prompt, there))
        for step, prompt, there in zip(steps, prompts, tokens, strict=True)
    )


def measure_all(
    cases: Sequence[AttentionCase],
    model_path: str | Path,
    *,
    layers: Sequence[int] | None = None,
    graph_after_passages: bool = True,
    progress: Callable[[Progress], None] | None = None,
) -> AttentionReport:
    """Measure questions with a model from a local folder.

    A question whose prompt at some step is too long for the model is skipped at all steps, so
    that every step speaks of the same questions, and listed with the reason.

    Args:
        cases: The questions.
        model_path: The folder of a Hugging Face causal LM.
        layers: Which layers to average over, from 0; None for all.
        graph_after_passages: Whether the graph stands after the passages or before them.
        progress: Called before the first question and after each.

    Raises:
        InputError: There are no questions, or there is no such layer.
        MissingExtra: torch or transformers is not installed.
        ModelUnusable: The folder holds no causal LM.
        SlowTokenizer: Its tokenizer gives no character offsets.
        WeightsUnavailable: The model does not hand out what is measured.
        NoTokens: The tokenizer's offsets leave a part of the prompt out.
        TemplateUnusable: Its chat template fails.
    """
    if not cases:
        raise InputError(
            "no questions to measure",
            expected="questions that used the maximum number of steps",
            remedy="run a method that builds graphs over more questions",
        )
    local = load_model(model_path)
    chosen = _layers(local, layers)
    measured: list[tuple[StepMeasure, ...]] = []
    skipped: list[Skipped] = []
    tell = progress or _nobody
    tell(Progress(0, len(cases), 0))
    for done, case in enumerate(cases, 1):
        try:
            measured.append(
                measure(case, local, layers=chosen, graph_after_passages=graph_after_passages)
            )
        except PromptTooLong as error:
            skipped.append(Skipped(case.question, str(error)))
        tell(Progress(done, len(cases), len(skipped)))
    return AttentionReport(
        local.name,
        len(local.attentions),
        chosen,
        graph_after_passages,
        tuple(measured),
        tuple(skipped),
    )


def _read_step(
    local: LocalModel, ids: tuple[int, ...], step: int, layers: tuple[int, ...], sets: TokenSets
) -> StepMeasure:
    looks_back = sets.graph[0] > sets.passages[0]
    queries = (*sets.answer, *(sets.graph if looks_back else ()))
    reading = read(local, ids, queries=queries, answer=sets.answer, layers=layers)
    of_answer, of_graph = (
        reading.attention[: len(sets.answer)],
        reading.attention[len(sets.answer) :],
    )
    surprise = perplexity(reading.logits, [ids[place] for place in sets.answer])
    return measure_step(step, of_answer, of_graph if looks_back else None, sets, surprise)


def _sets(case: AttentionCase, step: int, prompt: Prompt, tokens: Tokens) -> TokenSets:
    return TokenSets(
        graph=tokens.of("graph"),
        passages=tokens.of("passages"),
        question=tokens.of("question"),
        answer=tokens.of("answer"),
        rest=tokens.of("rest"),
        anchored=mention_tokens(prompt, tokens, case.indexed(step)),
        new=tuple(mention_tokens(prompt, tokens, names) for names in case.entities),
    )


def _layers(local: LocalModel, layers: Sequence[int] | None) -> tuple[int, ...]:
    there = len(local.attentions)
    chosen = tuple(range(there)) if layers is None else tuple(dict.fromkeys(layers))
    if not chosen or not all(0 <= layer < there for layer in chosen):
        raise InputError(
            f"layers {list(chosen)}",
            expected=f"one or more of 0 to {there - 1}, the layers of {local.name}",
            remedy="leave layers out to average over all",
        )
    return chosen


def _nobody(_: Progress) -> None:
    return None
