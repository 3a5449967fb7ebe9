"""One call of the API, and its answer."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from skep.dataone.pids import decode
from skep.dataone.service import DataOne
from skep.dataone.store import Store
from skep.dataone.tables import Stored
from skep.dataone.types import Doc, ObjectList
from skep.dataone.xml import parse
from skep.doors.http.decoding import aside
from skep.errors import BadInput, NeedsToken
from skep.model.caller import Caller

D = TypeVar("D", bound=Doc)


class Reading(Protocol):
    """What is read in the same way, whichever kind of node we are."""

    @property
    def store(self) -> Store: ...

    @property
    def base(self) -> str: ...

    @property
    def listing(self) -> Callable[..., Awaitable[ObjectList]]: ...

    async def get(self, caller: Caller, id: str) -> Stored: ...


class Call(msgspec.Struct, frozen=True):
    cn: DataOne
    here: Reading
    caller: Caller
    version: int
    #: what stands behind the first word of the path, still encoded
    names: tuple[str, ...]
    query: Sequence[tuple[str, str]]
    form: Mapping[str, bytes]
    now: float

    @property
    def pid(self) -> str:
        if not self.names:
            raise BadInput("there is no identifier in the path")
        if len(self.names) > 1:
            raise BadInput("there is more than an identifier in the path", hint="inside an identifier / is %2F")
        return decode(self.names[0])

    def asked(self, name: str) -> str:
        return dict(self.query).get(name, "")

    def part(self, name: str) -> bytes:
        if name not in self.form:
            raise BadInput(f"the form has no part {name!r}")
        return self.form[name]

    async def document(self, kind: type[D], name: str) -> D:
        """A part that is a document; a large one is parsed in a thread."""
        part = self.part(name)
        return await aside(len(part), parse, kind, part)

    def text(self, name: str) -> str:
        try:
            return self.part(name).decode().strip()
        except UnicodeDecodeError:
            raise BadInput(f"{name} is not UTF-8") from None

    def number(self, name: str, text: str) -> int:
        if not text.isascii() or not text.isdecimal() or len(text) > 18:
            raise BadInput(f"{name} is a whole number, not {text[:40]!r}")
        return int(text)

    def known(self) -> Caller:
        """Somebody with a name."""
        if not self.caller.known:
            raise NeedsToken("this is not for strangers", hint="send `Authorization: Bearer TOKEN`")
        return self.caller


class Answer(msgspec.Struct, frozen=True):
    body: Any = b""  # Doc, bytes or AsyncIterator[bytes]
    status: int = 200
    media: str = "text/plain"
    headers: Mapping[str, str] = {}


Handler = Callable[[Call], Awaitable[Answer]]
#: by method and first word of the path
Calls = Mapping[tuple[str, str], Handler]
