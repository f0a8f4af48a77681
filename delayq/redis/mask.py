"""The one place that takes passwords out of URLs before anybody sees them."""

from __future__ import annotations

import re

_HIDDEN = "***"
# Any option with 'password' in its name: password, sentinel_password, ssl_password.
_SECRET_OPTION = re.compile(r"([?&;][^=&;#]*password[^=&;#]*=)[^&;#]*", re.IGNORECASE)
# What stands where a port should, and is none: a password whose '@host' was forgotten.
_NO_PORT = re.compile(r":(?!\d*(?:[,/?#]|$))[^,/?#]*")


def mask_url(text: str) -> str:
    """`text` with every password replaced by ***; works on broken URLs, and hides too much rather than too little.

    'redis://ann:secret@db:6379/0' gives 'redis://ann:***@db:6379/0'. A password may hold an unescaped
    '/' or '@', which ends the URL's own idea of it, so all from the first ':' to the last '@' is hidden.
    A lone name before '@' is hidden too: it is most often a password whose ':' was forgotten.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "", text
    rest = _SECRET_OPTION.sub(rf"\g<1>{_HIDDEN}", rest)
    login, at, host = rest.rpartition("@")
    if scheme == "unix" and login.startswith("/"):
        pass  # an '@' in the path of a socket
    elif at:
        user, colon, _ = login.partition(":")
        rest = f"{user}:{_HIDDEN}@{host}" if colon else f"{_HIDDEN}@{host}"
    elif not rest.startswith(("[", "/")):
        hosts = re.match(r"[^/?#]*", rest)
        end = hosts.end() if hosts else 0
        if "[" not in rest[:end]:
            rest = _NO_PORT.sub(f":{_HIDDEN}", rest[:end]) + rest[end:]
    return f"{scheme}{separator}{rest}"
