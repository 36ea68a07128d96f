"""One forward pass: the attention rows that are asked for, and the logits of the last tokens.

All weights of a pass are layers x heads x tokens^2 numbers: 100 GB for 4,000 tokens in a 7B model.
Only one layer's are ever held. A hook takes each layer's weights as they come, keeps the rows of
the query tokens averaged over heads, adds them to the sum over layers and drops the rest before
the next layer runs. What remains is query tokens x tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from ga_dspy.arena.attention.model import LocalModel
from ga_dspy.errors import GaDspyError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class WeightsUnavailable(GaDspyError):
    """The model's attention weights cannot be measured."""

    def __init__(self, model: str, why: str) -> None:
        super().__init__(
            f"{model}: {why}; expected the finite weights of backward-looking attention in every "
            "layer; pass another model"
        )


class Reading(NamedTuple):
    """`attention` is `[queries, tokens]`, a mean over heads and layers.

    `logits` is `[answer tokens, vocabulary]`: what the model says where each of them comes next.
    """

    attention: NDArray[np.float64]
    logits: NDArray[np.float64]


def read(
    local: LocalModel,
    ids: Sequence[int],
    *,
    queries: Sequence[int],
    answer: Sequence[int],
    layers: Sequence[int],
) -> Reading:
    """Let the model read a prompt once.

    Args:
        local: The model.
        ids: The prompt's tokens.
        queries: Positions of the tokens whose attention is wanted.
        answer: Positions of the answer's tokens.
        layers: Numbers of the layers to average over, from 0.

    Raises:
        WeightsUnavailable: A layer gives no weights, looks forward, or gives no numbers.
    """
    import torch

    kept = len(ids) - answer[0] + 1
    rows = _Rows(queries, layers)
    with torch.inference_mode(), ExitStack() as hooks:
        for number, module in enumerate(local.attentions):
            hook = module.register_forward_hook(rows.hook(number), prepend=True)
            hooks.callback(hook.remove)
        output = local.model(
            input_ids=torch.tensor([list(ids)], device=local.model.device),
            use_cache=False,
            **_options(local.model, kept),
        )
    predicting = [place - answer[0] for place in answer]
    logits = _array(output.logits[0, -kept:][predicting])
    return Reading(_checked(local.name, rows, logits), logits)


def _options(model: Any, kept: int) -> dict[str, Any]:
    """What a model's forward pass must be told, of what it knows.

    The logits of all tokens would be gigabytes where the vocabulary is large. Older architectures
    hand out weights only when asked; newer ones always do, and when asked keep those of all layers.
    """
    known = inspect.signature(model.forward).parameters
    wanted = {"logits_to_keep": kept, "output_attentions": True}
    return {name: value for name, value in wanted.items() if name in known}


class _Rows:
    """The sum over layers of the rows that are wanted, each a mean over heads."""

    def __init__(self, queries: Sequence[int], layers: Sequence[int]) -> None:
        self.queries, self.layers = list(queries), frozenset(layers)
        self.seen: set[int] = set()
        self.total: Any = 0.0

    def hook(self, number: int) -> Callable[[Any, Any, Any], Any]:
        """What is called after a layer's attention: take the rows, hand on no weights."""

        def take(_module: Any, _inputs: Any, output: Any) -> Any:
            weights = _weights(output)
            if weights is None:
                return output
            if number in self.layers:
                self.seen.add(number)
                self.total = self.total + weights[0, :, self.queries, :].float().mean(dim=0)
            return tuple(None if part is weights else part for part in output)

        return take


def _weights(output: Any) -> Any | None:
    """The part of a layer's output that is [1, heads, tokens, tokens]."""
    parts = output if isinstance(output, tuple) else ()
    for part in parts:
        shape = tuple(getattr(part, "shape", ()))
        if len(shape) == 4 and len(set(shape[2:])) == 1:
            return part
    return None


def _checked(name: str, rows: _Rows, logits: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    missing = sorted(rows.layers - rows.seen)
    if missing:
        raise WeightsUnavailable(name, f"no weights from layers {missing}")
    attention = _array(rows.total / len(rows.layers))
    if not (np.isfinite(attention).all() and np.isfinite(logits).all()):
        raise WeightsUnavailable(name, "weights or logits are not finite")
    ahead = np.arange(attention.shape[1]) > np.asarray(rows.queries)[:, None]
    if attention[ahead].any():
        raise WeightsUnavailable(name, "tokens attend to what comes after them")
    return attention


def _array(tensor: Any) -> NDArray[np.float64]:
    array: NDArray[np.float64] = tensor.double().cpu().numpy()
    return array
