"""Tickets for tunnels: signed with the key of the fleet, so that whoever has it can issue one for any meeting point."""

import base64
import binascii
import hmac
import secrets
from typing import Literal, NamedTuple

import msgspec

from skep.errors import NotAllowed

Side = Literal["give", "take"]


class Ticket(NamedTuple):
    #: for the member that gives
    give: str
    #: for whoever takes
    take: str


class Pass(msgspec.Struct, frozen=True, array_like=True):
    """What a ticket says: both halves say the same."""

    id: str
    #: the meeting point where it is good
    at: str
    giver: str
    taker: str
    until: float

    def member(self, side: Side) -> str:
        return self.giver if side == "give" else self.taker


_decode = msgspec.msgpack.Decoder(Pass).decode


def issue(key: bytes, at: str, giver: str, taker: str, until: float) -> tuple[Pass, Ticket]:
    said = Pass(secrets.token_hex(8), at, giver, taker, until)
    text = base64.urlsafe_b64encode(msgspec.msgpack.encode(said)).decode()
    return said, Ticket(_half(key, text, "give"), _half(key, text, "take"))


def read(key: bytes, half: str, side: Side) -> Pass:
    """NotAllowed unless we, or another with our key, have written it."""
    text = half.partition(".")[0]
    if not hmac.compare_digest(_half(key, text, side).encode(), half.encode()):
        raise unknown()
    try:
        return _decode(base64.urlsafe_b64decode(text))
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError):
        raise unknown() from None


def unknown() -> NotAllowed:
    return NotAllowed("this ticket is not known, was used, or is too old", hint="ask for another")


def _half(key: bytes, text: str, side: Side) -> str:
    signature = hmac.new(key, f"{side}.{text}".encode(), "sha256").hexdigest()
    return f"{text}.{side}.{signature}"
