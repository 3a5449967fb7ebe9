"""Repositories made to harm: none gets further than a clear failure, or is mirrored without harm."""

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from skep.base.clock import SystemClock
from skep.base.errors import TooLarge
from skep.config.settings import Settings
from skep.sources.git.browse import blob, ls, resolve
from skep.sources.git.documents import Rules, changed, documents, list_tree
from skep.sources.git.source_type import GitKind
from skep.storage.code_index.model import Tip
from tests.support.forge import Fault, Forge, Repo
from tests.support.forge.follower import Follow, Follower

Upstream = Callable[[Repo], dict[str, str]]


def evil_commit(repo: Repo, mode: str, name: str, content: bytes = b"x") -> None:
    """A commit whose tree git itself would not make."""
    oid = repo.git("hash-object", "-w", "--stdin", input=content).strip().decode()
    raw = f"{mode} {name}".encode() + b"\0" + bytes.fromhex(oid)
    tree = repo.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", input=raw).strip().decode()
    commit = repo.git("commit-tree", "-m", "evil", tree).strip().decode()
    repo.git("update-ref", "refs/heads/main", commit)


@pytest.mark.parametrize(
    ("mode", "name", "content"),
    [
        ("100644", ".git", b"gitdir: /etc"),
        ("100644", "..", b"x"),
        ("100644", ".GIT", b"x"),
        ("100644", "git~1", b"x"),
        ("100644", "a/../../b", b"x"),
        ("100644", ".gitmodules", b'[submodule "x"]\n\tpath = x\n\turl = --upload-pack=touch\n'),
        ("120000", ".gitmodules", b"/etc/passwd"),
    ],
)
async def test_evil_trees_are_refused(forge: Forge, follow: Follow, mode: str, name: str, content: bytes) -> None:
    repo = forge.create("org/evil")
    evil_commit(repo, mode, name, content)
    one = follow(forge.url("org/evil"))
    failure = await one.fail()
    assert failure.kind == "corrupt" and "not sound" in failure.message, failure
    assert await one.kind.versions(one.held) == {}


async def test_refs_with_frightening_names(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    oid = repo.refs()["refs/heads/main"]
    names = ["-x", "--upload-pack=id", "<script>alert(1)</script>", "a'b\"c", "$(id)", "ü", "日本", "%41", "a" * 200]
    for name in names:
        repo.branch(name)
    (repo.folder / "packed-refs").write_bytes(f"{oid} refs/heads/".encode() + b"caf\xe9\n")
    one = follow(forge.url("org/repo"))
    versions = await one.succeed()
    assert versions == upstream(repo)
    assert versions["refs/heads/caf\\xe9"] == oid
    msgspec.msgpack.encode(versions)
    json.dumps(versions, ensure_ascii=False).encode()
    for name in names:
        assert await resolve(one.folder, name) == oid
    repo.git("update-ref", "-d", b"refs/heads/caf\xe9")
    for name in names[:-1]:  # fewer than a mass deletion
        repo.delete_branch(name)
    repo.branch("-y")
    repo.set_head("-y")
    assert await one.succeed() == upstream(repo)
    assert (await one.kind.versions(one.held))["HEAD"] == "refs/heads/-y"
    one.fsck()


@pytest.mark.parametrize(
    "rev",
    ["", "-x", "--help", "main^", "main~1", "main@{1}", ":/commit", "main..main", "a b", "a\nb", "a\0b", "x" * 2000],
)
async def test_revisions_are_names_and_nothing_more(forge: Forge, follow: Follow, rev: str) -> None:
    forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    await one.succeed()
    assert await resolve(one.folder, rev) is None


async def test_hard_files(forge: Forge, follow: Follow) -> None:
    """Binary, not UTF-8, huge, with a name of a thousand characters, with a line end in it; links in circles."""
    long = "d" * 200 + "/" + "e" * 200 + "/" + "f" * 200 + "/" + "g" * 200 + "/" + "h" * 200
    files: dict[str | bytes, bytes | str | None] = {
        long: b"deep\n",
        b"caf\xe9.txt": b"caf\xe9\n",
        "binary": b"\x7fELF\0\0\0",
        "huge.txt": b"0123456789abcdef" * 200_000,
        "new\nline": b"n\n",
        '"quoted"\t': b"q\n",
        "-rf": b"r\n",
        "loop": "loop",
        "out": "../../../etc/passwd",
        "empty": b"",
    }
    repo = forge.create("org/hard", files)
    one = follow(forge.url("org/hard"))
    commit = (await one.succeed())["refs/heads/main"]
    entries, gone = changed(one.folder, None, [Tip("main", commit)])
    found = documents(one.folder, entries, Rules(1_000_000))
    content = {document.path: document.content for document in found}
    assert content == {
        **{
            (path if isinstance(path, bytes) else path.encode()): data
            for path, data in files.items()
            if isinstance(data, bytes)
        },
        b"binary": b"",
        b"huge.txt": b"",
    }
    assert (gone, len(entries)) == ([], 8)
    listed = {entry.path for entry in await ls(one.folder, commit)}
    assert {b"caf\xe9.txt", b"new\nline", b"-rf", b"loop", b"d" * 200} < listed
    assert (await blob(one.folder, commit, "loop", 1_000)).content == b"loop"
    assert (await blob(one.folder, commit, "huge.txt", 1_000)).content is None
    assert (await blob(one.folder, commit, long, 1_000)).content == b"deep\n"
    assert (await blob(one.folder, commit, os.fsdecode(b"caf\xe9.txt"), 99)).content == b"caf\xe9\n"
    assert repo.refs()["refs/heads/main"] == commit


async def test_a_tree_of_a_thousand_million_paths(forge: Forge, follow: Follow) -> None:
    repo = forge.create("org/bomb")
    oid = repo.git("hash-object", "-w", "--stdin", input=b"boom").strip().decode()
    kind, mode = "blob", "100644"
    for _ in range(9):
        rows = "".join(f"{mode} {kind} {oid}\tf{n}\n" for n in range(10))
        oid = repo.git("mktree", input=rows.encode()).strip().decode()
        kind, mode = "tree", "040000"
    commit = repo.git("commit-tree", "-m", "bomb", oid).strip().decode()
    repo.git("update-ref", "refs/heads/main", commit)
    one = follow(forge.url("org/bomb"))
    await one.succeed()
    with pytest.raises(TooLarge, match="20,000"):
        for _ in list_tree(one.folder, commit, most=20_000):
            pass
    assert len(await ls(one.folder, commit, "f1/f2")) == 10


async def test_repeated_content_has_a_budget(forge: Forge, follow: Follow) -> None:
    repo = forge.create("org/same", {f"{n}.txt": b"x" * 1_000 for n in range(50)})
    one = follow(forge.url("org/same"))
    await one.succeed()
    files, _ = changed(one.folder, None, [Tip("main", repo.refs()["refs/heads/main"])])
    found = documents(one.folder, files, Rules(10_000), budget=10_000)
    assert len(files) == 50 and sum(len(document.content) for document in found) == 10_000


async def test_a_small_pack_of_many_zeros_is_mirrored_but_not_read(
    forge: Forge, follow: Follow, tmp_path: Path
) -> None:
    repo = forge.create("org/zeros", {"zeros": bytes(40_000_000), "a": b"1\n"})
    assert len(zlib.compress(bytes(40_000_000), 1)) < 200_000
    one = follow(forge.url("org/zeros"))
    commit = (await one.succeed())["refs/heads/main"]
    files, _ = changed(one.folder, None, [Tip("main", commit)])
    found = documents(one.folder, files, Rules(2_000_000))
    assert {document.path: document.content for document in found} == {b"zeros": b"", b"a": b"1\n"}
    assert repo.refs()["refs/heads/main"] == commit


async def test_upstream_hooks_and_config_do_nothing_here(follow: Follow, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    repo = Repo.init(tmp_path / "hooked.git")
    repo.commit({"a": b"1"})
    script = tmp_path / "script"
    script.write_text(f'#!/bin/sh\ntouch {marker}\nexec "$@"\n')
    script.chmod(0o755)
    repo.git("config", "uploadpack.packObjectsHook", str(script))
    repo.git("config", "core.fsmonitor", str(script))
    (repo.folder / "hooks").mkdir()
    for hook in ("post-checkout", "reference-transaction", "pre-auto-gc"):
        (repo.folder / "hooks" / hook).symlink_to(script)
    await follow(str(repo.folder)).succeed()
    assert not marker.exists()


async def test_an_upstream_that_lies_about_its_refs(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/liar", {"a": b"1"})
    one = follow(forge.url("org/liar"))
    before = await one.succeed()
    true = repo.commit({"a": b"2"}).encode()
    for lie in (b"0" * 40, b"d" * 40, true[:20] + b"e" * 20):
        forge.fault("org/liar", Fault(lie=(true, lie)))
        failure = await one.fail()
        assert failure.kind in {"network", "corrupt", "not_git"}, failure
        assert await one.kind.versions(one.held) == before
    forge.fault("org/liar", None)
    assert await one.succeed() == upstream(repo)
    one.fsck()


async def test_refs_that_would_leave_their_folder(forge: Forge, follow: Follow) -> None:
    forge.create("org/repo", {"a": b"1"})
    for name in (
        b"refs/heads/../../../x",
        b"refs/heads/a..b",
        b"refs/heads/x.lock",
        b"refs/heads/.x",
        b"refs/heads/a b",
    ):
        lie = name.ljust(15, b"x")[:15] if len(name) < 15 else name
        forge.fault("", Fault(lie=(b"refs/heads/main", lie)))
        one = follow(forge.url("org/repo"))
        await one.follow()
        assert {path.name for path in one.folder.parent.glob("*")} <= {one.folder.name}
        assert not [path for path in one.folder.rglob("*") if path.name in {"x", ".x", "x.lock"}]


async def test_a_pack_that_never_ends_meets_its_bound(forge: Forge, data: Path) -> None:
    repo = forge.create("org/zeros", {"zeros": bytes(60_000_000)})
    kind = GitKind(Settings(allow_networks=("127.0.0.0/8",), max_repository=20_000), data, SystemClock(0))
    one = Follower(kind, forge.url("org/zeros"))
    failure = await one.fail()
    assert failure.kind == "too_big", failure
    assert not list(one.folder.rglob("tmp_*")) and repo.refs()
    await kind.close()
