"""A Credential is a secret for a host: shown to it by `fetch` or, when it is asked for its repositories, as `api`; or
shown by it to prove a `hook`."""

from base64 import b64encode
from typing import Literal

import msgspec

Use = Literal["fetch", "api", "hook"]


class CredentialSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything but the secret; as `[[credential]]` in skep.toml, where one of the last three leads to it."""

    name: str
    #: HOST or HOST:PORT, as in the URLs of its sources; the secret is never shown to another
    host: str
    #: id, name or URL: only for this source
    source: str = ""
    use: Use = "fetch"
    user: str = "x-access-token"
    #: used for public sources too: then whoever may add sources may read with it
    public: bool = False
    token_file: str = ""
    token_env: str = ""
    command: tuple[str, ...] = ()


class CredentialInfo(msgspec.Struct, frozen=True):
    name: str
    host: str
    source: str
    use: Use
    user: str
    public: bool
    #: set by the API and kept in the data folder; False: it stands in skep.toml
    stored: bool
    #: where the secret is, unless it is stored
    origin: str
    updated_at: float | None
    #: sources that were refused with it
    refused: int
    #: why there is no secret at this moment
    problem: str = ""


class Key(msgspec.Struct, frozen=True):
    """A credential with its secret, as a worker holds it: in memory only."""

    name: str
    host: str
    #: id; empty: every source of the host
    source: str
    user: str
    token: str
    public: bool

    @property
    def certificate(self) -> str:
        """A certificate and its key in PEM, where the secret is these."""
        return self.token if self.token.startswith("-----BEGIN") else ""

    @property
    def header(self) -> str:
        return "Authorization: Basic " + b64encode(f"{self.user}:{self.token}".encode()).decode()

    def __repr__(self) -> str:
        return f"Key({self.name!r}, {self.host!r}, {self.source!r})"
