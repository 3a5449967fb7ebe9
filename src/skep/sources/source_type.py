"""A kind of source, as a worker sees it. Git is one; others are folders beside it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from skep.sources.model import Failure, Held, Key, Progress, SourceSettings

Report = Callable[[Progress], None]
#: asks over the link; what can be asked and answered is the wire's business
Ask = Callable[[Any], Awaitable[Any]]


class Same(msgspec.Struct, frozen=True):
    """Nothing moved since `Held.seen`."""


class Moved(msgspec.Struct, frozen=True):
    #: fingerprint of this answer; becomes `Held.seen` once it is fetched
    seen: str
    #: entry -> version as the upstream announced them
    versions: Mapping[str, str]


Look = Same | Moved | Failure


class Addresses(Protocol):
    """What the catalogue knows of a kind: its URLs. Pure."""

    def check(self, url: str, *, local: bool) -> None:
        """BadUrl when it is none, NotAllowed by policy. `local`: the caller may name folders of this machine."""
        ...

    def clean(self, url: str) -> str:
        """The URL to ask, as it was typed but safe."""
        ...

    def canonical(self, url: str) -> str:
        """One spelling for all URLs of the same upstream."""
        ...

    def name(self, canonical: str) -> str:
        """How people call the source."""
        ...

    def host(self, url: str) -> str:
        """HOST or HOST:PORT of the upstream."""
        ...

    def check_settings(self, settings: SourceSettings) -> None:
        """BadInput when this kind cannot do as they say."""
        ...


class Kind(Protocol):
    """What a worker does with a kind of source."""

    async def look(self, source: Held, *, asked: bool = False) -> Look:
        """Ask the upstream, cheaply, whether anything moved. `asked`: somebody waits for the answer."""
        ...

    def heavy(self, source: Held) -> bool:
        """The next fetch may take long: it goes into a lane of its own."""
        ...

    def more(self, source: Held) -> bool:
        """The last fetch was not the end: it goes on at once, when it is its turn."""
        ...

    def changed(self, source: Held) -> bool:
        """The last fetch brought something that its versions do not tell."""
        ...

    async def fetch(self, source: Held, moved: Moved, report: Report) -> Mapping[str, str] | Failure:
        """Bring the mirror up to date; entry -> version as the mirror holds them, durable on return."""
        ...

    async def versions(self, source: Held) -> Mapping[str, str]:
        """What the mirror holds now; empty when there is none yet."""
        ...

    async def mend(self, source: Held) -> Failure | None:
        """Remove what a killed process left behind, before the first fetch after a start."""
        ...

    async def check(self, source: Held) -> Failure | None:
        """Read everything the mirror's entries lead to; None: it is all there. Else the next fetch repairs."""
        ...

    async def remove(self, source: Held) -> None: ...

    def connect(self, ask: Ask) -> None:
        """How to ask the coordinator, for kinds that keep nothing by themselves."""
        ...

    def unlock(self, keys: Sequence[Key]) -> None:
        """The credentials to use from now on, all of them."""
        ...

    async def close(self) -> None: ...
