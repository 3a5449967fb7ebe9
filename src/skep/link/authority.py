"""The fleet's own certificates: a CA in a folder, and what it signs for coordinators."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from skep.disk import write_private
from skep.errors import BadInput
from skep.link.join import CA_CERT, CA_KEY, CERT, KEY

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
