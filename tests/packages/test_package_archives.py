"""What an archive of a stranger may hold, and what it may not."""

import contextlib
import gzip
import os
import struct
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.base.errors import BadInput, SkepError, TooLarge
from skep.packages.archive import Bounds, build, context, parse, unpack
from tests.packages.making import files, folder, member, tar, zipped

BOUNDS = Bounds(100_000_000)
GOOD = {"tar.gz": tar(files()), "tar": tar(files(), mode="w"), "zip": zipped(files())}


@pytest.mark.parametrize("form", GOOD)
def test_each_form_is_unpacked(form: str, tmp_path: Path) -> None:
    archive, into = tmp_path / "a", tmp_path / "into"
    archive.write_bytes(GOOD[form])
    assert unpack(archive, BOUNDS) == unpack(archive, BOUNDS, into) == files()["skep-package.toml"]
    assert {path.name: path.read_bytes() for path in into.iterdir()} == files()
    assert os.access(into / "own.sh", os.X_OK)


def test_a_folder_that_was_packed_by_hand(tmp_path: Path) -> None:
    """`tar cf a.tar .` calls everything ./something."""
    with tarfile.open(tmp_path / "a", "w") as archive:
        archive.add(folder(tmp_path / "f"), ".")
    assert parse(unpack(tmp_path / "a", BOUNDS, tmp_path / "into")).ref == "org.example/bench/1.0"


HUGE = member("zero", size=40_000_000)
LARGE = [member(f"zero{n}", size=40_000_000) for n in range(3)]
SPARSE = member("sparse", tarfile.GNUTYPE_SPARSE)
BAD = {
    "up": (tar(files() | {"../up": b""}), "'../up' leads out"),
    "up zip": (zipped(files() | {"../up": b""}), "'../up' leads out"),
    "up inside": (tar(files() | {"a/../../up": b""}), "leads out"),
    "absolute": (tar(files() | {"/etc/cron.d/x": b""}), "leads out"),
    "absolute zip": (zipped(files() | {"/etc/cron.d/x": b""}), "leads out"),
    "hidden absolute": (tar(files() | {".//etc/x": b""}), "leads out"),
    "windows": (zipped(files() | {"a\\..\\b": b""}), "is no name"),
    "control": (tar(files() | {"a\nb": b""}), "is no name"),
    "deep": (tar(files() | {"a/" * 40 + "b": b""}), "is no name"),
    "long": (tar(files() | {"a" * 600: b""}), "is no name"),
    "symlink": (tar(files(), member("link", tarfile.SYMTYPE, link="/etc")), "'link' is neither a file nor a folder"),
    "hard link": (tar(files(), member("link", tarfile.LNKTYPE, link="run.sh")), "neither"),
    "symlink zip": (zipped(files(), "link"), "'link' is neither"),
    "device": (tar(files(), member("null", tarfile.CHRTYPE)), "neither"),
    "pipe": (tar(files(), member("pipe", tarfile.FIFOTYPE)), "neither"),
    "sparse": (tar(files(), SPARSE, form=tarfile.GNU_FORMAT), "neither"),
    "through a file": (tar(files() | {"run.sh/x": b""}), "twice"),
    "twice": (tar(files() | {"./run.sh": b"other"}), "twice"),
    "over a folder": (tar(files() | {"a/b": b"", "a": b""}), "twice"),
    "ratio": (tar(files(), HUGE), "more than 200 times its own size"),
    "ratio zip": (zipped(files() | {"zero": b"\0" * 40_000_000}), "more than 200 times"),
    "size": (tar(files(), *LARGE, mode="w"), "more than 100,000,000 bytes"),
    "count": (tar(files() | {f"{n}": b"" for n in range(2_000)}), "more than 2,000 files"),
    "count zip": (zipped(files() | {f"{n}": b"" for n in range(2_000)}), "more than 2,000 files"),
    "long header": (tar(files() | {"b/" * 40_000: b""}, form=tarfile.GNU_FORMAT), "a header of this archive has"),
    "comment": (zipped(files(), comment=b"hello"), "ends in a way"),
    "huge list": (GOOD["zip"][:-10] + struct.pack("<L", 1 << 30) + GOOD["zip"][-6:], "list of this zip's entries"),
    "no manifest": (tar({"run.sh": b""}), "there is no skep-package.toml"),
    "manifest below": (tar({"a/skep-package.toml": b""}), "there is no skep-package.toml"),
    "large manifest": (tar({"skep-package.toml": b"#" * 1_100_000}), "more than 1,000,000 bytes"),
    "cut tar": (GOOD["tar"][:1500], "cannot be read"),
    "cut between files": (GOOD["tar"][: GOOD["tar"].rindex(b"own.sh")], "was cut off"),
    "damaged gz": (GOOD["tar.gz"][:-8] + b"\0" * 8, "CRC check failed"),
    "cut gz": (GOOD["tar.gz"][:200], "cannot be read"),
    "cut zip": (GOOD["zip"][:-30], "ends in a way"),
    "not gz": (b"\x1f\x8b" + b"x" * 100, "cannot be read"),
    "text": (b"#!/bin/sh\nrm -rf /\n" * 100, "cannot be read"),
    "empty": (b"", "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_archives(case: str, tmp_path: Path) -> None:
    body, says = BAD[case]
    archive, outside = tmp_path / "a", tmp_path / "outside"
    archive.write_bytes(body)
    outside.mkdir()
    for into in (None, outside / "into"):
        with pytest.raises((BadInput, TooLarge), match=says):
            unpack(archive, BOUNDS._replace(files=2_000), into)
    assert [path.name for path in outside.iterdir()] in ([], ["into"])


def test_a_wrong_checksum_inside_a_zip(tmp_path: Path) -> None:
    body = zipped({"skep-package.toml": b"x = 1" * 100}, compression=0)
    (tmp_path / "a").write_bytes(body.replace(b"x = 1", b"x = 2", 1))
    with pytest.raises(BadInput, match="Bad CRC"):
        unpack(tmp_path / "a", BOUNDS)


@settings(max_examples=150)
@given(form=st.sampled_from([*GOOD, "inside gz"]), at=st.integers(0, 2000), byte=st.integers(0, 255), cut=st.booleans())
def test_damaged_archives_raise_only_our_own(tmp_path: Path, form: str, at: int, byte: int, cut: bool) -> None:
    body = bytearray(GOOD["tar" if form == "inside gz" else form])
    at %= len(body)
    body[at:] = b"" if cut else bytes([byte]) + body[at + 1 :]
    (tmp_path / "a").write_bytes(gzip.compress(bytes(body), 1) if form == "inside gz" else bytes(body))
    with contextlib.suppress(SkepError):
        unpack(tmp_path / "a", BOUNDS)


def test_the_same_folder_is_the_same_package(tmp_path: Path) -> None:
    one, two = folder(tmp_path / "one"), folder(tmp_path / "two")
    os.utime(two / "run.sh", (1, 1))
    assert build(one, tmp_path / "1", BOUNDS).ref == "org.example/bench/1.0"
    build(two, tmp_path / "2", BOUNDS)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    (one / "link").symlink_to("run.sh")
    with pytest.raises(BadInput, match="neither a file nor a folder"):
        build(one, tmp_path / "3", BOUNDS)
    with pytest.raises(BadInput, match=r"no skep-package\.toml in"):
        build(tmp_path, tmp_path / "4", BOUNDS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("group = 1", "Expected `str`"),
        ('group = "a"', "missing required field `name`"),
        ('group = "a/b"\nname = "b"\nversion = "1"', "'a/b' is no group"),
        ('group = "a"\nname = ".."\nversion = "1"', r"'\.\.' is no name"),
        ('group = "a"\nname = "b"\nversion = "1"\ncolour = "red"', "unknown field `colour`"),
        ('group = "a"\nname = "b"\nversion = "1"\n[commands]\nrun = []', "'run' says nothing to run"),
        ("\xff", r"skep-package\.toml"),
    ],
)
def test_bad_manifests(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        parse(text.encode("latin-1"))


def test_templates_run_their_own_package() -> None:
    manifest = parse(files()["skep-package.toml"])
    twice = context(manifest, "twice", {"level": "3"})
    assert [task.package for task in twice.tasks] == ["", manifest.ref]
    assert twice.templates["once"].package == manifest.ref
    assert twice.properties == {"level": "3"}
    assert context(manifest, "once", {}).tasks[0].package == manifest.ref
    with pytest.raises(BadInput, match="has no template 'thrice'") as refused:
        context(manifest, "thrice", {})
    assert refused.value.hint == "it has: twice, once"
