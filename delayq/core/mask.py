"""The one place that takes passwords out of URLs before anybody sees them."""

from __future__ import annotations

import re
from typing import Final

_HIDDEN: Final = "***"
# password, sentinel_password, ssl_password: to the end, as a bare '&' or '#' may be part of one.
_SECRET_OPTION: Final = re.compile(r"([?&;][^=&;#]*password[^=&;#]*=).*", re.IGNORECASE | re.DOTALL)
# An option that no URL of ours has may be one, too, under whatever name.
_OPTION: Final = re.compile(r"([?&;])([^=&;#]*)=([^&;#]*)")
_HARMLESS: Final = re.compile(r"protocol|db|username|sentinel_username|ssl_(?!password)\w+", re.IGNORECASE)
# Something other than a port behind a host: a password whose '@host' was forgotten, '/' and all.
_NO_PORT: Final = re.compile(r"(?<!:):(?!:)(?![0-9]*(?:[,/?#]|$)).*", re.DOTALL)


def mask_url(text: str) -> str:
    """`text` with every password replaced by ***; works on broken URLs, and hides too much rather than too little.

    'redis://ann:secret@db:6379/0' gives 'redis://ann:***@db:6379/0'. A password may hold an unescaped
    '/' or '@', which ends the URL's own idea of it, so all from the first ':' to the last '@' is hidden.
    A lone name before '@' is hidden too: it is most often a password whose ':' was forgotten.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "", text
    # First, as an '@' in there is no end of a login.
    rest = _SECRET_OPTION.sub(lambda found: found[1] + _HIDDEN, rest)
    before, mark, options = rest.partition("?")
    rest = before + _OPTION.sub(_harmless, mark + options)
    if not (scheme == "unix" and rest.startswith("/")):
        rest = _without_login(rest)
    return scheme + separator + rest


def _harmless(option: re.Match[str]) -> str:
    return option[0] if _HARMLESS.fullmatch(option[2]) else f"{option[1]}{option[2]}={_HIDDEN}"


def _without_login(rest: str) -> str:
    login, at, host = rest.rpartition("@")
    shown = host if host.startswith("[") else _NO_PORT.sub(f":{_HIDDEN}", host)
    if at:
        user, colon, _ = login.partition(":")
        named = colon and not set(user) & set("/@?#")  # else that is a piece of a password, too
        return f"{user}:{_HIDDEN}@{shown}" if named else f"{_HIDDEN}@{shown}"
    return shown
