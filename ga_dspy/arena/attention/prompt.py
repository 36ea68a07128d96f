"""The prompt that is measured: what stands where, in characters and in tokens.

A decoder attends backwards only. What the graph attends to in the passages can therefore be seen
only where the passages stand before it; the paper's answer template has the graph first, and with
it the attention from graph to passages is zero by construction. So the graph comes last here
unless asked otherwise.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, NamedTuple, get_args

from ga_dspy.arena.attention.cases import AttentionCase
from ga_dspy.errors import GaDspyError
from ga_dspy.mentions import mentions
from ga_dspy.signatures.prompt import render_passage

Kind = Literal["passages", "graph", "question", "answer", "rest"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_INSTRUCTION = (
    "Answer the question from the passages. The graph lists the entities and relations found in "
    "them, with passage numbers. Reply with the short answer alone."
)
_PLACE = "THE PROMPT STANDS HERE"


class TemplateUnusable(GaDspyError):
    """The tokenizer's chat template does not show what the user says."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the chat template fails: {why}; expected one that shows a single user message as it "
            "is; mend chat_template in the model's folder, or remove it to measure without"
        )


class NoTokens(GaDspyError):
    """A part of the prompt has no token of its own by the tokenizer's offsets."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(
            f"no token belongs to the {kind} ({text[:60]!r}); expected a tokenizer whose character "
            "offsets cover its input; update tokenizers, or use another model"
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
        TemplateUnusable: The tokenizer has a chat template that fails.
    """
    passages = _passages(case)
    graph: list[tuple[Kind, str]] = [("rest", "\n\nGraph:\n"), ("graph", case.graphs[step - 1])]
    material = [*passages, *graph] if graph_after_passages else [*graph, *passages]
    asked: list[tuple[Kind, str]] = [("rest", "\n\nQuestion: "), ("question", case.question)]
    message: list[tuple[Kind, str]] = [("rest", _INSTRUCTION), *material, *asked]
    frame = _chat_frame(tokenizer)
    before, after = frame or ("", "\nAnswer: ")
    parts: list[tuple[Kind, str]] = [("rest", before), *message]
    parts += [("rest", after), ("answer", case.answer)]
    return Prompt(_placed(parts), templated=frame is not None)


def tokenize(prompt: Prompt, tokenizer: Any) -> Tokens:
    """The prompt's tokens, never truncated.

    A token belongs to the segment that most of its characters lie in, the earlier one in a tie;
    special tokens and those without characters belong to the rest.

    Raises:
        NoTokens: No token belongs to the passages, the graph, the question or the answer.
    """
    encoded = tokenizer(
        prompt.text,
        add_special_tokens=not prompt.templated,
        return_offsets_mapping=True,
        truncation=False,
        verbose=False,
    )
    spans = tuple((start, end) for start, end in encoded["offset_mapping"])
    owners = [segment.kind for segment in prompt.segments for _ in segment.text]
    kinds = tuple(_owner(owners[start:end]) for start, end in spans)
    tokens = Tokens(tuple(encoded["input_ids"]), spans, kinds)
    for segment in prompt.segments:
        if segment.kind != "rest" and segment.kind not in kinds:
            raise NoTokens(segment.kind, segment.text)
    return tokens


def mention_tokens(prompt: Prompt, tokens: Tokens, names: tuple[str, ...]) -> tuple[int, ...]:
    """The passage tokens that hold a character of a mention of any of the names.

    Mentions are found by `ga_dspy.mentions` in each passage's title and text, at most 20 of a
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


def _passages(case: AttentionCase) -> list[tuple[Kind, str]]:
    parts: list[tuple[Kind, str]] = [("rest", "\n\nPassages:\n")]
    for number, (label, passage) in enumerate(case.passages):
        parts += [("rest", "\n\n")] if number else []
        parts.append(("passages", render_passage(label, passage)))
    return parts


def _placed(parts: list[tuple[Kind, str]]) -> tuple[Segment, ...]:
    segments, start = [], 0
    for kind, text in parts:
        segments.append(Segment(kind, text, start))
        start += len(text)
    return tuple(segments)


def _owner(kinds: list[Kind]) -> Kind:
    return Counter(kinds).most_common(1)[0][0] if kinds else "rest"


def _chat_frame(tokenizer: Any) -> tuple[str, str] | None:
    """What the chat template writes before and after the user's message; None without one."""
    if not tokenizer.chat_template:
        return None
    from jinja2 import TemplateError

    said = [{"role": "user", "content": _PLACE}]
    try:
        text = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    except (TemplateError, ValueError) as error:
        raise TemplateUnusable(str(error)) from error
    before, found, after = text.partition(_PLACE)
    if not found:
        raise TemplateUnusable("the user's message is not in what it renders")
    return before, after
