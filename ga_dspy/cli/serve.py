"""`ga-dspy serve` and `mcp`: answer questions over HTTP, and as MCP tools."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import dspy
from typer import Exit, Option

from ga_dspy.cli.choices import Asking, AskingOptions
from ga_dspy.cli.index import Redaction, importable
from ga_dspy.errors import InputError, check_installed
from ga_dspy.programs import GapLog
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.redact import check_redactor

if TYPE_CHECKING:
    from ga_dspy.serve import Key, Service
    from ga_dspy.tracing import Tracer

WRITE_KEY = "GA_DSPY_WRITE_KEY"
"""The environment variable with the keys that may add and delete documents."""
REPLIES_IN_MEMORY = 1_000
"""Maximum number of replies, of 5 to 20 kB each, that DSPy's cache keeps in memory."""
_HOST = "Address to listen on; one that other machines can reach needs an API key, or --open."
_KEY_ENV = "Environment variable with the API keys; by default GA_DSPY_API_KEY."
_KEYS = "TOML file of API keys with their rights and conditions; --new-key makes an entry."
_OPEN = "Allow access from other machines without a key."
_CONCURRENT = "Maximum number of concurrent questions; further ones are refused."
_PER_MINUTE = "Maximum number of requests per minute and key or address; 0 for no limit."
_DEADLINE = (
    "Timeout of a question in seconds; by default 2.5 times the longest LM timeout, and at least "
    "300."
)
_GAPS = "Append questions whose evidence is missing to this .jsonl file, for `ga-dspy gaps`."
_PROXIES = "Addresses of trusted proxies, whose X-Forwarded-For header names the client."
_TRACK = "MLflow tracking URI to trace questions in."
_EXAMPLE = "Example question on the web page; by default made from document titles. Repeatable."
_NEW_KEY = "Print a new API key and its entry for --keys, and exit."


@dataclass(frozen=True)
class ServerOptions:
    """The options that `serve` and `mcp` share."""

    host: Annotated[str, Option(help=_HOST)] = "127.0.0.1"
    api_key_env: Annotated[str | None, Option(help=_KEY_ENV)] = None
    keys: Annotated[Path | None, Option(help=_KEYS)] = None
    is_open: Annotated[bool, Option("--open", help=_OPEN)] = False
    max_concurrent: Annotated[int, Option(min=1, help=_CONCURRENT)] = 256
    per_minute: Annotated[int, Option(min=0, help=_PER_MINUTE)] = 600
    deadline: Annotated[float | None, Option(min=0.1, help=_DEADLINE)] = None
    gaps: Annotated[Path | None, Option(help=_GAPS)] = None
    proxies: Annotated[str, Option("--forwarded-allow-ips", help=_PROXIES)] = ""
    track: Annotated[str | None, Option(help=_TRACK)] = None
    track_rate: Annotated[float, Option(min=0, max=1, help="Share of questions to trace.")] = 1.0


def choose_deadline(given: float | None, lms: Sequence[dspy.BaseLM]) -> float:
    """Return the given deadline, else 2.5 times the longest LM timeout, and at least 300 seconds.

    With this default, one slow call does not fail the question.

    >>> choose_deadline(None, [dspy.LM("openai/m", timeout=600.0)])
    1500.0
    """
    timeouts = [lm.kwargs.get("timeout") for lm in lms]
    longest = max((t for t in timeouts if isinstance(t, int | float)), default=0.0)
    return given or max(300.0, 2.5 * longest)


def read_keys(options: ServerOptions) -> list[Key]:
    """Return the API keys from the key file and the environment variables.

    The comma-separated keys in `GA_DSPY_API_KEY`, or in the variable that the options name, may ask
    and read the metrics; those in `GA_DSPY_WRITE_KEY` may also write.

    Raises:
        InputError: The variable is unset, a key is short, two places have the same key, the key
            file is invalid, or other machines could ask without a key.
    """
    from ga_dspy.serve import Key, read_key_file

    keys = read_key_file(options.keys) if options.keys else []
    variable, problem = options.api_key_env or "GA_DSPY_API_KEY", ""
    rights_of = {variable: {"ask", "metrics"}, WRITE_KEY: {"ask", "metrics", "write"}}
    for name, rights in rights_of.items():
        texts = [text.strip() for text in os.environ.get(name, "").split(",") if text.strip()]
        if any(len(text) < 16 for text in texts):
            problem = f"{name} holds a short key"
        keys += [Key.of(text.encode(), name=name, rights=rights) for text in texts]
    is_local = options.host in ("127.0.0.1", "::1", "localhost")
    if options.api_key_env and not os.environ.get(variable, "").strip(" ,"):
        problem = f"{variable} is not set"
    elif not (keys or options.is_open or is_local):
        problem = f"{variable} is not set, and everyone who reaches {options.host} could ask"
    if problem:
        raise InputError(
            problem,
            expected="comma-separated keys of at least 16 characters",
            remedy="set it: python -c 'import secrets; print(secrets.token_urlsafe(32))' makes a "
            "key (or --host 127.0.0.1; or --open, if something else restricts access)",
        )
    places = dict[str, str]()
    for key in keys:
        if (first := places.setdefault(key.sha256, key.name)) != key.name:
            remedy = f"remove it from one of them; a key in {WRITE_KEY} may also ask"
            raise InputError(f"{first} and {key.name} hold the same key", remedy=remedy)
    return keys


def _print_new_key(name: str | None) -> None:
    """Print a new key and its entry, and exit."""
    if name is None:
        return
    check_installed("fastapi", "serve")
    from ga_dspy.serve.keys import new_key

    key, entry = new_key(name)
    print(f"# the key, which is shown only now:\n{key}\n\n# its entry in keys.toml:\n{entry}")  # noqa: T201
    raise Exit


NewKey = Annotated[
    str | None, Option(metavar="NAME", callback=_print_new_key, is_eager=True, help=_NEW_KEY)
]


def serve(
    asking: Annotated[Asking, AskingOptions],
    options: ServerOptions,
    port: Annotated[int, Option(help="Port to listen on.")] = 8000,
    example: Annotated[list[str] | None, Option(help=_EXAMPLE)] = None,
    new_key: NewKey = None,
    redact: Redaction = None,
) -> None:
    """Serve a web page, a JSON API with event streams, OpenAI's chat API and metrics over HTTP.

    Keys with the right "write" may also add and delete documents.

    Examples:
        ga-dspy serve --index my-index --lm openai/gpt-4.1-mini
        ga-dspy serve --index my-index --example "Who designed the bridge?"
        ga-dspy serve --new-key acme
        ga-dspy serve --index my-index --keys keys.toml --host 0.0.0.0
        ga-dspy serve --index my-index --gaps gaps.jsonl
        ga-dspy serve --index my-index --track sqlite:///mlflow.db --track-rate 0.1
    """
    if redact and isinstance(asking.corpus, Index):
        index = asking.corpus.whole
        index.redactor = check_redactor(index.manifest.redact, importable(redact))
    with _service(asking, options, example or ()) as (keys, service):
        from ga_dspy.serve import make_app

        _listen(make_app(service, keys=keys, is_open=options.is_open), service, options, port)


def mcp(
    asking: Annotated[Asking, AskingOptions],
    options: ServerOptions,
    http: Annotated[int | None, Option(help="Serve at /mcp on this port instead of stdio.")] = None,
) -> None:
    """Serve the MCP tools `ask` and `search` to agents, over stdin and stdout or HTTP.

    Examples:
        ga-dspy mcp --index my-index --lm openai/gpt-4.1-mini
    """
    if options.keys and http is None:
        raise InputError("--keys without --http", remedy="add --http PORT: stdin takes no key")
    with _service(asking, options) as (keys, service):
        from ga_dspy.serve.agents import make_http_app, make_mcp

        server = make_mcp(service)
        if http is None:
            server.run()
        else:
            app = make_http_app(server, service.limits, keys=keys, is_open=options.is_open)
            _listen(app, service, options, http)


@contextmanager
def _service(
    asking: Asking, options: ServerOptions, examples: Sequence[str] = ()
) -> Iterator[tuple[list[Key], Service]]:
    """Yield the API keys and the service, which traces questions if the options say so.

    Raises:
        MissingExtra: The extra `serve` is not installed.
        InputError: The program does not support the conditions or labels of a key.
    """
    check_installed("fastapi", "serve")
    from ga_dspy.serve import Limits, Service
    from ga_dspy.serve.keys import ANYONE

    keys = read_keys(options)
    # By default DSPy keeps a million replies in memory, which are gigabytes.
    caches = dspy.cache.enable_disk_cache, dspy.cache.enable_memory_cache
    dspy.configure_cache(*caches, memory_max_entries=REPLIES_IN_MEMORY)
    deadline = choose_deadline(options.deadline, asking.models.all)
    limits = Limits(options.max_concurrent, options.per_minute, deadline)
    gaps = GapLog(options.gaps) if options.gaps else None
    tracing: AbstractContextManager[Tracer | None] = nullcontext()
    if options.track is not None:
        from ga_dspy.tracing import track

        tracing = track(options.track, rate=options.track_rate, tags={"program": asking.name})
    with tracing as tracer:
        service = Service(asking.program, limits, tracer, gaps=gaps, examples=examples)
        for caller in keys or [ANYONE]:
            service.program_for(caller)
        yield keys, service


def _listen(app: Any, service: Service, options: ServerOptions, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish the requests in progress."""
    from ga_dspy.serve import make_server

    server = make_server(
        app, service.limits, host=options.host, port=port, trusted_proxies=options.proxies
    )
    if sys.platform != "win32":  # each connection takes a file descriptor, also to the LM
        import resource

        _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))
    # Uvicorn raises the signal again after its shutdown.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    gc.freeze()  # else garbage collection scans the loaded index while clients wait
    try:
        server.run()
    except KeyboardInterrupt:
        return
    if not server.started:
        sys.exit(3)
