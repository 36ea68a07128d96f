"""Commands that answer others: over HTTP, and as tools of agents."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import dspy
import typer

from ga_dspy.cli.choices import Asking
from ga_dspy.errors import InputError, need_package

Host = Annotated[str, typer.Option(help="Address to listen on; another machine's needs a key.")]
KeyEnv = Annotated[str | None, typer.Option(help="Variable that holds the API keys.")]
Open = Annotated[bool, typer.Option("--open", help="Listen anywhere without a key.")]
AtOnce = Annotated[int, typer.Option(min=1, help="Questions at once; further ones are refused.")]
PerMinute = Annotated[int, typer.Option(min=0, help="Requests of a key or address; 0: any.")]
Proxies = Annotated[
    str,
    typer.Option(
        "--forwarded-allow-ips",
        help="Addresses of proxies whose X-Forwarded-For names the client; none by default.",
    ),
]
Deadline = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        help="Seconds until a question is given up. Default: 300, or 2.5 times the longest timeout "
        "of an LM call (1,500 for a local LM), so that one slow call does not fail the question.",
    ),
]


def choose_deadline(given: float | None, lms: Sequence[dspy.BaseLM]) -> float:
    """Return the deadline given, else 2.5 times the longest call timeout of the LMs, at least 300.

    >>> choose_deadline(None, [dspy.LM("openai/m", timeout=600.0)])
    1500.0
    """
    timeouts = [lm.kwargs.get("timeout") for lm in lms]
    longest = max((t for t in timeouts if isinstance(t, int | float)), default=0.0)
    return given or max(300.0, 2.5 * longest)


def read_keys(variable: str | None, host: str, is_open: bool) -> list[bytes]:
    """The API keys in an environment variable, with commas between them.

    Args:
        variable: Its name; `GA_DSPY_API_KEY`, which may be unset, where left out.
        host: The address to listen on.
        is_open: Whether others may reach it without a key.

    Raises:
        InputError: The variable is unset, a key is short, or others could ask without one.
    """
    name = variable or "GA_DSPY_API_KEY"
    keys = [key.strip() for key in os.environ.get(name, "").split(",") if key.strip()]
    found = "holds a short key" if any(len(key) < 16 for key in keys) else ""
    if not keys and (variable or not (is_open or host in ("127.0.0.1", "::1", "localhost"))):
        found = f"is not set, and whoever reaches {host} could ask"
    if found:
        raise InputError(
            f"{name} {found}",
            expected="keys of at least 16 characters, with commas between them",
            remedy="set it: python -c 'import secrets; print(secrets.token_urlsafe(32))' makes a "
            "key (or --host 127.0.0.1; or --open, where something else keeps strangers out)",
        )
    return [key.encode() for key in keys]


def serve(
    asking: Asking,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    api_key_env: KeyEnv = None,
    is_open: Open = False,
    at_once: AtOnce = 256,
    per_minute: PerMinute = 600,
    deadline: Deadline = None,
    proxies: Proxies = "",
) -> None:
    """Answer over HTTP: a page, JSON, event streams, OpenAI's chat API, metrics.

    Examples:
        ga-dspy serve --index my-index --lm openai/gpt-4.1-mini
    """
    need_package("mcp", "serve")
    from ga_dspy.serve import Limits, Service, make_app

    keys = read_keys(api_key_env, host, is_open)
    limits = Limits(at_once, per_minute, choose_deadline(deadline, asking.lms))
    service = Service(asking.program, limits)
    app = make_app(service, keys=keys, is_open=is_open)
    _listen(app, limits, host=host, port=port, trusted_proxies=proxies)


def mcp(
    asking: Asking,
    http: Annotated[int | None, typer.Option(help="Listen on this port, at /mcp.")] = None,
    host: Host = "127.0.0.1",
    api_key_env: KeyEnv = None,
    is_open: Open = False,
    at_once: AtOnce = 256,
    per_minute: PerMinute = 600,
    deadline: Deadline = None,
    proxies: Proxies = "",
) -> None:
    """Be an MCP server with the tools ask and search: over stdin and stdout, or HTTP.

    Examples:
        ga-dspy mcp --index my-index --lm openai/gpt-4.1-mini
    """
    need_package("mcp", "serve")
    from ga_dspy.serve import Limits, Service
    from ga_dspy.serve.agents import make_http_app, make_mcp

    keys = read_keys(api_key_env, host, is_open)
    limits = Limits(at_once, per_minute, choose_deadline(deadline, asking.lms))
    server = make_mcp(Service(asking.program, limits))
    if http is None:
        server.run()
    else:
        app = make_http_app(server, limits, keys=keys, is_open=is_open)
        _listen(app, limits, host=host, port=http, trusted_proxies=proxies)


def _listen(app: Any, limits: Any, **options: Any) -> None:
    """Serve until SIGTERM or Ctrl-C, and then what is under way, for as long as a question may."""
    from ga_dspy.serve import make_server

    server = make_server(app, limits, **options)
    if sys.platform != "win32":  # each connection takes a file descriptor, of the LM's endpoint too
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Uvicorn raises the signal again when all is done.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # The garbage collector need not go through what was loaded, while all who ask wait for it.
    gc.freeze()
    try:
        server.run()
    except KeyboardInterrupt:
        return
    if not server.started:
        sys.exit(3)
