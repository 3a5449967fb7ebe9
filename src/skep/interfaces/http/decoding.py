"""Large bodies are decoded in threads, few at once, and in pieces.

A decoder holds the interpreter until it returns, in whichever thread it runs. The event loop then stands still. So
nothing large is decoded in one call: a list of many items is split into its items first, which takes a fortieth of the
time, and is refused when it has too many; then each item is decoded in a call of its own.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from skep.base.errors import BadInput, TooLarge

T = TypeVar("T")
#: bytes: smaller bodies are decoded where they are, in less time than a thread takes to begin
SMALL = 65_536
#: bytes that are decoded in one call: it takes about an eighth of a second in the worst case, lists of nothing
LARGEST_PIECE = 1_000_000
#: of a body that is decoded in pieces
_MOST_FIELDS = 1_000
_BLOCK = 1 << 20
_AT_ONCE = 2
_threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="decode")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw] | None).decode
#: what a decoder raises about a body
NOT_DECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Outline(NamedTuple):
    #: of the outermost list or object
    items: int
    #: lists and objects
    containers: int


class Pieces(msgspec.Struct, frozen=True):
    """The field of a body that is a list of many items, of which `most` are allowed."""

    field: str
    item: type
    most: int
    #: bytes of all other fields together, and of one item
    largest: int = LARGEST_PIECE
    #: lists and objects of the whole body: the garbage collector holds the interpreter while it visits them
    containers: int = 1_000_000
    strict: bool = False


async def aside(size: int, work: Callable[..., T], *given: Any) -> T:
    """`work`, in a thread if it is about a large body."""
    if size <= SMALL:
        return work(*given)
    return await asyncio.get_running_loop().run_in_executor(_threads, work, *given)


def decoded(body: bytes, kind: Any, pieces: Pieces | None = None) -> Any:
    """As Litestar does it, which takes "1" for 1 where a number is wanted."""
    try:
        return msgspec.json.decode(body, type=kind, strict=False) if pieces is None else in_pieces(body, kind, pieces)
    except NOT_DECODED as error:
        raise BadInput(
            f"the body cannot be read: {error}", hint="/docs lists every operation and its fields"
        ) from error


def in_pieces(body: bytes, kind: type[T], pieces: Pieces) -> T:
    outline = refuse_many(body, _MOST_FIELDS, "the body")
    fields = _fields(body)
    listed = bytes(fields.get(pieces.field, b"null"))
    refuse_many(listed, pieces.most, pieces.field)
    if outline.containers > pieces.containers:
        raise TooLarge(
            f"this body has {outline.containers:,} lists and objects; at most {pieces.containers:,} are allowed",
            hint="send it in several requests",
        )
    items = _items(listed) or []
    if len(items) > pieces.most:
        raise _too_many(pieces.field, len(items), pieces.most)
    others = {name: raw for name, raw in fields.items() if name != pieces.field}
    _sized(msgspec.json.encode(others), "all other fields", pieces)
    some = {pieces.field: items[:1]} if items else fields  # a list of nothing may be allowed or not
    made = msgspec.json.decode(msgspec.json.encode(others | some), type=kind, strict=pieces.strict)
    if not items:
        return made
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(pieces.item, strict=pieces.strict)
    found = [_item(decoder, raw, n, pieces) for n, raw in enumerate(items)]
    whole = type(getattr(made, pieces.field))(found)
    return msgspec.structs.replace(made, **{pieces.field: whole})  # type: ignore[type-var]


def _item(decoder: msgspec.json.Decoder[Any], raw: msgspec.Raw, n: int, pieces: Pieces) -> Any:
    place = f"{pieces.field}[{n}]"
    try:
        return decoder.decode(_sized(raw, place, pieces))
    except NOT_DECODED as error:
        raise BadInput(f"{place}: {error}") from error


def _sized(raw: Any, name: str, pieces: Pieces) -> Any:
    size = memoryview(raw).nbytes
    if size > pieces.largest:
        raise TooLarge(f"{name} of this body: {size:,} bytes, at most {pieces.largest:,} are allowed")
    return raw


def _too_many(field: str, found: int, most: int) -> BadInput:
    return BadInput(
        f"`{field}` has {found:,} items; at most {most:,} are allowed", hint="send them in several requests"
    )


def refuse_many(body: bytes, most: int, name: str) -> Outline:
    """Before millions of small objects are made of it. A small body cannot have as many."""
    outline = outlined(body) if len(body) > LARGEST_PIECE else Outline(0, 0)
    if outline.items > most:
        raise _too_many(name, outline.items, most)
    return outline


def outlined(body: bytes) -> Outline:
    """Of a JSON text; an empty list counts as one item. Numpy lets other threads run meanwhile. For a body that is not
    JSON the numbers mean nothing: the decoder refuses it."""
    found, depth, is_text, start = Outline(1, 0), 0, False, 0
    while start < len(body):
        block = body[start : start + _BLOCK]
        if (len(block) - len(block.rstrip(b"\\"))) % 2:  # an escape is not divided
            block = body[start : start + _BLOCK + 1]
        start += len(block)
        if b"\\" in block:
            block = block.replace(b"\\\\", b"").replace(b'\\"', b"")
        letters = np.frombuffer(block, np.uint8)
        texts = np.logical_xor.accumulate(np.append(is_text, letters == ord('"')))
        is_text = bool(texts[-1])
        marks = letters[~texts[1:]]
        opening = np.isin(marks, (ord("{"), ord("[")))
        levels = opening.astype(np.int8) - np.isin(marks, (ord("}"), ord("]")))
        depths = np.cumsum(np.append(depth, levels), dtype=np.int64)
        depth = int(depths[-1])
        commas = np.count_nonzero((marks == ord(",")) & (depths[1:] == 1))
        found = Outline(found.items + int(commas), found.containers + int(np.count_nonzero(opening)))
    return found
