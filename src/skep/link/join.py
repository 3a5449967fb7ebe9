"""How a member on a machine of its own finds its coordinators: by settings, or by the line that it joined with.

The line says where the coordinators are, which token to use, and the CA that they are known by.
"""

import base64
import binascii
from pathlib import Path

import msgspec

from skep.config import Settings, split_address
from skep.disk import write_private
from skep.errors import BadInput
from skep.link.dial import Dial

#: files of DATA/tls
CA_CERT, CA_KEY, CERT, KEY = "ca.crt", "ca.key", "link.crt", "link.key"
_MARK = "skep-join-"
_FILE = "join"
_HINT = "`skep worker join LINE`, or the settings coordinators and token_file"


class Join(msgspec.Struct, frozen=True, array_like=True):
    coordinators: tuple[str, ...]
    token: str
    #: PEM
    ca: str = ""

    def line(self) -> str:
        der = base64.b64decode("".join(self.ca.splitlines()[1:-1]))
        packed = msgspec.msgpack.encode((self.coordinators, self.token, der))
        return _MARK + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def read_line(line: str) -> Join:
    """BadInput when somebody lost a part of it."""
    text = line.strip()
    try:
        if not text.startswith(_MARK):
            raise ValueError("it begins otherwise")
        body = text.removeprefix(_MARK)
        packed = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        coordinators, token, der = msgspec.msgpack.decode(packed, type=tuple[tuple[str, ...], str, bytes])
        for target in coordinators:
            split_address(target)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise BadInput(
            f"this is no line to join with: {error}", hint="`skep worker token --join` prints one; take all of it"
        ) from error
    return Join(coordinators, token, _pem(der) if der else "")


def joined(settings: Settings) -> tuple[Dial, str]:
    """How to dial, and the token; a setting goes before what the line says."""
    file = Path(settings.data) / _FILE
    line = read_line(_read(str(file), "the line it joined with")) if file.exists() else Join((), "")
    coordinators = settings.coordinators or line.coordinators
    token = token_of(settings) or line.token
    if not coordinators:
        raise BadInput(f"a {settings.roles[0]} has to be told where the coordinators are", hint=_HINT)
    if not token:
        raise BadInput(f"a {settings.roles[0]} needs a token", hint=_HINT)
    ca = _read(settings.tls_ca, "tls_ca") if settings.tls_ca else line.ca
    return Dial(coordinators, ca), token


def token_of(settings: Settings) -> str:
    return _read(settings.token_file, "token_file").strip() if settings.token_file else ""


def keep_line(data: Path, line: str) -> Join:
    """For the next start in this folder; only its user may read it."""
    join = read_line(line)
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(data / _FILE, f"{line.strip()}\n".encode())
    except OSError as error:
        raise BadInput(f"{data} cannot be written to: {error.strerror}", hint="name another with --data") from error
    return join


def join_line(settings: Settings, token: str) -> str:
    """What somebody else joins here with; empty where nobody can."""
    if not settings.link_listen:
        return ""
    return Join(settings.coordinators or (settings.link_listen,), token, ca_of(settings)).line()


def ca_of(settings: Settings) -> str:
    """PEM of the CA that the links of this fleet are known by; empty: a well-known one, or none."""
    own = Path(settings.data) / "tls" / CA_CERT
    ca = settings.tls_ca or ("" if settings.tls_cert or not own.exists() else str(own))
    return _read(ca, "tls_ca") if ca else ""


def _read(path: str, what: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{what}: {path} cannot be read: {error.strerror}", hint=f"check the setting {what}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{what}: {path} is no text", hint=f"check the setting {what}") from error


def _pem(der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----"]) + "\n"
