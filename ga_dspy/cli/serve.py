"""`ga-dspy serve` and `mcp`: answer over HTTP, and as tools of agents."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import dspy
import typer

from ga_dspy.cli.choices import Asking
from ga_dspy.errors import InputError, need_package

if TYPE_CHECKING:
    from ga_dspy.serve import Service


@dataclass(frozen=True)
class ServerOptions:
    """The options that `serve` and `mcp` share."""

    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's needs an API key.")
    ] = "127.0.0.1"
    api_key_env: Annotated[
        str | None,
        typer.Option(
            help="Environment variable with the API keys.", show_default="GA_DSPY_API_KEY"
        ),
    ] = None
    is_open: Annotated[
        bool, typer.Option("--open", help="Allow access from anywhere without a key.")
    ] = False
    at_once: Annotated[
        int, typer.Option(min=1, help="Maximum concurrent questions; further ones are refused.")
    ] = 256
    per_minute: Annotated[
        int,
        typer.Option(min=0, help="Maximum requests per minute and key or address; 0: no limit."),
    ] = 600
    deadline: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Timeout of a question in seconds.",
            show_default="300, or 2.5 times the longest LM timeout: 1,500 for a local LM",
        ),
    ] = None
    proxies: Annotated[
        str,
        typer.Option(
            "--forwarded-allow-ips",
            help="Addresses of trusted proxies, whose X-Forwarded-For names the client.",
            show_default="none",
        ),
    ] = ""


def choose_deadline(given: float | None, lms: Sequence[dspy.BaseLM]) -> float:
    """Return the given deadline, else 2.5 times the longest LM timeout, and at least 300 seconds.

    So one slow call does not fail the question.

    >>> choose_deadline(None, [dspy.LM("openai/m", timeout=600.0)])
    1500.0
    """
    timeouts = [lm.kwargs.get("timeout") for lm in lms]
    longest = max((t for t in timeouts if isinstance(t, int | float)), default=0.0)
    return given or max(300.0, 2.5 * longest)


def read_keys(variable: str | None, host: str, is_open: bool) -> list[bytes]:
    """Return the comma-separated API keys in an environment variable.

    Args:
        variable: Its name; by default `GA_DSPY_API_KEY`, which may be unset.
        host: The address to listen on.
        is_open: Whether access without a key is allowed from anywhere.

    Raises:
        InputError: The variable is unset, a key is short, or other machines could ask without one.
    """
    name = variable or "GA_DSPY_API_KEY"
    keys = [key.strip() for key in os.environ.get(name, "").split(",") if key.strip()]
    found = "holds a short key" if any(len(key) < 16 for key in keys) else ""
    if not keys and (variable or not (is_open or host in ("127.0.0.1", "::1", "localhost"))):
        found = f"is not set, and everyone who reaches {host} could ask"
    if found:
        raise InputError(
            f"{name} {found}",
            expected="comma-separated keys of at least 16 characters",
            remedy="set it: python -c 'import secrets; print(secrets.token_urlsafe(32))' makes a "
            "key (or --host 127.0.0.1; or --open, if something else restricts access)",
        )
    return [key.encode() for key in keys]


def serve(
    asking: Asking,
    options: ServerOptions,
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
) -> None:
    """Serve a web page, JSON, event streams, OpenAI's chat API and metrics over HTTP.

    Examples:
        ga-dspy serve --index my-index --lm openai/gpt-4.1-mini
    """
    keys, service = _start(asking, options)
    from ga_dspy.serve import make_app

    _listen(make_app(service, keys=keys, is_open=options.is_open), service, options, port)


def mcp(
    asking: Asking,
    options: ServerOptions,
    http: Annotated[
        int | None, typer.Option(help="Serve over HTTP on this port, at /mcp, instead of stdio.")
    ] = None,
) -> None:
    """Serve the MCP tools `ask` and `search` to agents, over stdin and stdout or HTTP.

    Examples:
        ga-dspy mcp --index my-index --lm openai/gpt-4.1-mini
    """
    keys, service = _start(asking, options)
    from ga_dspy.serve.agents import make_http_app, make_mcp

    server = make_mcp(service)
    if http is None:
        server.run()
    else:
        app = make_http_app(server, service.limits, keys=keys, is_open=options.is_open)
        _listen(app, service, options, http)


def _start(asking: Asking, options: ServerOptions) -> tuple[list[bytes], Service]:
    """Return the API keys, and the service with its limits.

    Raises:
        MissingExtra: The extra `serve` is not installed.
    """
    need_package("mcp", "serve")
    from ga_dspy.serve import Limits, Service

    keys = read_keys(options.api_key_env, options.host, options.is_open)
    deadline = choose_deadline(options.deadline, asking.models.all)
    limits = Limits(options.at_once, options.per_minute, deadline)
    return keys, Service(asking.program, limits)


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
    # A garbage collection that scans the loaded index would make every client wait.
    gc.freeze()
    try:
        server.run()
    except KeyboardInterrupt:
        return
    if not server.started:
        sys.exit(3)
