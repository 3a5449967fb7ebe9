"""The URL of an index on a server, taken apart. Its password is in no message."""

import re
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from skep.errors import BadInput

_PREFIX = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_HINT = "write opensearch://[USER:PASSWORD@]HOST[:PORT][/PREFIX][?tls=yes&shards=3&replicas=1]"


class Address(msgspec.Struct, frozen=True):
    #: without user and password
    url: str
    user: str
    password: str
    #: every name of ours on the server begins with it
    prefix: str
    shards: int
    #: None: one when there is a second node
    replicas: int | None

    def settings(self) -> dict[str, Any]:
        """Of an index there. It is refreshed when something is complete, and not by the clock."""
        many = {"auto_expand_replicas": "0-1"} if self.replicas is None else {"number_of_replicas": self.replicas}
        return {"index": {"number_of_shards": self.shards, "refresh_interval": "-1", **many}}


def parse(url: str) -> Address:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 9200
    except ValueError:
        host, port = None, 0
    prefix = parts.path.strip("/") or "skep" if host else ""
    if not host or not _PREFIX.fullmatch(prefix):
        raise BadInput("the URL of the index names no server, or a prefix that no index can have", hint=_HINT)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    scheme = "https" if _take(options, "tls", r"yes|no", "no") == "yes" else "http"
    shards, replicas = _take(options, "shards", r"[1-9]\d{0,2}", "1"), _take(options, "replicas", r"\d", "")
    if options:
        raise BadInput(f"the URL of the index has an unknown option {min(options)[:50]!r}", hint=_HINT)
    return Address(
        f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}",
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        prefix,
        int(shards),
        int(replicas) if replicas else None,
    )


def _take(options: dict[str, str], name: str, form: str, default: str) -> str:
    value = options.pop(name, default)
    if value != default and not re.fullmatch(form, value):
        raise BadInput(f"the option {name} in the URL of the index cannot be {value[:50]!r}", hint=_HINT)
    return value
