"""What a local causal LM attends to when it answers one question, by the graph it is shown.

A question is asked once for the graph of each step: `compose` writes the prompt, `tokenize` says
whose each token is, `read` runs the model once, `measure_step` computes shares, entropy and
perplexity. `measure` does all of it for every step.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ga_dspy.errors import GaDspyError, InputError, require
from ga_dspy.passage import Passage
from ga_dspy.retrieval.encoders import no_progress_bar
from ga_dspy.signatures.prompt import render_passage
from ga_dspy.text import mentions

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ModelUnusable(GaDspyError):
    """A folder does not hold a causal LM whose attention can be measured: pass another."""


class AttentionCase(BaseModel):
    """One question with what an LM may be shown when it answers.

    `passages` are all those read, each with its label. `graphs` holds the text of the graph after
    step 1, 2 and so on; `entities` the names that each of these steps was the first to index.

    Raises:
        ValidationError: A text is blank, there is no passage or no graph, or `entities` and
            `graphs` differ in length.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: str
    answer: str
    """The gold answer."""
    passages: tuple[tuple[int, Passage], ...] = Field(min_length=1)
    graphs: tuple[str, ...] = Field(min_length=1)
    entities: tuple[tuple[str, ...], ...]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not all(text.strip() for text in (self.question, self.answer, *self.graphs)):
            raise ValueError('the question, the answer or a graph is blank; "(empty)" is a graph')
        if len(self.entities) != len(self.graphs):
            raise ValueError(
                f"{len(self.entities)} steps of entities for {len(self.graphs)} graphs"
            )
        return self

    def indexed(self, step: int) -> tuple[str, ...]:
        """The names of all entities that the graph of a step anchors, each once; steps from 1."""
        return tuple(dict.fromkeys(name for names in self.entities[:step] for name in names))


class LocalModel(NamedTuple):
    """A loaded model; `attentions` are its attention modules, one a layer, first to last.

    `context` is the greatest number of tokens that it reads, None where it has no limit.
    """

    name: str
    model: Any
    tokenizer: Any
    attentions: tuple[Any, ...]
    context: int | None

    def layers(self, chosen: Sequence[int] | None) -> tuple[int, ...]:
        """Numbers of layers, from 0; all where none is chosen.

        Raises:
            InputError: There is no such layer.
        """
        count = len(self.attentions)
        layers = tuple(range(count)) if chosen is None else tuple(dict.fromkeys(chosen))
        if not layers or not all(0 <= layer < count for layer in layers):
            raise InputError(
                f"layers {list(layers)}",
                expected=f"one or more of 0 to {count - 1}, the layers of {self.name}",
                remedy="leave layers out to average over all",
            )
        return layers


class Weight(NamedTuple):
    """What a set of tokens gets of the attention that a larger set gets.

    `share` is its part of that attention, 0 to 1. `lift` is that share over the set's part of the
    tokens: 1 where its tokens get as much as the others, whatever their number.
    """

    share: float
    lift: float


class Shares(NamedTuple):
    """The parts of the answer tokens' whole attention, which sum to 1.

    `answer` is what they give to themselves and one another. `rest` is the instruction, the
    headings, what a chat template adds, and special tokens; many models park most of their
    attention on the very first token.
    """

    graph: float
    passages: float
    question: float
    answer: float
    rest: float


class StepMeasure(NamedTuple):
    """A question with the graph of one step, from 1.

    Attributes:
        step: Which graph the prompt holds.
        tokens: The length of the prompt.
        shares: The answer's attention by part of the prompt.
        answer_entropy: Entropy over passage tokens of the answer's attention, in nats.
        graph_entropy: The same of the graph's; None where the graph comes first.
        anchored: What mentions of the graph's entities get of the answer's attention on passages;
            None where no passage mentions one.
        perplexity: Of the gold answer.
        new_entities: For each step, what mentions of the entities first indexed there get of the
            graph's attention on passages; None for a step without, and for all where the graph
            comes first.
    """

    step: int
    tokens: int
    shares: Shares
    answer_entropy: float | None
    graph_entropy: float | None
    anchored: Weight | None
    perplexity: float
    new_entities: tuple[Weight | None, ...]


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
        InputError: The prompt of a step exceeds the model's context, in which case nothing was
            measured; or there is no such layer.
        ModelUnusable: The model does not hand out what is measured, or its tokenizer does not show
            where the parts of a prompt are.
    """
    chosen = local.layers(layers)
    prompts = []
    for step in range(1, len(case.graphs) + 1):
        prompt = compose(case, step, local.tokenizer, graph_after_passages=graph_after_passages)
        tokens = tokenize(prompt, local.tokenizer)
        if local.context is not None and len(tokens.ids) > local.context:
            raise InputError(
                f"the prompt with the graph of step {step} has {len(tokens.ids):,} tokens",
                expected=f"at most {local.context:,}, the model's context",
                remedy="use a model that reads more",
            )
        prompts.append((prompt, tokens))
    measured = []
    for step, (prompt, tokens) in enumerate(prompts, start=1):
        sets = TokenSets(
            parts={kind: tokens.of(kind) for kind in KINDS},
            anchored=mention_tokens(prompt, tokens, case.indexed(step)),
            new=tuple(mention_tokens(prompt, tokens, names) for names in case.entities),
        )
        graph, answer = sets.parts["graph"], sets.parts["answer"]
        looks_back = graph[0] > sets.parts["passages"][0]
        queries = (*answer, *(graph if looks_back else ()))
        attention, logits = read(local, tokens.ids, queries=queries, answer=answer, layers=chosen)
        of_answer, of_graph = np.split(attention, [len(answer)])
        surprise = perplexity(logits, [tokens.ids[place] for place in answer])
        graph_rows = of_graph if looks_back else None
        measured.append(measure_step(step, of_answer, graph_rows, sets, surprise))
    return tuple(measured)


# --- The prompt: what stands where, in characters and in tokens.
#
# A decoder attends backwards only. What the graph attends to in the passages can therefore be seen
# only where the passages stand before it; the paper's answer template has the graph first, and with
# it the attention from graph to passages is zero by construction. So the graph comes last here
# unless asked otherwise.

Kind = Literal["passages", "graph", "question", "answer", "rest"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_INSTRUCTION = (
    "Answer the question from the passages. The graph lists the entities and relations found in "
    "them, with passage numbers. Reply with the short answer alone."
)


class Segment(NamedTuple):
    """A stretch of the prompt, from character `start`."""

    kind: Kind
    text: str
    start: int


class Prompt(NamedTuple):
    """The prompt as segments, in order and without gaps; `templated` with a chat template."""

    segments: tuple[Segment, ...]
    templated: bool

    @property
    def text(self) -> str:
        """The whole prompt."""
        return "".join(segment.text for segment in self.segments)


class Tokens(NamedTuple):
    """The tokens of a prompt: vocabulary ids, character spans, and whose each one is."""

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    kinds: tuple[Kind, ...]

    def of(self, kind: Kind) -> tuple[int, ...]:
        """The positions of the tokens of a kind."""
        return tuple(i for i, other in enumerate(self.kinds) if other == kind)


def compose(
    case: AttentionCase, step: int, tokenizer: Any, *, graph_after_passages: bool = True
) -> Prompt:
    """The prompt with the graph of a step, ending in the gold answer.

    Where the tokenizer has a chat template, everything but the answer is the user's message, and
    the answer opens the assistant's.

    Args:
        case: The question; all its passages are shown whatever the step.
        step: Which graph is shown, from 1.
        tokenizer: A Hugging Face tokenizer.
        graph_after_passages: Whether the graph stands after the passages or before.

    Raises:
        ModelUnusable: The tokenizer has a chat template that fails.
    """
    frame = _chat_frame(tokenizer)
    before, after = frame or ("", "\nAnswer: ")
    passages: list[tuple[Kind, str]] = []
    for label, passage in case.passages:
        passages.append(("rest", "\n\n" if passages else "\n\nPassages:\n"))
        passages.append(("passages", render_passage(label, passage)))
    graph: list[tuple[Kind, str]] = [("rest", "\n\nGraph:\n"), ("graph", case.graphs[step - 1])]
    parts: list[tuple[Kind, str]] = [
        ("rest", before),
        ("rest", _INSTRUCTION),
        *((*passages, *graph) if graph_after_passages else (*graph, *passages)),
        ("rest", "\n\nQuestion: "),
        ("question", case.question),
        ("rest", after),
        ("answer", case.answer),
    ]
    segments, start = [], 0
    for kind, text in parts:
        segments.append(Segment(kind, text, start))
        start += len(text)
    return Prompt(tuple(segments), templated=frame is not None)


def _chat_frame(tokenizer: Any) -> tuple[str, str] | None:
    """What the chat template writes before and after the user's message; None without one."""
    if not tokenizer.chat_template:
        return None
    from jinja2 import TemplateError

    message = "THE PROMPT STANDS HERE"
    why = "the user's message is not in what it renders"
    try:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": message}], tokenize=False, add_generation_prompt=True
        )
    except (TemplateError, ValueError) as error:
        text, why = "", str(error)
    before, found, after = text.partition(message)
    if not found:
        raise ModelUnusable(
            f"the chat template fails: {why}",
            expected="one that shows a single user message as it is",
            remedy="mend chat_template in the model's folder, or remove it to measure without",
        )
    return before, after


def tokenize(prompt: Prompt, tokenizer: Any) -> Tokens:
    """The prompt's tokens, never truncated.

    A token belongs to the segment that most of its characters lie in, the earlier one in a tie;
    special tokens and those without characters belong to the rest.

    Raises:
        ModelUnusable: No token belongs to the passages, the graph, the question or the answer.
    """
    encoded = tokenizer(
        prompt.text,
        add_special_tokens=not prompt.templated,
        return_offsets_mapping=True,
        truncation=False,
        verbose=False,
    )
    spans = tuple((start, end) for start, end in encoded["offset_mapping"])
    owners: list[Kind] = [segment.kind for segment in prompt.segments for _ in segment.text]
    kinds = tuple(
        Counter(owners[start:end]).most_common(1)[0][0] if end > start else "rest"
        for start, end in spans
    )
    for segment in prompt.segments:
        if segment.kind != "rest" and segment.kind not in kinds:
            raise ModelUnusable(
                f"no token belongs to the {segment.kind} ({segment.text[:60]!r})",
                expected="a tokenizer whose character offsets cover its input",
                remedy="update tokenizers, or use another model",
            )
    return Tokens(tuple(encoded["input_ids"]), spans, kinds)


def mention_tokens(prompt: Prompt, tokens: Tokens, names: tuple[str, ...]) -> tuple[int, ...]:
    """The passage tokens that hold a character of a mention of any of the names.

    Mentions are found by `ga_dspy.text` in each passage's title and text, at most 20 of a
    name in a passage.
    """
    mentioned = bytearray(len(prompt.text))
    for segment in prompt.segments:
        if segment.kind == "passages":
            label = segment.text.index("] ") + len("] ")
            for mention in (m for name in names for m in mentions(name, segment.text[label:])):
                start, end = (segment.start + label + place for place in mention[:2])
                mentioned[start:end] = b"\1" * (end - start)
    return tuple(i for i in tokens.of("passages") if any(mentioned[slice(*tokens.spans[i])]))


# --- One forward pass: the attention rows that are asked for, and the logits of the last tokens.
#
# All weights of a pass are layers x heads x tokens^2 numbers: 100 GB for 4,000 tokens in a 7B
# model. Only one layer's are ever held: a hook keeps the rows of the query tokens, averaged over
# heads, adds them to the sum over layers and drops the rest before the next layer runs.


def read(
    local: LocalModel,
    ids: Sequence[int],
    *,
    queries: Sequence[int],
    answer: Sequence[int],
    layers: Sequence[int],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Let the model read a prompt once.

    Args:
        local: The model.
        ids: The prompt's tokens.
        queries: Positions of the tokens whose attention is wanted.
        answer: Positions of the answer's tokens.
        layers: Numbers of the layers to average over, from 0.

    Returns:
        Attention `[queries, tokens]`, a mean over heads and layers; and logits `[answer tokens,
        vocabulary]`: what the model says where each of them comes next.

    Raises:
        ModelUnusable: A layer gives no weights, looks forward, or gives no numbers.
    """
    import torch

    kept = len(ids) - answer[0] + 1
    # The logits of all tokens would be gigabytes where the vocabulary is large. Older architectures
    # hand out weights only when asked; newer ones always do, and when asked keep all layers'.
    known = inspect.signature(local.model.forward).parameters
    wanted = {"logits_to_keep": kept, "output_attentions": True}
    missing = set(layers)
    total: Any = 0.0

    def keep_rows(layer: int, _module: Any, _inputs: Any, output: Any) -> Any:
        """Called after a layer's attention: add its rows, and hand on no weights."""
        nonlocal total
        parts = output if isinstance(output, tuple) else ()
        for position, part in enumerate(parts):
            # The weights are 1 x heads x tokens x tokens.
            shape = tuple(getattr(part, "shape", ()))
            if len(shape) == 4 and shape[2] == shape[3]:
                if layer in layers:
                    missing.discard(layer)
                    total = total + part[0, :, list(queries), :].float().mean(dim=0)
                return (*parts[:position], None, *parts[position + 1 :])
        return output

    with torch.inference_mode(), ExitStack() as hooks:
        for layer, module in enumerate(local.attentions):
            hook = module.register_forward_hook(partial(keep_rows, layer), prepend=True)
            hooks.callback(hook.remove)
        output = local.model(
            input_ids=torch.tensor([list(ids)], device=local.model.device),
            use_cache=False,
            **{name: value for name, value in wanted.items() if name in known},
        )
    if missing:
        raise _unusable_weights(local, f"no weights from layers {sorted(missing)}")
    last = output.logits[0, -kept:][[place - answer[0] for place in answer]]
    attention, logits = (
        tensor.double().cpu().numpy() for tensor in (total / len(set(layers)), last)
    )
    if not (np.isfinite(attention).all() and np.isfinite(logits).all()):
        raise _unusable_weights(local, "weights or logits are not finite")
    ahead = np.arange(attention.shape[1]) > np.asarray(queries)[:, None]
    if attention[ahead].any():
        raise _unusable_weights(local, "tokens attend to what comes after them")
    return attention, logits


def _unusable_weights(local: LocalModel, why: str) -> ModelUnusable:
    return ModelUnusable(
        f"{local.name}: {why}",
        expected="the finite weights of backward-looking attention in every layer",
        remedy="pass another model",
    )


# --- The maths: shares, entropy and perplexity.
#
# Attention here is an array `[queries, keys]`: a row for each query token, already a mean over
# heads and layers; keys are all tokens of the prompt. The sets of tokens are positions among them.


class TokenSets(NamedTuple):
    """Positions of tokens in the prompt.

    `parts` are the tokens of each kind, `anchored` those of the passages that mention an entity of
    the graph shown, `new[s]` those that mention one first indexed at step s + 1; a token may lie
    in several.
    """

    parts: dict[Kind, tuple[int, ...]]
    anchored: tuple[int, ...]
    new: tuple[tuple[int, ...], ...]


def measure_step(
    step: int,
    answer_rows: NDArray[np.floating],
    graph_rows: NDArray[np.floating] | None,
    sets: TokenSets,
    perplexity: float,
) -> StepMeasure:
    """Measure one prompt.

    Args:
        step: Which graph it holds.
        answer_rows: Attention of the answer's tokens, `[answer tokens, tokens]`.
        graph_rows: Attention of the graph's tokens; None where the graph comes first.
        sets: Which tokens are which.
        perplexity: Of the gold answer.
    """
    passages = sets.parts["passages"]
    return StepMeasure(
        step=step,
        tokens=answer_rows.shape[1],
        shares=Shares(**{kind: share(answer_rows, places) for kind, places in sets.parts.items()}),
        answer_entropy=entropy(answer_rows, passages),
        graph_entropy=None if graph_rows is None else entropy(graph_rows, passages),
        anchored=weight(answer_rows, sets.anchored, passages),
        perplexity=perplexity,
        new_entities=tuple(
            None if graph_rows is None else weight(graph_rows, new, passages) for new in sets.new
        ),
    )


def share(attention: NDArray[np.floating], keys: Sequence[int]) -> float:
    """The part of all attention of these queries, on whatever token, that falls on the keys."""
    return float(attention[:, list(keys)].sum() / attention.sum())


def weight(
    attention: NDArray[np.floating], keys: Sequence[int], among: Sequence[int]
) -> Weight | None:
    """What `keys` get of the attention on `among`, which holds them.

    None where there are no keys, or where nothing of `among` is attended to.
    """
    whole = share(attention, among)
    if not keys or whole == 0.0:
        return None
    part = share(attention, keys) / whole
    return Weight(part, part * len(among) / len(keys))


def entropy(attention: NDArray[np.floating], keys: Sequence[int]) -> float | None:
    """Mean over the query tokens of the entropy of their attention over the keys, in nats.

    Each query's weights are first renormalised over the keys, so that it lies between 0 (all on
    one key) and ln(keys) (all alike). It is computed token by token and then averaged: the entropy
    of the pooled attention would grow with the number of query tokens, and later graphs are
    longer. Queries that attend to none of the keys do not count; None where that is all of them.
    """
    rows = attention[:, list(keys)].astype(np.float64)
    rows = rows[rows.sum(axis=1) > 0.0]
    if not len(rows):
        return None
    rows /= rows.sum(axis=1, keepdims=True)
    # 0 ln 0 is 0.
    logs = np.log(rows, out=np.zeros_like(rows), where=rows > 0.0)
    return float(-(rows * logs).sum(axis=1).mean())


def perplexity(logits: NDArray[np.floating], targets: Sequence[int]) -> float:
    """How unlikely the targets are: exp of their mean negative log-likelihood.

    Args:
        logits: `[targets, vocabulary]`; row i is what the model says where target i comes next.
        targets: Vocabulary ids.
    """
    scores = logits.astype(np.float64)
    top = scores.max(axis=1)
    normaliser = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
    of_targets = scores[np.arange(len(targets)), list(targets)]
    return float(np.exp((normaliser - of_targets).mean()))


# --- A causal LM from a local folder, with its attention weights in reach.


def load_model(path: str | Path) -> LocalModel:
    """Load a causal LM and its fast tokenizer from a folder; nothing is downloaded.

    It runs on the GPU where there is one, in the number type that its weights are stored in, else
    on the CPU in float32.

    Raises:
        MissingExtra: torch or transformers is not installed.
        ModelUnusable: The folder is missing or holds no causal LM, or only a part of one, or its
            tokenizer gives no character offsets.
    """
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise _unusable(folder, "no config.json" if folder.is_dir() else "no such folder")
    torch, transformers = (require(name, "retrieval") for name in ("torch", "transformers"))
    from safetensors import SafetensorError

    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        with no_progress_bar():
            # Only the plain implementation of attention hands out its weights.
            model, loaded = transformers.AutoModelForCausalLM.from_pretrained(
                folder, attn_implementation="eager", output_loading_info=True, **local
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        raise _unusable(folder, f"{type(error).__name__}: {error}") from error
    if missing := sorted(loaded["missing_keys"]):
        # The library fills these at random, and the measure would be noise.
        raise _unusable(folder, f"weights are missing: {missing[:3]}")
    if not tokenizer.is_fast:
        slow = f"the slow tokenizer {type(tokenizer).__name__}, which gives no character offsets"
        raise _unusable(folder, slow)
    # The innermost attention modules: some architectures wrap one in another.
    named = [m for m in model.modules() if type(m).__name__.endswith("Attention")]
    inner = tuple(m for m in named if not any(n is not m and n in named for n in m.modules()))
    if not inner:
        raise _unusable(folder, f"{type(model).__name__} has no attention layers")
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    placed = model.to("cuda") if torch.cuda.is_available() else model.float()
    return LocalModel(_name(folder), placed.eval(), tokenizer, inner, context)


def _name(folder: Path) -> str:
    """The folder's name; the model's own for a folder of the Hugging Face cache."""
    resolved = folder.resolve()
    if resolved.parent.name == "snapshots":
        return resolved.parent.parent.name.removeprefix("models--").replace("--", "/")
    return resolved.name


def _unusable(folder: Path, why: str) -> ModelUnusable:
    return ModelUnusable(
        f"{folder}: {why}",
        expected="the folder of a Hugging Face causal LM with config.json, weights and a fast "
        "tokenizer (tokenizer.json)",
        remedy="download one and pass its folder",
    )
