"""Which credential an upstream is shown: the source's own before its host's, and none in the clear."""

from collections.abc import Iterable
from ipaddress import ip_address

from skep.model.credential import Key
from skep.model.source import Failure, Held
from skep.sources.git.url import Parts


class Keyring:
    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], Key] = {}

    def fill(self, keys: Iterable[Key]) -> None:
        self._keys = {(key.host, key.source): key for key in keys}

    def find(self, source: Held, parts: Parts, *, certificates: bool = False) -> Key | None:
        """A host's key opens private sources only, unless it says otherwise: adding a URL must not publish a secret."""
        if not self._keys or not sealed(parts):
            return None
        key = self._keys.get((parts.authority, source.source))
        shared = self._keys.get((parts.authority, ""))
        found = key or (shared if shared and (shared.public or source.visibility == "private") else None)
        return found if found and (certificates or not found.certificate) else None


def sealed(parts: Parts) -> bool:
    """Nobody on the way can read it."""
    if parts.scheme != "http":
        return parts.scheme == "https"
    try:
        return ip_address(parts.host).is_loopback
    except ValueError:
        return False


def refused(failure: Failure, key: Key | None, source: Held) -> Failure:
    """A failure as it was, or, where a credential did not help, one that names it."""
    if key is None or failure.kind != "auth":
        return failure
    why = "is no longer accepted, it may have expired" if source.batches else "is not accepted"
    message = (
        f"{source.url}: the credential '{key.name}' {why}; `skep credential set {key.name}` gives it another secret"
    )
    return Failure("auth", message, credential=key.name)
