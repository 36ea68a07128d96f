"""A causal LM from a local folder, with its attention weights in reach."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ga_dspy.errors import GaDspyError, MissingExtra


class ModelUnusable(GaDspyError):
    """A folder does not hold a causal LM that can be measured."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{path}: {why}; expected the folder of a Hugging Face causal LM with config.json, "
            "weights and tokenizer; download one and pass its folder"
        )
        self.path = path


class SlowTokenizer(GaDspyError):
    """The tokenizer cannot say which characters a token stands for."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(
            f"{path} has the slow tokenizer {name}, which gives no character offsets; expected a "
            "fast one (a tokenizer.json in the folder); convert it, or pass another model"
        )
        self.path = path


class LocalModel(NamedTuple):
    """A loaded model; `attentions` are its attention modules, one a layer, first to last.

    `context` is the greatest number of tokens that it reads, None where it has no limit.
    """

    name: str
    model: Any
    tokenizer: Any
    attentions: tuple[Any, ...]
    context: int | None


def load_model(path: str | Path) -> LocalModel:
    """Load a causal LM and its fast tokenizer from a folder; nothing is downloaded.

    It runs on the GPU where there is one, in the number type that its weights are stored in, else
    on the CPU in float32.

    Raises:
        MissingExtra: torch or transformers is not installed.
        ModelUnusable: The folder is missing or holds no causal LM, or only a part of one.
        SlowTokenizer: Its tokenizer gives no character offsets.
    """
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise ModelUnusable(folder, "no config.json" if folder.is_dir() else "no such folder")
    model, tokenizer = _load(folder)
    if not tokenizer.is_fast:
        raise SlowTokenizer(folder, type(tokenizer).__name__)
    attentions = _attentions(model)
    if not attentions:
        raise ModelUnusable(folder, f"{type(model).__name__} has no attention layers")
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return LocalModel(_name(folder), _placed(model), tokenizer, attentions, context)


def _load(folder: Path) -> tuple[Any, Any]:
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise MissingExtra(package, "retrieval")
    from safetensors import SafetensorError

    try:
        with _no_progress_bar():
            model, missing, tokenizer = _pretrained(folder)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        raise ModelUnusable(folder, f"{type(error).__name__}: {error}") from error
    if missing:
        # The library fills these at random, and the measure would be noise.
        raise ModelUnusable(folder, f"weights are missing: {sorted(missing)[:3]}")
    return model.eval(), tokenizer


def _pretrained(folder: Path) -> tuple[Any, set[str], Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    local = {"local_files_only": True, "trust_remote_code": False}
    # Only the plain implementation of attention hands out its weights.
    model, loaded = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True, **local
    )
    return model, loaded["missing_keys"], AutoTokenizer.from_pretrained(folder, **local)


def _attentions(model: Any) -> tuple[Any, ...]:
    """The innermost attention modules: some architectures wrap one in another."""
    named = [m for m in model.modules() if type(m).__name__.endswith("Attention")]
    return tuple(m for m in named if not any(n is not m and n in named for n in m.modules()))


def _placed(model: Any) -> Any:
    import torch

    return model.to("cuda") if torch.cuda.is_available() else model.float()


def _name(folder: Path) -> str:
    """The folder's name; the model's own for a folder of the Hugging Face cache."""
    resolved = folder.resolve()
    if resolved.parent.name == "snapshots":
        return resolved.parent.parent.name.removeprefix("models--").replace("--", "/")
    return resolved.name


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
