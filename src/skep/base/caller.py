"""Who asks. Every core verb takes a Caller; no door decides what it may see."""

from typing import Literal

import msgspec

from skep.base.errors import NeedsToken, NotAllowed

Scope = Literal["read", "write", "private", "admin"]
#: public: whoever may read this Skep; private: only callers with the scope `private`
Visibility = Literal["public", "private"]


class Caller(msgspec.Struct, frozen=True):
    subject: str
    scopes: frozenset[Scope]
    #: False for a caller who showed no token at all
    known: bool = True

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, visibility: Visibility) -> bool:
        return visibility == "public" or self.may("private")

    def need(self, scope: Scope) -> None:
        if self.may(scope):
            return
        if not self.known:
            raise NeedsToken(
                f"this needs a token with the scope '{scope}'",
                hint="send `Authorization: Bearer TOKEN`; on the same machine the token is in DATA/admin.token",
            )
        raise NotAllowed(f"'{self.subject}' lacks the scope '{scope}'", hint="ask an admin for a token with it")


#: Skep's own loops
SYSTEM = Caller("skep", frozenset({"admin"}))
