"""The bytes of git's protocol (pure): packet lines, and the refs an upstream announces in them.

Ref names are bytes to git and text to us: what is not UTF-8 becomes `\\xNN`. Nothing is lost, as git allows no
backslash in a ref name.
"""

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

MOST_REFS = 2_000_000
_OID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


class BadAnswer(ValueError):
    """Not what git would send; the text says why, for people."""


class Refs(msgspec.Struct):
    """What an upstream announced, as it did."""

    oids: dict[str, str]
    #: the branch HEAD stands for, where the upstream says so
    head: str = ""
    #: the commit HEAD stands at
    head_oid: str = ""

    def versions(self, wanted: Callable[[Mapping[str, str]], dict[str, str]]) -> dict[str, str]:
        """entry -> version: the refs wanted, and `HEAD` -> a branch that exists."""
        versions = wanted(self.oids)
        head = choose_head(versions, self.head, self.head_oid)
        return {**versions, "HEAD": head} if head else versions


def choose_head(versions: dict[str, str], head: str, oid: str = "") -> str:
    """The default branch: what HEAD names; else what stands where HEAD stands; else the usual names; else the first."""
    branches = sorted(name for name in versions if name.startswith("refs/heads/"))
    usual = ["refs/heads/main", "refs/heads/master", "refs/heads/trunk"]
    same = [name for name in (*usual, *branches) if oid and versions.get(name) == oid]
    for name in (head, *same, *usual, *branches):
        if name in versions and name != "HEAD":
            return name
    return ""


def to_text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def to_bytes(name: str) -> bytes:
    parts = _ESCAPED.split(name)
    return b"".join(bytes([int(part, 16)]) if n % 2 else part.encode() for n, part in enumerate(parts))


def packet(payload: bytes) -> bytes:
    return b"%04x" % (len(payload) + 4) + payload


def packets(data: bytes) -> Iterator[bytes | None]:
    """Payloads; None for a flush packet, which ends a section."""
    view, at = memoryview(data), 0
    while at < len(data):
        head = bytes(view[at : at + 4])
        if not _LENGTH.fullmatch(head):
            raise BadAnswer("the answer is not in git's packet format")
        size = int(head, 16)
        if size < 4:
            at += 4
            if size == 0:
                yield None
            continue
        if at + size > len(data):
            raise BadAnswer("the answer ends in the middle of a packet")
        payload = bytes(view[at + 4 : at + size])
        if payload.startswith(b"ERR "):
            raise BadAnswer(f"the server says: {to_text(payload[4:]).strip()[:300]}")
        yield payload
        at += size


def complete(data: bytes) -> bool:
    """Servers that do not know protocol v2 answer with nothing at all; ours ends with a flush packet."""
    return data.endswith(b"0000")


def parse_v2(data: bytes) -> Refs:
    refs = Refs({})
    for packet in packets(data):
        if packet is None:
            break
        oid, _, rest = packet.rstrip(b"\n").partition(b" ")
        name, *attributes = rest.split(b" ")
        for attribute in attributes:
            if name == b"HEAD" and attribute.startswith(b"symref-target:"):
                refs.head = to_text(attribute[14:])
        _note(refs, oid, name)
    return refs


def parse_v0(data: bytes) -> Refs:
    refs, capabilities = Refs({}), b""
    lines = packets(data)
    if not (next(lines, b"") or b"").startswith(b"# service=git-upload-pack"):
        raise BadAnswer("the answer is not in git's smart format")
    for packet in lines:
        if packet is None or packet == b"version 1\n" or packet.startswith(b"shallow "):
            continue
        line, _, tail = packet.rstrip(b"\n").partition(b"\0")
        capabilities = capabilities or tail
        oid, _, name = line.partition(b" ")
        if not name.endswith(b"^{}"):
            _note(refs, oid, name)
    for word in capabilities.split(b" "):
        if word.startswith(b"symref=HEAD:"):
            refs.head = to_text(word[12:])
    return refs


def parse_ls_remote(out: bytes) -> Refs:
    """What `git ls-remote --symref` prints."""
    refs = Refs({})
    for line in out.splitlines():
        left, _, name = line.partition(b"\t")
        if left.startswith(b"ref: "):
            if name == b"HEAD":
                refs.head = to_text(left[5:])
        elif not name.endswith(b"^{}"):
            _note(refs, left, name)
    return refs


def _note(refs: Refs, oid: bytes, name: bytes) -> None:
    if not _OID.fullmatch(oid) or not name:
        raise BadAnswer("the answer has a line that is no ref")
    if len(refs.oids) >= MOST_REFS:
        raise BadAnswer(f"the repository has more than {MOST_REFS:,} refs")
    if name == b"HEAD":
        refs.head_oid = oid.decode()
    else:
        refs.oids[to_text(name)] = oid.decode()
