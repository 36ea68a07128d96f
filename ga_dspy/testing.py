"""LMs for tests of programs: one replies by a script, the other replays recorded calls.

Their replies pass through DSPy's adapters, cache keys and parsing. A test with a scripted LM shows
how a program handles a reply, not how good the replies of an LM are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
from dspy import lm15

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.lm.adapters import ASKED, ASKED_IN_JSON
from ga_dspy.text import estimate_tokens


@dataclass(frozen=True)
class CutOff:
    """A reply cut off at the token limit."""

    text: str


Reply = str | Mapping[str, Any] | CutOff | Exception
Script = Sequence[Reply] | Callable[[str], Reply]


class ScriptedEngine:
    """A DSPy engine that replies in order, or by a function of the prompt.

    Args:
        script: A sequence of replies, or a function from prompt to reply. A reply is a raw
            completion, a mapping of field names to texts, which is written in the form that the
            prompt asks for, or an error to raise.

    Attributes:
        prompts: Every prompt received, as one text with the system message first.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.prompts: list[str] = []

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer a request."""
        prompt = _prompt_of(request)
        self.prompts.append(prompt)
        reply = self._reply(prompt)
        if isinstance(reply, Exception):
            raise reply
        text = reply.text if isinstance(reply, CutOff) else _completion(reply, prompt)
        sent, received = estimate_tokens(prompt), estimate_tokens(text)
        total = sent + received
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant([lm15.TextPart(text)]),
            finish_reason="length" if isinstance(reply, CutOff) else "stop",
            usage=lm15.Usage(input_tokens=sent, output_tokens=received, total_tokens=total),
        )

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """Answer a request as a stream of events."""
        response = self.complete(request)
        yield lm15.StreamStartEvent(model=response.model)
        for piece in re.findall(r"\s*\S+|\s+", response.text or ""):
            yield lm15.StreamDeltaEvent(delta=lm15.TextDelta(text=piece))
        yield lm15.StreamEndEvent(finish_reason=response.finish_reason, usage=response.usage)

    def close(self) -> None:
        """Do nothing."""

    def _reply(self, prompt: str) -> Reply:
        if callable(self.script):
            return self.script(prompt)
        calls = len(self.prompts)
        if calls > len(self.script):
            raise GaDspyError(
                f"call {calls} of a script with {len(self.script)} replies",
                expected="no further call",
                remedy="add a reply, or pass a function of the prompt",
            )
        return self.script[calls - 1]


class _AsyncEngine:
    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine

    async def complete(self, request: lm15.Request) -> lm15.Response:
        return self._engine.complete(request)

    async def stream(self, request: lm15.Request) -> AsyncIterator[Any]:
        for event in self._engine.stream(request):
            yield event

    async def aclose(self) -> None:
        self._engine.close()


def scripted_lm(script: Script) -> dspy.LM:
    """Return an LM that replies by a script; `lm.engine.prompts` holds the prompts it received.

    >>> lm = scripted_lm([{"answer": "Montana"}])
    >>> with dspy.context(lm=lm):
    ...     dspy.Predict("question -> answer")(question="Where is Red Lodge?").answer
    'Montana'
    """
    engine = ScriptedEngine(script)
    return dspy.LM(
        "ga-dspy/scripted",
        engine=engine,
        async_engine=_AsyncEngine(engine),
        cache=False,
        num_retries=0,
    )


def recorded_lm(path: Path | str) -> dspy.LM:
    """Return an LM that replays recorded calls: same question, same passages, same reply.

    As the teacher of a compilation, it turns runs that were paid for once into demos. A record may
    name its passages by number and title only. If several records have the passages of the prompt,
    the one with the most equal other inputs is replayed. If none has, a record with the passages
    under other numbers is replayed, with the numbers in its reply changed. If there is no record of
    the question, or a reply cites a passage that is not shown, the reply is "(not recorded)", which
    a program cannot parse.

    `lm.engine.script.unused` has the records that were not replayed yet, `…unmatched` the prompts
    whose passages were not recorded.

    Args:
        path: JSON lines with `inputs` and `outputs`, each a mapping of field names to texts.

    Raises:
        InputError: A line is not a record.
    """
    text = Path(path).read_text("utf-8")
    lm = scripted_lm(_Recording(_records(text, path)))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    lm.model = f"ga-dspy/recorded-{Path(path).stem}-{digest}"
    return lm


Record = Mapping[str, Mapping[str, str]]


def _records(text: str, path: Path | str) -> Iterator[Record]:
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not {"inputs", "outputs"} <= row.keys():
            raise InputError(
                f"line {number} of {path} is not a record",
                expected="an object with the inputs and the outputs of a call",
                remedy="write one call per line",
            )
        yield row


class _Recording:
    """A script of recorded replies, by the question and whether it asks for an answer."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.unused, self.unmatched = list(records), list[str]()
        self._records = defaultdict[tuple[str, bool], list[Record]](list)
        for record in self.unused:
            key = record["inputs"].get("question", "").strip(), "answer" in record["outputs"]
            self._records[key].append(record)

    def __call__(self, prompt: str) -> Reply:
        asked, given = asked_fields(prompt), given_fields(prompt)
        records = self._records[given.get("question", "").strip(), "answer" in asked]
        passages = given.get("passages", "")
        matching = [record for record in records if _shows(record, passages)]
        if matching:
            best = max(matching, key=lambda record: len(record["inputs"].items() & given.items()))
            outputs: Mapping[str, str] | None = best["outputs"]
            self.unused = [record for record in self.unused if record is not best]
        else:
            self.unmatched.append(prompt)
            relabelled = (_relabelled(record, passages) for record in records)
            outputs = next(filter(None, relabelled), None)
        return {n: outputs.get(n, "") for n in asked} if outputs else "(not recorded)"


_SHOWN = re.compile(
    r"^\[\[ ## (\w+) ## \]\]\n(.*?)(?=\n\n(?:\[\[ ## |Respond with the |\Z))", re.M | re.S
)
_BLOCK = re.compile(r"^\[(\d+)\] (.*?)(?=\n\n\[\d+\] |\Z)", re.M | re.S)
_CITED = re.compile(r"\d+(?=[\d, ]*\])")


def _shows(record: Record, passages: str) -> bool:
    """Return whether the passages of a prompt are those of a record, under the same numbers."""
    recorded = dict(_BLOCK.findall(record["inputs"].get("passages", "")))
    shown = dict(_BLOCK.findall(passages))
    return recorded.keys() == shown.keys() and all(
        f"{shown[label]}\n".startswith(f"{text}\n") for label, text in recorded.items()
    )


def _relabelled(record: Record, passages: str) -> dict[str, str] | None:
    """Return the outputs of a record with the prompt's passage numbers; None if one is missing."""
    recorded = dict(_BLOCK.findall(record["inputs"].get("passages", "")))
    shown = {text: label for label, text in _BLOCK.findall(passages)}
    new = {label: shown[text] for label, text in recorded.items() if text in shown}
    outputs = record["outputs"]
    if any(label not in new for text in outputs.values() for label in _CITED.findall(text)):
        return None
    return {n: _CITED.sub(lambda cited: new[cited[0]], text) for n, text in outputs.items()}


def given_fields(prompt: str) -> dict[str, str]:
    """Return the input fields of the last question in a prompt of this library or of DSPy."""
    shown = dict(_SHOWN.findall(f"{prompt}\n\n"))
    return {name: text for name, text in shown.items() if name not in asked_fields(prompt)}


def asked_fields(prompt: str) -> list[str]:
    """Return the names of the output fields that a prompt of this library or of DSPy asks for."""
    _, plain, form = prompt.partition(ASKED_IN_JSON if ASKED_IN_JSON in prompt else ASKED)
    if plain:
        return re.findall(r"^- (\w+)", form.partition("\n\n")[0], re.MULTILINE)
    fields = prompt.partition("output fields are")[2]
    return re.findall(r"^\d+\. `(\w+)`", fields, re.MULTILINE)


def _prompt_of(request: lm15.Request) -> str:
    system = request.system
    parts = [system if isinstance(system, str) else "".join(p.text for p in system or ())]
    return "\n\n".join([*parts, *(message.text or "" for message in request.messages)])


def _completion(reply: str | Mapping[str, Any], prompt: str) -> str:
    if isinstance(reply, str):
        return reply
    if "[[ ## " in prompt and "JSON object" not in prompt:
        sections = [f"[[ ## {name} ## ]]\n{value}" for name, value in reply.items()]
        return "\n\n".join([*sections, "[[ ## completed ## ]]"])
    if "wrapped in XML tags" in prompt:
        return "\n".join(f"<{name}>{value}</{name}>" for name, value in reply.items())
    return json.dumps(reply, ensure_ascii=False)
