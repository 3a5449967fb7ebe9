"""How a member on a machine of its own finds its coordinators: by settings, or by the line that it joined with.

The line says where the coordinators are, which token to use, and the CA that they are known by.
"""

import asyncio
import base64
import binascii
import os
import socket
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from skep.base.errors import BadInput
from skep.base.io import write_private
from skep.config.settings import Settings, is_loopback, split_address

# Where the coordinators are, and how a member knows that it is them.

_OPTIONS = [
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]
_PROBE_SECONDS = 5.0
_PLAIN = "it speaks plain text where TLS is wanted; is that its link_listen, and has it a certificate?"
#: OpenSSL's numbers for what is wrong with a certificate
_EXPIRED, _NOT_YET, _OTHER_NAME = {10}, {9}, {62, 64}


def uri(target: str) -> str:
    """As gRPC reads it: in a path, `#` and `%` would mean something."""
    scheme, _, path = target.partition(":")
    return f"unix:{quote(path)}" if scheme == "unix" else target


class Dial(msgspec.Struct, frozen=True):
    #: `HOST:PORT` or `unix:PATH`
    targets: tuple[str, ...]
    #: PEM of the CA that signed their certificates; empty: one of the well-known
    ca: str = ""

    def is_secure(self, target: str) -> bool:
        """On this machine plain text will do, unless a CA is named."""
        return not target.startswith("unix:") and (bool(self.ca) or not is_loopback(split_address(target)[0]))

    def channel(self, target: str) -> Any:
        """A connection of its own, never shared with other channels of this process."""
        if not self.is_secure(target):
            return grpc.aio.insecure_channel(uri(target), options=_OPTIONS)
        credentials = grpc.ssl_channel_credentials(self.ca.encode() or None)
        return grpc.aio.secure_channel(target, credentials, options=_OPTIONS)

    async def explain(self, target: str) -> str:
        """What is wrong with the way there, found by a handshake of our own; empty when nothing is.

        gRPC says it in the words of its innermost library, or not at all.
        """
        if target.startswith("unix:"):
            return ""
        secure = self.is_secure(target)
        context = ssl.create_default_context(cadata=self.ca or None)
        context.set_alpn_protocols(["h2"])
        if not secure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        host, port = split_address(target)
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                _, writer = await asyncio.open_connection(host, port, ssl=context)
        except ssl.SSLCertVerificationError as error:
            return f"{_certificate(error)} ({error.verify_message})"
        except ssl.SSLError:
            return _PLAIN if secure else ""
        except TimeoutError:
            return "no answer"
        except socket.gaierror as error:
            return f"its name cannot be looked up: {error.strerror}"
        except OSError as error:
            return os.strerror(error.errno) if error.errno else str(error)
        writer.transport.abort()
        return (
            "" if secure else "it speaks TLS; join with a line of `skep worker token --join`, or name its CA in tls_ca"
        )


def _certificate(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _EXPIRED:
        return "its certificate has expired; `skep ca init` there makes a new one"
    if error.verify_code in _NOT_YET:
        return "its certificate is not valid yet; compare the clocks"
    if error.verify_code in _OTHER_NAME:
        return "its certificate is for other names; `skep ca init HOST` there makes one for this"
    return "its certificate is not of the CA that this member trusts; join again with a new line"


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


# The fleet's own certificates: a CA in a folder, and what it signs for coordinators.

_CA_DAYS, _DAYS = 3650, 730
#: clocks of two machines may differ by so much
_SKEW = timedelta(hours=1)


class Authority:
    def __init__(self, folder: Path, now: float) -> None:
        """Made when it is not there yet."""
        self._folder = folder
        self._now = datetime.fromtimestamp(now, UTC)
        self.is_new = not (folder / CA_CERT).exists()
        if self.is_new:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make()
        try:
            self._cert = x509.load_pem_x509_certificate((folder / CA_CERT).read_bytes())
            self._key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
        except (OSError, ValueError) as error:
            raise BadInput(f"{folder} holds no CA that can be used: {error}", hint="`skep ca init` made it") from error

    def _make(self) -> None:
        key, name = ec.generate_private_key(ec.SECP256R1()), _named("Skep fleet CA")
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        cert = (
            self._builder(name, name, key.public_key(), _CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        _write_key(self._folder / CA_KEY, key)
        (self._folder / CA_CERT).write_bytes(cert.public_bytes(serialization.Encoding.PEM))

    def issue(self, hosts: list[str], folder: Path) -> None:
        """A certificate and its key for a coordinator that is dialled by these names or addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert = (
            self._builder(_named("Skep coordinator"), self._cert.subject, key.public_key(), _DAYS)
            .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())  # type: ignore[arg-type]  # it is the key that _make made
        )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_key(folder / KEY, key)
        (folder / CERT).write_bytes(cert.public_bytes(serialization.Encoding.PEM))

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _SKEW)
            .not_valid_after(self._now + timedelta(days=days))
        )


def days_left(certificate: bytes, now: float) -> float:
    """Of a PEM; below 0 when it has expired."""
    until = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    return (until.timestamp() - now) / 86_400


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise BadInput(f"{host!r} is no name of a host", hint="such as hive.example.org or 192.0.2.7") from error


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    write_private(path, pem)
