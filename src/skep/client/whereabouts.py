"""Where the server is and which token opens it.

On one machine nobody should have to copy a token: `skep up` notes under its port, in its user's own state folder, which
data folder it serves, and the client of the same user reads `admin.token` there. A token found that way is only ever
sent to a loopback address.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from skep.config import is_loopback
from skep.errors import BadInput

DEFAULT_URL = "http://127.0.0.1:7337"
TOKEN_FILE = "admin.token"  # noqa: S105 - a name, no secret


def find_url(url: str | None, environ: Mapping[str, str]) -> SplitResult:
    text = url or environ.get("SKEP_URL") or DEFAULT_URL
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise BadInput(f"'{text}' is not the URL of a Skep server", hint=f"SKEP_URL is written like {DEFAULT_URL}")
    return parts


def find_token(token: str | None, url: SplitResult, environ: Mapping[str, str]) -> str:
    """Empty when there is none: reading may be open all the same."""
    given = (token or environ.get("SKEP_TOKEN") or "").strip()
    if given or not is_loopback(url.hostname or ""):
        return _sendable(given)
    for folder in _data_folders(port_of(url), environ):
        try:
            return _sendable((folder / TOKEN_FILE).read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError):
            continue
    return ""


def _sendable(token: str) -> str:
    if not (token.isascii() and (token.isprintable() or not token)) or " " in token:
        raise BadInput("the token holds characters no token has", hint="check SKEP_TOKEN")
    return token


def port_of(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _data_folders(port: int, environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("SKEP_DATA"):
        yield Path(environ["SKEP_DATA"])
    with contextlib.suppress(OSError, UnicodeDecodeError):
        yield Path(_note(port, environ).read_text(encoding="utf-8"))
    yield Path("skep-data")


def _note(port: int, environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".local" / "state"
    return Path(state) / "skep" / "servers" / str(port)


def advertise(port: int, data: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Called by a server that listens. Without a writable home its users give SKEP_TOKEN or SKEP_DATA."""
    note = _note(port, environ)
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = note.with_name(f"{port}.{os.getpid()}")
        fresh.write_text(str(data.absolute()), encoding="utf-8")
        fresh.replace(note)
    except OSError:
        return


def withdraw(port: int, data: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Takes back only its own note: another server may listen on the port by now."""
    note = _note(port, environ)
    try:
        if note.read_text(encoding="utf-8") == str(data.absolute()):
            note.unlink()
    except OSError:
        return
