"""Every error Skep raises on purpose, in one tree, by cause.

    SkepError
    ├── BadInput           400  the request itself is wrong
    │   ├── BadUrl              a URL we cannot or will not mirror
    │   └── BadQuery            a search query; `column` points at the place
    ├── NeedsToken         401  no token, or one we do not know
    ├── NotAllowed         403  a token without the scope, a foreign origin, a refused address
    ├── NotFound           404
    │   └── NotHere             it is known, and this server has no mirror of it
    ├── TooSlow            408  a request did not arrive in time
    ├── Conflict           409  somebody else changed or holds it
    │   └── Replaced            a newer process of the same member has come
    ├── TooLarge           413
    ├── Unavailable        503  try again later
    │   ├── Busy                a bounded queue is full
    │   └── NewerSchema         the data was written by a newer Skep
    ├── NoSpace            507  the disk is full
    └── Damaged            500  stored data does not pass its own check

Each carries a `code` for programs, a message for people and, where there is one, a hint: what to do next.
"""

from typing import ClassVar


class SkepError(Exception):
    """Something Skep could not do."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "", column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        #: 1-based place in the input that is wrong, where there is one
        self.column = column


class BadInput(SkepError):
    code = "bad_input"
    status = 400


class BadUrl(BadInput):
    code = "bad_url"


class BadQuery(BadInput):
    code = "bad_query"


class NeedsToken(SkepError):
    code = "needs_token"
    status = 401


class NotAllowed(SkepError):
    code = "not_allowed"
    status = 403


class NotFound(SkepError):
    code = "not_found"
    status = 404


class NotHere(NotFound):
    pass


class Conflict(SkepError):
    code = "conflict"
    status = 409


class Replaced(Conflict):
    code = "replaced"


class TooSlow(SkepError):
    code = "too_slow"
    status = 408


class TooLarge(SkepError):
    code = "too_large"
    status = 413


class Unavailable(SkepError):
    code = "unavailable"
    status = 503


class Busy(Unavailable):
    code = "busy"


class NewerSchema(Unavailable):
    code = "newer_schema"


class NoSpace(SkepError):
    code = "no_space"
    status = 507


class Damaged(SkepError):
    code = "damaged"
    status = 500


def class_of(code: str) -> type[SkepError]:
    """The class that an error had on the other side of a wire."""
    return _by_code(SkepError).get(code, SkepError)


def _by_code(kind: type[SkepError]) -> dict[str, type[SkepError]]:
    """Who gave a code its name comes last: a subclass that shares it must not take its parent's place."""
    return {code: sub for child in kind.__subclasses__() for code, sub in _by_code(child).items()} | {kind.code: kind}
