"""The parser meets every kind of bytes: it answers with refs or with BadAnswer, and never with anything else."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.sources.git.ls_refs import (
    BadAnswer,
    choose_head,
    complete,
    packets,
    parse_ls_remote,
    parse_v0,
    parse_v2,
    selection,
    to_bytes,
    to_text,
)

USUAL = selection(None)

OIDS = st.text("0123456789abcdef", min_size=40, max_size=40)
#: what git allows, roughly, and what people fear: `-x`, `<script>`, bytes that are no UTF-8
NAMES = st.binary(min_size=1, max_size=30).map(
    lambda raw: b"refs/heads/" + bytes(byte for byte in raw if byte > 32 and byte not in b"~^:?*[\\\x7f") + b"x"
)


def line(payload: bytes) -> bytes:
    return b"%04x%s" % (len(payload) + 4, payload)


@given(st.dictionaries(NAMES, OIDS, max_size=20))
def test_refs_survive_the_wire_in_every_dialect(refs: dict[bytes, str]) -> None:
    expected = {to_text(name): oid for name, oid in refs.items()}
    rows = [(oid.encode(), name) for name, oid in refs.items()]
    v2 = b"".join(line(oid + b" " + name + b"\n") for oid, name in rows) + b"0000"
    assert parse_v2(v2).oids == expected
    service = line(b"# service=git-upload-pack\n") + b"0000"
    v0 = b"".join(
        line(oid + b" " + name + (b"" if n else b"\0caps symref=HEAD:refs/heads/q") + b"\n")
        for n, (oid, name) in enumerate(rows)
    )
    assert parse_v0(service + v0 + b"0000").oids == expected
    assert parse_ls_remote(b"".join(oid + b"\t" + name + b"\n" for oid, name in rows)).oids == expected


@given(st.binary(max_size=200) | st.lists(st.binary(max_size=40)).map(lambda rows: b"".join(map(line, rows)) + b"0000"))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    for parse in (parse_v2, parse_v0, parse_ls_remote):
        with contextlib.suppress(BadAnswer):
            parse(data)
    with contextlib.suppress(BadAnswer):
        parse_v0(line(b"# service=git-upload-pack\n") + data)


@given(NAMES)
def test_names_are_text_and_come_back(name: bytes) -> None:
    text = to_text(name)
    assert to_bytes(text) == name
    text.encode("utf-8")


def test_the_request_is_well_formed() -> None:
    assert next(iter(packets(USUAL.request))) == b"command=ls-refs\n"
    assert list(packets(USUAL.request))[-1] is None
    assert complete(USUAL.request) and not complete(b"")


def test_head_and_errors() -> None:
    oid = b"1" * 40
    refs = parse_v2(line(oid + b" HEAD symref-target:refs/heads/main\n") + line(oid + b" refs/heads/main\n") + b"0000")
    assert refs.versions(USUAL.of) == {"refs/heads/main": "1" * 40, "HEAD": "refs/heads/main"}
    with pytest.raises(BadAnswer, match="go away"):
        parse_v2(line(b"ERR go away") + b"0000")
    with pytest.raises(BadAnswer, match="no ref"):
        parse_v2(line(b"hello refs/heads/main\n"))


def test_only_branches_and_tags_are_followed() -> None:
    refs = parse_ls_remote(b"%b\trefs/pull/1/head\n%b\trefs/tags/v1\n%b\trefs/tags/v1^{}\n" % ((b"2" * 40,) * 3))
    assert refs.versions(USUAL.of) == {"refs/tags/v1": "2" * 40}


def test_the_default_branch() -> None:
    refs = {f"refs/heads/{name}": name * 40 for name in "bac"}
    assert choose_head(refs, "refs/heads/c") == "refs/heads/c"
    assert choose_head(refs, "refs/heads/none") == "refs/heads/a"
    assert choose_head(refs, "", "b" * 40) == "refs/heads/b"
    assert choose_head({**refs, "refs/heads/master": "1"}, "") == "refs/heads/master"
    assert choose_head({"refs/tags/v1": "1"}, "") == ""
