"""serve."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from delayq.app import address_of
from delayq.cli import logs
from delayq.cli.needs import extra_for
from delayq.cli.session import Session
from delayq.core.errors import InvalidInput


def serve(
    session: Session, host: str, port: int, names: Sequence[str], proxies: Sequence[str], *, as_json: bool
) -> None:
    """Serve until a signal."""
    with extra_for("delayq serve", "http", ("fastapi", "uvicorn")):
        from delayq.http.app import make_app
        from delayq.http.binding import Binding
        from delayq.http.server import run
    settings = session.settings()
    binding = Binding(host, port, tuple(names))
    trusted = [_network(one) for one in proxies]
    app = make_app(settings, binding)
    with binding.open() as listening:
        url = binding.url(listening)
        logs.start(settings, quiet=session.out.quiet)

        def greet() -> None:
            if as_json:
                session.out.json({"url": url, "keys": settings.api_keys_file is not None})
            else:
                session.out.line(url)
            logs.greet(session.out, settings, f"Serving the HTTP API of {address_of(settings)}. Stop with Ctrl-C.")

        run(app, listening, greet, trusted_proxies=trusted)


def _network(text: str) -> str:
    """The address or network of a trusted proxy. Raises `InvalidInput` for anything else."""
    try:
        return str(ipaddress.ip_network(text)) if "/" in text else str(ipaddress.ip_address(text))
    except ValueError as error:
        raise InvalidInput(
            f"--trusted-proxy {text!r} is not an IP address or network.", hint="An example: --trusted-proxy 10.0.0.0/8."
        ) from error
