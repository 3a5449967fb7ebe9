"""An index in steps: plan on the holder, build batches, fold them into one delta. Small ones take all steps at once.

A plan is a folder: what is to be done in `plan`, the files of each batch in `batch-N`, and what became of it in
`shards-N`, each written aside and renamed. So a step that is done twice, or by a later process, does no harm.
"""

import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from skep.analysis.model import Report as ModelReport
from skep.base.errors import Damaged
from skep.base.globs import compile_globs
from skep.sources.git.documents import (
    CONTENT_BUDGET,
    Entry,
    Rules,
    changed,
    documents,
    ignored,
    read_ignore_file,
    stamp,
)
from skep.sources.git.process import environment
from skep.storage.code_index.model import MOST_TIPS, BookInfo, Delta, ShardInfo, Tip
from skep.storage.code_index.trigram.builder import TrigramBuilder

# What passes between a worker and the processes that build its indexes: frames of a length and a msgpack message.

_LENGTH = struct.Struct(">I")
LENGTH = _LENGTH.size


class Job(msgspec.Struct, frozen=True, tag=True):
    """Plan an index, and build it at once if it is small."""

    source: str
    number: int
    #: the mirror
    folder: str
    base: tuple[Tip, ...] | None
    #: of branches and tags besides the default branch
    branches: tuple[str, ...]
    rules: Rules
    #: where the plan and the shards go; made by the job
    out: str
    #: bytes of content one batch should have; a little more is built at once
    batch_bytes: int


class Batch(msgspec.Struct, frozen=True, tag=True):
    """Build one batch of what was planned in `out`."""

    out: str
    n: int


class Compare(msgspec.Struct, frozen=True, tag=True):
    """What should the index of a mirror hold at these tips?"""

    folder: str
    tips: tuple[Tip, ...]
    ignore: tuple[str, ...]


class Analyse(msgspec.Struct, frozen=True, tag=True):
    """Find out about the files of one batch of a plan. Without a batch: about all files at its tips, and fold them."""

    out: str
    #: the library of the worker: what is in it is known
    library: str
    n: int | None = None
    #: what is known is put into new books as well
    whole: bool = False


class Counted(msgspec.Struct, frozen=True, tag=True):
    done: int
    total: int


class Finished(msgspec.Struct, frozen=True, tag=True):
    #: None: there is nothing to index
    delta: Delta | None


class Planned(msgspec.Struct, frozen=True, tag=True):
    batches: int


class Indexed(msgspec.Struct, frozen=True, tag=True):
    """A batch is built."""

    documents: int
    bytes: int


class Compared(msgspec.Struct, frozen=True, tag=True):
    digest: str


class Analysed(msgspec.Struct, frozen=True, tag=True):
    #: files and bytes that were not known before
    files: int
    bytes: int
    #: for the aggregator
    books: tuple[BookInfo, ...]
    #: some blobs that it should know then
    sample: tuple[str, ...]
    report: ModelReport | None = None


class Broke(msgspec.Struct, frozen=True, tag=True):
    reason: str


Built = Finished | Planned | Indexed | Compared | Analysed
Answer = Counted | Built | Broke
Work = Job | Batch | Compare | Analyse
to_job = msgspec.msgpack.Decoder[Work](Work).decode
to_answer = msgspec.msgpack.Decoder[Answer](Answer).decode


def frame(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


def size_of(head: bytes) -> int:
    return int(_LENGTH.unpack(head)[0])


def read_frame(file: BinaryIO) -> bytes | None:
    """None at the end."""
    head = file.read(LENGTH)
    return file.read(size_of(head)) if len(head) == LENGTH else None


_MOST_BATCHES = 64
Report = Callable[[int, int], None]


class Plan(msgspec.Struct, frozen=True):
    job: Job
    tips: tuple[Tip, ...]
    base: tuple[Tip, ...] | None
    gone: tuple[bytes, ...]
    batches: int


def plan(job: Job, report: Report) -> Finished | Planned:
    """From `base` to where the mirror stands; from nothing where that cannot be built upon."""
    mirror, out = Path(job.folder), Path(job.out)
    if not mirror.exists():
        raise Damaged(f"the mirror {mirror.name} is gone", hint="it is made anew at the next look")
    tips = tips_of(mirror, job.branches)
    if not tips:
        return Finished(None)
    base = job.base if job.base and _continues(mirror, job.base, tips) else None
    files, gone = changed(mirror, base, tips, ignored(mirror, tips[0].commit, job.rules.ignore))
    batches = split(files, job.batch_bytes, job.rules.max_file)
    made = Plan(job, tips, base, tuple(gone), len(batches))
    out.mkdir(parents=True, exist_ok=True)
    for n, batch in enumerate(batches):
        _write(out / f"batch-{n}", batch)
    _write(out / "plan", made)
    if len(batches) > 1:
        return Planned(len(batches))
    build(Batch(job.out, 0), report)
    return Finished(fold(out))


def tips_of(mirror: Path, patterns: Sequence[str]) -> tuple[Tip, ...]:
    """The default branch, and the newest of the branches and tags that match, by name. Empty: there is no commit."""
    commit = _commit(mirror, "HEAD")
    if commit is None:
        return ()
    default = Tip(_git(mirror, "symbolic-ref", "--quiet", "--short", "HEAD"), commit)
    if not patterns:
        return (default,)
    wanted = compile_globs(patterns, "branches")
    # a tag with a message is an object of its own: `*` asks for what it names
    fields = "--format=%(refname:lstrip=2) %(objecttype) %(objectname) %(*objecttype) %(*objectname)"
    listed = _git(mirror, "for-each-ref", "--sort=-creatordate", fields, "refs/heads", "refs/tags")
    found: dict[str, str] = {}
    for name, kind, oid, *named in (line.split(" ") for line in listed.splitlines()):
        commit = oid if kind == "commit" else named[1] if named[0] == "commit" else ""
        if commit and name != default.name and wanted.fullmatch(name):
            found.setdefault(name, commit)
    newest = sorted(list(found.items())[: MOST_TIPS - 1])
    return (default, *(Tip(name, commit) for name, commit in newest))


def _continues(mirror: Path, base: Sequence[Tip], tips: Sequence[Tip]) -> bool:
    """The same branches, their commits known, and the same paths ignored."""
    if [tip.name for tip in base] != [tip.name for tip in tips]:
        return False
    if not all(_commit(mirror, tip.commit) for tip in base):
        return False
    return read_ignore_file(mirror, base[0].commit) == read_ignore_file(mirror, tips[0].commit)


def split(files: Sequence[Entry], batch_bytes: int, max_file: int) -> list[list[Entry]]:
    """Pure: files in their order, divided so that each batch has about as much content. At least one batch."""
    sizes = [entry.size if entry.size and entry.size <= max_file else 0 for entry in files]
    total = sum(sizes)
    count = max(1, min(_MOST_BATCHES, round(total / batch_bytes)))
    batches: list[list[Entry]] = [[] for _ in range(count)]
    seen = 0
    for entry, size in zip(files, sizes, strict=True):
        batches[min(count - 1, seen * count // max(1, total))].append(entry)
        seen += size
    return batches


def build(batch: Batch, report: Report) -> Indexed:
    out = Path(batch.out)
    made = read_plan(out)
    files = read_batch(out, batch.n)
    folder = out / f"built-{batch.n}"
    shutil.rmtree(folder, ignore_errors=True)  # of a try that was ended
    report(0, len(files))
    budget = CONTENT_BUDGET // made.batches
    found = documents(Path(made.job.folder), files, made.job.rules, budget=budget)
    shards = TrigramBuilder().build(made.job.number, found, folder, lambda done: report(done, len(files)))
    _write(out / f"shards-{batch.n}", shards)
    return Indexed(sum(shard.documents for shard in shards), sum(shard.bytes for shard in shards))


def fold(out: Path) -> Delta:
    """All batches are built: what they make together."""
    made = read_plan(out)
    shards: list[ShardInfo] = []
    for n in range(made.batches):
        shards += msgspec.msgpack.decode(_read(out / f"shards-{n}"), type=list[ShardInfo])
    job = made.job
    return Delta(job.source, job.number, made.tips, made.base, tuple(shards), made.gone, stamp(job.rules))


def read_plan(out: Path) -> Plan:
    return msgspec.msgpack.decode(_read(out / "plan"), type=Plan)


def read_batch(out: Path, n: int) -> list[Entry]:
    return msgspec.msgpack.decode(_read(out / f"batch-{n}"), type=list[Entry])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise Damaged(f"{path} is gone", hint="the index has to be planned anew") from None


def _write(path: Path, value: object) -> None:
    aside = path.with_name(path.name + ".new")
    aside.write_bytes(msgspec.msgpack.encode(value))
    aside.replace(path)


def _commit(folder: Path, name: str) -> str | None:
    return _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}") or None


def _git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *args], env=environment(), capture_output=True, check=False)
    return done.stdout.decode("utf-8", "backslashreplace").strip() if done.returncode == 0 else ""
