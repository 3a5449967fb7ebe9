"""The tables of spaces, and what a space may be called."""

import re

from skep.errors import BadInput, NotAllowed
from skep.model.caller import SYSTEM, Caller

#: Free tuples are found by their first field, or in order where a template leaves that open; taken ones by when their
#: lease ends. A tuple is in the one kind of index or in the other.
STEPS = [
    """
    CREATE TABLE space (name TEXT PRIMARY KEY, last BIGINT NOT NULL);
    CREATE TABLE tuple (
        space TEXT NOT NULL, seq BIGINT NOT NULL, arity BIGINT NOT NULL, head BIGINT NOT NULL, body BYTEA NOT NULL,
        id TEXT, taker TEXT, ticket TEXT, lease_until DOUBLE PRECISION, PRIMARY KEY (space, seq)
    );
    CREATE INDEX tuple_by_head ON tuple (space, arity, head, seq) WHERE taker IS NULL;
    CREATE INDEX tuple_in_order ON tuple (space, arity, seq) WHERE taker IS NULL;
    CREATE INDEX tuple_taken ON tuple (space, lease_until) WHERE taker IS NOT NULL;
    CREATE UNIQUE INDEX tuple_id ON tuple (space, id) WHERE id IS NOT NULL
    """
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
_WORDS = "letters, digits, dot, dash, colon and underscore, at most 200 characters, a letter or digit first"


def channel(space: str) -> str:
    return f"space:{space}"


def to_look(caller: Caller, space: str) -> None:
    caller.need("read")
    if not _NAME.fullmatch(space):
        raise BadInput(f"{space[:60]!r} is not a name for a space", hint=_WORDS)


def to_change(caller: Caller, space: str) -> None:
    """Skep's own spaces hold what it relies on: looked at by all, changed by none but itself."""
    to_look(caller, space)
    caller.need("write")
    if caller is not SYSTEM and (space in ("status", "index") or space.startswith(("skep.", "context:"))):
        raise NotAllowed(f"the space {space!r} is Skep's own", hint="choose a name of your own")
