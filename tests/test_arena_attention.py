"""What is computed from attention: against numbers worked out by hand; and whose each token is."""

from __future__ import annotations

import subprocess
import sys
from math import exp, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ga_dspy.arena.attention import (
    KINDS,
    AttentionCase,
    ModelUnusable,
    TokenSets,
    compose,
    entropy,
    measure_step,
    mention_tokens,
    perplexity,
    share,
    tokenize,
    weight,
)
from ga_dspy.passage import Passage

# Tokens: 0 start, 1 to 3 passages, 4 graph, 5 question, 6 answer. [layer, head, query, key]; the
# queries are the graph's token and the answer's.
HEADS = np.array(
    [
        [
            [[0.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0], [0.1, 0.1, 0.1, 0.2, 0.3, 0.1, 0.1]],
            [[0.2, 0.3, 0.1, 0.2, 0.2, 0.0, 0.0], [0.3, 0.1, 0.1, 0.0, 0.5, 0.0, 0.0]],
        ]
    ]
)
SETS = TokenSets(
    parts={
        "graph": (4,), "passages": (1, 2, 3), "question": (5,), "answer": (6,), "rest": (0,),
    },
    anchored=(1, 2),
    new=((1,), (2, 3), ()),
)  # fmt: skip
CASE = AttentionCase(
    question="Where is the seat of Carbon County?",
    answer="Red Lodge",
    passages=(
        (3, Passage(id="a", title="Red Lodge", text="Red Lodge is the seat of Carbon County.")),
        (7, Passage(id="b", title="Montana", text="Montana has 3 large\ncities.")),
    ),
    graphs=("Entities:\n- Red Lodge [3]", "Entities:\n- Red Lodge [3]\n- Montana [7]"),
    entities=(("Red Lodge", "Carbon County"), ("Montana",)),
)


MEAN = HEADS.mean(axis=(0, 1))
"""By hand: the graph's row is .1 .4 .3 .1 .1 0 0, the answer's .2 .1 .1 .1 .4 .05 .05."""


def test_a_step_is_what_one_computes_by_hand() -> None:
    graph, answer = MEAN
    got = measure_step(2, answer[None], graph[None], SETS, perplexity=3.0)
    assert got.shares == pytest.approx((0.4, 0.3, 0.05, 0.05, 0.2))
    # The answer gives each passage token 0.1: uniform. The graph gives 0.4, 0.3 and 0.1 of 0.8.
    assert got.answer_entropy == pytest.approx(log(3))
    by_hand = 0.5 * log(2) + 0.375 * log(8 / 3) + 0.125 * log(8)
    assert got.graph_entropy == pytest.approx(by_hand)
    # Two of three passage tokens get two thirds of 0.3: as much as any.
    assert got.anchored == pytest.approx((2 / 3, 1.0))
    first, second, third = got.new_entities
    assert first == pytest.approx((0.4 / 0.8, 1.5))
    assert second == pytest.approx((0.4 / 0.8, 0.75))
    assert third is None
    assert (got.step, got.tokens, got.perplexity) == (2, 7, 3.0)


def test_without_rows_of_the_graph_what_it_gives_to_passages_is_unknown() -> None:
    answer = MEAN[1:]
    got = measure_step(1, answer, None, SETS, perplexity=3.0)
    assert got.graph_entropy is None and got.new_entities == (None, None, None)
    assert got.shares.graph == pytest.approx(0.4)


def test_entropy_is_zero_on_one_token_and_ln_n_on_n_alike() -> None:
    assert entropy(np.array([[0.7, 0.0, 0.3, 0.0]]), (1, 2, 3)) == 0.0
    assert entropy(np.array([[0.2, 0.2, 0.2, 0.2, 0.2]]), (0, 1, 2, 3)) == pytest.approx(log(4))


def test_entropy_is_of_each_query_token_and_not_of_the_pool() -> None:
    looking_apart = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert entropy(looking_apart, (0, 1)) == 0.0
    one_sees_nothing = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    assert entropy(one_sees_nothing, (0, 1)) == pytest.approx(log(2))


def test_what_gets_no_attention_at_all_has_no_entropy_and_no_weight() -> None:
    elsewhere = np.array([[0.0, 0.0, 1.0]])
    assert entropy(elsewhere, (0, 1)) is None
    assert weight(elsewhere, (0,), (0, 1)) is None


@given(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=8), st.integers(1, 7))
def test_shares_of_a_partition_sum_to_one_and_entropy_keeps_its_bounds(
    raw: list[float], cut: int
) -> None:
    row = np.array([raw]) / sum(raw)
    left, right = range(min(cut, len(raw))), range(min(cut, len(raw)), len(raw))
    assert share(row, left) + share(row, right) == pytest.approx(1.0)
    spread = entropy(row, range(len(raw)))
    assert spread is not None and -1e-9 <= spread <= log(len(raw)) + 1e-9


def test_perplexity_is_the_inverse_of_the_geometric_mean_probability() -> None:
    # Probabilities 1/4 and 1/2, each beside an unlikely and large number to normalise by.
    logits = np.array([[log(1.0) + 900.0, log(3.0) + 900.0], [0.0, 0.0]])
    assert perplexity(logits, [0, 1]) == pytest.approx(exp((log(4) + log(2)) / 2))


def test_every_token_of_the_prompt_belongs_to_the_part_it_stands_in(words: Any) -> None:
    prompt = compose(CASE, 2, words)
    tokens = tokenize(prompt, words)
    parts = {kind: words.decode([tokens.ids[i] for i in tokens.of(kind)]) for kind in KINDS}
    assert parts["answer"] == "Red Lodge"
    assert parts["question"] == "Where is the seat of Carbon County ?"
    assert parts["graph"] == "Entities : - Red Lodge [ 3 ] - Montana [ 7 ]"
    assert parts["passages"] == (
        "[ 3 ] Red Lodge Red Lodge is the seat of Carbon County . "
        "[ 7 ] Montana Montana has 3 large cities ."
    )
    assert parts["rest"].startswith("<s> Answer the question") and "Montana" not in parts["rest"]
    assert sum(len(tokens.of(kind)) for kind in KINDS) == len(tokens.ids)


def test_a_token_over_a_border_belongs_where_most_of_its_characters_lie(bytewise: Any) -> None:
    prompt = compose(CASE, 1, bytewise)
    tokens = tokenize(prompt, bytewise)
    first = tokens.of("answer")[0]
    start, end = tokens.spans[first]
    border = prompt.segments[-1].start
    assert start < border < end, "the space before the answer is in its first token"


def test_a_part_that_the_tokenizer_drops_is_named() -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    letters = {letter: i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyzCELMR -[]37?\n")}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(letters, [])))
    abroad = CASE.model_copy(update={"answer": "日本"})
    with pytest.raises(ModelUnusable, match=r"no token belongs to the answer.*日本"):
        tokenize(compose(abroad, 1, tokenizer), tokenizer)


def test_the_graph_stands_after_the_passages_unless_asked_otherwise(words: Any) -> None:
    after = compose(CASE, 1, words).text
    before = compose(CASE, 1, words, graph_after_passages=False).text
    assert after.index("[7] Montana") < after.index("- Red Lodge [3]") < after.index("Where is")
    assert before.index("- Red Lodge [3]") < before.index("[7] Montana") < before.index("Where is")
    assert sorted(after) == sorted(before)


def test_mentions_are_found_in_passages_only_and_never_in_a_label(words: Any) -> None:
    prompt = compose(CASE, 2, words)
    tokens = tokenize(prompt, words)

    def mentioned(*names: str) -> str:
        found: str = words.decode([tokens.ids[i] for i in mention_tokens(prompt, tokens, names)])
        return found

    assert mentioned("the red lodge") == "Red Lodge Red Lodge"
    assert mentioned("Carbon County", "Montana") == "Carbon County Montana Montana"
    assert mentioned("3") == "3"
    assert mentioned("Wyoming") == ""


def test_a_chat_template_frames_the_prompt_and_the_answer_opens_the_reply(words: Any) -> None:
    words.chat_template = (
        "<s>{% for m in messages %}User says {{ m['content'] | trim }} . {% endfor %}"
        "{% if add_generation_prompt %}Reply : {% endif %}"
    )
    prompt = compose(CASE, 1, words)
    assert prompt.text.startswith("<s>User says Answer the question")
    assert prompt.text.endswith("Carbon County? . Reply : Red Lodge")
    tokens = tokenize(prompt, words)
    assert tokens.ids.count(words.bos_token_id) == 1
    assert words.decode([tokens.ids[i] for i in tokens.of("answer")]) == "Red Lodge"


@pytest.mark.parametrize(
    "template", ["nothing of the message", "{{ raise_exception('system message wanted') }}"]
)
def test_a_chat_template_that_fails_is_named(words: Any, template: str) -> None:
    words.chat_template = template
    with pytest.raises(
        ModelUnusable, match=r"chat template fails: .*(user's message|system message wanted)"
    ):
        compose(CASE, 1, words)


@pytest.mark.parametrize(
    "wrong", [{"answer": " "}, {"passages": ()}, {"entities": ((),)}, {"graphs": ("x", "")}]
)
def test_a_case_with_a_part_missing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AttentionCase.model_validate(CASE.model_dump() | wrong)


def test_a_graph_anchors_what_was_indexed_up_to_its_step() -> None:
    assert CASE.indexed(1) == ("Red Lodge", "Carbon County")
    assert CASE.indexed(2) == ("Red Lodge", "Carbon County", "Montana")


def test_importing_the_measures_imports_no_model_library() -> None:
    heavy = "{'torch', 'transformers', 'pandas', 'matplotlib'}"
    code = f"import sys, ga_dspy; before = {heavy} & set(sys.modules)\n"
    code += f"import ga_dspy.arena.attention; print(sorted({heavy} & set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def words() -> Any:
    """Splits at spaces and punctuation; knows every word it is asked for in these tests."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    text = (
        "Answer the question from the passages . The graph lists the entities and relations found "
        "in them , with passage numbers Reply with short answer alone Passages : Graph Question "
        "User says Reply Entities - [ ] 3 7 ? " + CASE.question + CASE.answer
    ) + " ".join(passage.content for _, passage in CASE.passages)
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    )
    special = ["<unk>", "<s>"]
    tokenizer.train_from_iterator(
        [text], trainers.WordLevelTrainer(special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")


@pytest.fixture
def bytewise() -> Any:
    """Splits into pieces of bytes that keep the space before a word, as GPT-2's does."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(
        [" Red Lodge Carbon County Montana" * 3],
        trainers.BpeTrainer(
            vocab_size=400,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)
