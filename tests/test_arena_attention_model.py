"""Attention of tiny random models, made here and loaded from a folder as a user's would be."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ga_dspy.arena.attention import (
    AttentionCase,
    ModelUnusable,
    compose,
    load_model,
    measure,
    read,
)
from ga_dspy.arena.attention_report import AttentionReport, Progress, measure_all
from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.passage import Passage

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

CASE = AttentionCase(
    question="Where is the seat of Carbon County?",
    answer="Red Lodge",
    passages=(
        (1, Passage(id="a", title="Red Lodge", text="Red Lodge is the seat of Carbon County.")),
        (2, Passage(id="b", title="Montana", text="Carbon County is in Montana.")),
    ),
    graphs=("Entities:\n- Carbon County [1]", "Entities:\n- Carbon County [1]\n- Montana [2]"),
    entities=(("Carbon County",), ("Montana", "Wyoming")),
)
LONG = CASE.model_copy(
    update={"question": "How long?", "graphs": (CASE.graphs[0], "Montana " * 200)}
)
Make = Callable[..., Path]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Make the folder of a tiny model: `make("Llama", "CausalLM", layers=2)`."""

    def made(family: str = "Llama", kind: str = "ForCausalLM", **config: Any) -> Path:
        folder = tmp_path_factory.mktemp("models") / f"tiny-{family.lower()}"
        tokenizer = _tokenizer()
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
        sizes |= {"num_attention_heads": 2, "max_position_embeddings": 200}
        torch.manual_seed(7)
        # A wide initialisation, so that the attention is far from uniform.
        settings = {"vocab_size": len(tokenizer), "initializer_range": 0.5} | sizes | config
        if family == "GPT2":
            del settings["intermediate_size"]
        model = getattr(transformers, f"{family}{kind}")(
            getattr(transformers, f"{family}Config")(**settings)
        )
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return made


@pytest.fixture(scope="module")
def llama(make: Make) -> Path:
    return make("Llama")


@pytest.fixture(scope="module")
def report(llama: Path) -> AttentionReport:
    return measure_all([CASE, LONG], llama)


def test_attention_of_one_layer_equals_softmax_of_queries_and_keys(make: Make) -> None:
    folder = make("GPT2", "LMHeadModel", num_hidden_layers=1)
    ids, places = _ids_and_places(folder, step=2)
    attention, _ = read(
        load_model(folder),
        ids,
        queries=places["graph"],
        answer=places["answer"],
        layers=[0],
    )
    model = transformers.GPT2LMHeadModel.from_pretrained(folder)
    block = model.transformer.h[0]
    with torch.no_grad():
        seen = model.transformer.wte.weight[ids] + model.transformer.wpe.weight[: len(ids)]
        centred = seen - seen.mean(-1, keepdim=True)
        scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
        normed = scaled * block.ln_1.weight + block.ln_1.bias
        mixed = normed @ block.attn.c_attn.weight + block.attn.c_attn.bias
        heads = []
        for columns in (slice(0, 8), slice(8, 16)):
            query, key = mixed[:, :16][:, columns], mixed[:, 16:32][:, columns]
            scores = query @ key.T / 8**0.5
            ahead = torch.ones(len(ids), len(ids)).triu(1).bool()
            heads.append(torch.softmax(scores.masked_fill(ahead, float("-inf")), dim=-1))
        expected = ((heads[0] + heads[1]) / 2)[places["graph"]]
    np.testing.assert_allclose(attention, expected.numpy(), atol=1e-6)
    assert attention.max() > 0.2, "far from uniform, so that the comparison means something"


def test_rows_taken_layer_by_layer_equal_those_of_all_weights_at_once(llama: Path) -> None:
    ids, places = _ids_and_places(llama, step=2)
    plain = transformers.AutoModelForCausalLM.from_pretrained(llama, attn_implementation="eager")
    with torch.no_grad():
        everything = plain(torch.tensor([ids]), output_attentions=True)
    stacked = torch.stack(everything.attentions)[:, 0]
    for layers in ([0, 1], [1]):
        attention, logits = read(
            load_model(llama), ids, queries=places["graph"], answer=places["answer"], layers=layers
        )
        expected = stacked[layers].mean(dim=(0, 1))[places["graph"]]
        np.testing.assert_allclose(attention, expected.numpy(), atol=1e-6)
    predicting = [place - 1 for place in places["answer"]]
    np.testing.assert_allclose(logits, everything.logits[0, predicting], atol=1e-4)


@pytest.mark.parametrize("family", ["Llama", "Falcon"])
def test_no_more_than_one_layer_is_held_at_a_time(make: Make, family: str) -> None:
    # Falcon's kind hands out weights only when asked, and then keeps what every layer returns.
    local = load_model(make(family, num_hidden_layers=4))
    held: list[Any] = []
    most = 0

    def watched(forward: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal most
            output = forward(*args, **kwargs)
            held.append(weakref.ref(output[1]))
            most = max(most, sum(ref() is not None for ref in held))
            return output

        return run

    for module in local.attentions:
        module.forward = watched(module.forward)
    measure(CASE.model_copy(update={"graphs": CASE.graphs[:1], "entities": ((),)}), local)
    assert (len(held), most) == (4, 1)


def test_measures_agree_with_positions_and_weights_found_in_the_test(
    llama: Path, report: AttentionReport
) -> None:
    ids, places = _ids_and_places(llama, step=2)
    plain = transformers.AutoModelForCausalLM.from_pretrained(llama, attn_implementation="eager")
    with torch.no_grad():
        output = plain(torch.tensor([ids]), output_attentions=True)
    mean = torch.stack(output.attentions)[:, 0].mean(dim=(0, 1)).numpy()
    answer, graph = mean[places["answer"]], mean[places["graph"]]
    got = report.measured[0][1]
    assert got.tokens == len(ids)
    assert got.shares.graph == pytest.approx(answer[:, places["graph"]].sum() / 2, abs=1e-5)
    assert got.shares.passages == pytest.approx(answer[:, places["passages"]].sum() / 2, abs=1e-5)
    on_passages = graph[:, places["passages"]].sum()
    expected = graph[:, places["Montana"]].sum() / on_passages
    assert got.new_entities[1] is not None
    assert got.new_entities[1].share == pytest.approx(expected, abs=1e-5)
    anchored = answer[:, [*places["Montana"], *places["Carbon County"]]].sum()
    assert got.anchored is not None
    assert got.anchored.share == pytest.approx(
        anchored / answer[:, places["passages"]].sum(), abs=1e-5
    )
    loss = torch.nn.functional.cross_entropy(
        output.logits[0, -3:-1], torch.tensor(ids[-2:]), reduction="mean"
    )
    assert got.perplexity == pytest.approx(float(loss.exp()), rel=1e-4)


def test_an_entity_of_a_later_step_is_not_anchored_yet(llama: Path) -> None:
    first, second = measure_all([CASE], llama).measured[0]
    without = CASE.model_copy(update={"entities": (CASE.entities[0], ())})
    known, same = measure_all([without], llama).measured[0]
    assert first.anchored == known.anchored, "Montana is indexed at step 2"
    assert second.anchored != same.anchored


def test_shares_sum_to_one_with_the_rest(report: AttentionReport) -> None:
    for step in report.measured[0]:
        assert sum(step.shares) == pytest.approx(1.0)
        assert min(step.shares) > 0.0


def test_a_graph_before_the_passages_gives_them_nothing_to_measure(llama: Path) -> None:
    (steps,) = measure_all([CASE], llama, graph_after_passages=False).measured
    for step in steps:
        assert step.graph_entropy is None and step.new_entities == (None, None)
        assert step.answer_entropy is not None and step.anchored is not None
        assert sum(step.shares) == pytest.approx(1.0)


def test_a_question_that_is_too_long_is_skipped_at_every_step_and_named(
    report: AttentionReport,
) -> None:
    assert len(report.measured) == 1
    (skipped,) = report.skipped
    assert skipped.question == "How long?"
    assert "the graph of step 2 has" in skipped.reason and "at most 200" in skipped.reason


def test_a_prompt_as_long_as_the_context_is_measured_and_one_longer_is_not(make: Make) -> None:
    roomy = make("Llama")
    length = max(step.tokens for step in measure_all([CASE], roomy).measured[0])
    assert measure_all([CASE], make("Llama", max_position_embeddings=length)).skipped == ()
    assert measure_all([CASE], make("Llama", max_position_embeddings=length - 1)).measured == ()


def test_only_the_layers_asked_for_count(llama: Path, report: AttentionReport) -> None:
    one = [measure_all([CASE], llama, layers=[layer]).steps[0].shares.graph for layer in (0, 1)]
    assert one[0] != pytest.approx(one[1])
    assert sum(one) / 2 == pytest.approx(report.steps[0].shares.graph)
    for wrong in ([], [2], [-1]):
        with pytest.raises(InputError, match="0 to 1"):
            measure_all([CASE], llama, layers=wrong)


def test_progress_counts_questions_and_those_skipped(llama: Path) -> None:
    seen: list[Progress] = []
    measure_all([LONG, CASE], llama, progress=seen.append)
    assert seen == [(0, 2, 0), (1, 2, 1), (2, 2, 1)]


def test_loading_and_measuring_print_nothing(
    llama: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    measure_all([CASE], llama)
    assert capfd.readouterr() == ("", "")


def test_no_questions_are_an_error(llama: Path) -> None:
    with pytest.raises(InputError, match="no questions"):
        measure_all([], llama)


def test_a_folder_that_holds_no_model_is_one_clear_error(tmp_path: Path, llama: Path) -> None:
    with pytest.raises(ModelUnusable, match="no such folder"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ModelUnusable, match=r"no config\.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(ModelUnusable, match="causal LM"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelUnusable, match="causal LM"):
        load_model(tmp_path)


def test_a_missing_tokenizer_is_one_clear_error(make: Make) -> None:
    folder = make("Llama")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelUnusable, match="tokenizer"):
        load_model(folder)


def test_cut_off_weights_are_one_clear_error(make: Make) -> None:
    folder = make("Llama")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelUnusable, match="SafetensorError"):
        load_model(folder)


def test_a_model_without_its_head_is_not_filled_up_at_random(make: Make) -> None:
    with pytest.raises(ModelUnusable, match=r"weights are missing: \['lm_head"):
        load_model(make("Llama", "Model"))


def test_a_slow_tokenizer_is_one_clear_error(make: Make) -> None:
    folder = make("Llama")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "CTRLTokenizer"}')
    (folder / "vocab.json").write_text(json.dumps({"<unk>": 0}))
    (folder / "merges.txt").write_text("#version\n")
    with pytest.raises(ModelUnusable, match="slow tokenizer CTRLTokenizer"):
        load_model(folder)


def test_a_model_that_reads_both_ways_is_refused(make: Make) -> None:
    with pytest.raises(ModelUnusable, match="what comes after"):
        measure_all([CASE], make("Bert", "LMHeadModel"))


def test_weights_that_are_no_numbers_are_refused(make: Make) -> None:
    local = load_model(make("Llama"))
    with torch.no_grad():
        local.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(ModelUnusable, match="not finite"):
        measure(CASE, local)


def test_without_transformers_the_extra_is_named(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"transformers.*ga-dspy\[retrieval\]"):
        load_model(llama)


def _ids_and_places(folder: Path, step: int) -> tuple[list[int], dict[str, list[int]]]:
    """The prompt's tokens, and where its parts stand by looking for their words."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids: list[int] = tokenizer(compose(CASE, step, tokenizer).text)["input_ids"]
    said = tokenizer.convert_ids_to_tokens(ids)
    passages, graph, question = (
        _find(said, f"{name} :")[0][-1] + 1 for name in ("Passages", "Graph", "Question")
    )
    inside = range(passages, graph - 2)
    return ids, {
        "passages": list(inside),
        "graph": list(range(graph, question - 2)),
        "answer": [len(ids) - 2, len(ids) - 1],
        **{
            name: [place for run in _find(said, name) for place in run if place in inside]
            for name in ("Montana", "Carbon County")
        },
    }


def _find(said: list[str], phrase: str) -> list[list[int]]:
    sought = phrase.split()
    starts = (i for i in range(len(said)) if said[i : i + len(sought)] == sought)
    return [list(range(start, start + len(sought))) for start in starts]


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    text = (
        "Answer the question from passages . The graph lists entities and relations found in "
        "them , with passage numbers Reply short answer alone Passages : Graph Question Entities "
        "- [ ] 1 2 ? " + CASE.question + CASE.answer
    ) + " ".join(passage.content for _, passage in CASE.passages)
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    )
    trainer = trainers.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
