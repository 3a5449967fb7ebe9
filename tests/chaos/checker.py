"""The checker: a pure function of the journal and the final state. It returns each broken promise as a violation.

A violation that is `pending` may disappear while the fleet recovers; the others never do.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tests.chaos.journal import (
    ChangeRead,
    Committed,
    ContextSubmitted,
    Entry,
    Handled,
    Published,
    Pushed,
    Searched,
    SourceAdded,
    TuplePut,
    TupleTaken,
    Unexpected,
    of,
)
from tests.chaos.observation import Change, ContextState, Effect, Observation, Refs, TaskState

MAIN = "refs/heads/main"
UNEXPECTED = "unexpected"
Values = Sequence[str | None]


class Violation(msgspec.Struct, frozen=True):
    kind: str
    text: str
    pending: bool = False


def check(entries: list[Entry], final: Observation) -> list[Violation]:
    return [
        *check_messages(of(Published, entries), final),
        *check_group(of(Handled, entries), of(Committed, entries), final),
        *check_changes(of(Pushed, entries), of(ChangeRead, entries), final),
        *check_mirrors(of(SourceAdded, entries), final),
        *check_search(of(Pushed, entries), of(Searched, entries), final),
        *check_tasks(of(ContextSubmitted, entries), final),
        *check_tuples(of(TuplePut, entries), of(TupleTaken, entries), final),
        *check_unexpected(of(Unexpected, entries)),
    ]


def check_unexpected(unexpected: Iterable[Unexpected]) -> Iterator[Violation]:
    """What clients and processes did without a fault that explains it."""
    for one in unexpected:
        yield Violation(UNEXPECTED, f"{one.at:.1f} s: {one.what}")


# topics


def check_messages(published: Iterable[Published], final: Observation) -> Iterator[Violation]:
    """Each acknowledged message is stored once, where the answer said; those of a key are in their order."""
    places = {(one.partition, one.offset): one for one in final.messages}
    for entry in published:
        stored = places.get((entry.partition, entry.offset))
        if stored is None or (stored.producer, stored.n) != (entry.producer, entry.n):
            yield Violation("message lost", f"{entry} is not stored; at its place is {stored}")
    for (producer, n), times in Counter((one.producer, one.n) for one in final.messages).items():
        if times > 1:
            yield Violation("message stored twice", f"number {n} of {producer} is stored {times} times")
    last: dict[tuple[str, str], int] = {}
    ends: dict[int, int] = defaultdict(int)
    for one in sorted(final.messages, key=lambda one: (one.partition, one.offset)):
        if one.offset != ends[one.partition]:
            yield Violation("gap in a partition", f"{one} follows offset {ends[one.partition] - 1}")
        ends[one.partition] = one.offset + 1
        if one.n < last.get((one.producer, one.key), -1):
            yield Violation("messages out of order", f"{one} is stored after a later one of its key")
        last[one.producer, one.key] = one.n


def check_group(handled: list[Handled], committed: list[Committed], final: Observation) -> Iterator[Violation]:
    """The group handled each message, no member skipped one, and no committed place was lost."""
    seen = {(one.partition, one.offset): (one.producer, one.n) for one in handled}
    for one in final.messages:
        got = seen.get((one.partition, one.offset))
        if got is None:
            yield Violation("message not handled", f"the group did not handle {one}", pending=True)
        elif got != (one.producer, one.n):
            yield Violation("another message handled", f"the group handled number {got[1]} of {got[0]}, not {one}")
    if final.lag:
        yield Violation("group behind", f"{final.lag} messages are not committed", pending=True)
    at: dict[tuple[str, int, int], int] = {}
    for entry in handled:
        lease = entry.member, entry.partition, entry.generation
        if lease in at and entry.offset != at[lease] + 1:
            yield Violation("message skipped", f"{entry} follows offset {at[lease]}")
        at[lease] = entry.offset
    yield from _check_places(committed)


def _check_places(committed: list[Committed]) -> Iterator[Violation]:
    """What was committed before a request began is in its answer."""
    for partition in {one.partition for one in committed}:
        own = [one for one in committed if one.partition == partition]
        answered = sorted(own, key=lambda one: one.at)
        highest, n = answered[0], 0
        for one in sorted(own, key=lambda one: one.since):
            while answered[n].at < one.since:
                highest = max(highest, answered[n], key=lambda known: known.offset)
                n += 1
            if n and one.offset < highest.offset:
                yield Violation("place went back", f"{one} comes after {highest}")


# sources


def check_changes(pushed: list[Pushed], read: list[ChangeRead], final: Observation) -> Iterator[Violation]:
    """`skep.changes` has each change once; those of a ref are an unbroken chain of what was pushed, to its end."""
    for id, times in Counter(one.id for one in final.changes).items():
        if times > 1:
            yield Violation("change published twice", f"{id} is on skep.changes {times} times")
    by_offset = {one.offset: one.id for one in final.changes}
    for entry in read:
        if by_offset.get(entry.offset) != entry.id:
            yield Violation("change lost", f"{entry} was read; at its offset is {by_offset.get(entry.offset)}")
    repositories = {source: name for name, source in final.sources.items()}
    for source, ids in final.listed.items():
        topic = sorted(one.id for one in final.changes if one.source == source)
        if sorted(ids) != topic:
            text = f"{source} lists {len(ids)} changes, skep.changes has {len(topic)}"
            yield Violation("changes differ", text, pending=True)
    chains: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for change in final.changes:
        chains[change.source, change.entry].append(change)
    for (source, ref), chain in chains.items():
        name = repositories.get(source, source)
        yield from _check_chain(f"{name} {ref}", chain)
        if ref != "HEAD":
            moves = [one.new for one in pushed if (one.repository, one.ref) == (name, ref)]
            yield from _check_story(f"{name} {ref}", [one.new for one in chain], moves)
    for name, source in final.sources.items():
        for ref, new in final.upstream.get(name, {}).items():
            told = [one.new for one in chains.get((source, ref), ())]
            if told[-1:] != [new]:
                text = f"{name} {ref} is at {new}, published is {told[-1:] or 'nothing'}"
                yield Violation("change missing", text, pending=True)
        for (of_source, ref), chain in chains.items():
            if of_source == source and ref != "HEAD" and chain[-1].new and ref not in final.upstream.get(name, {}):
                text = f"{name} {ref} was deleted, published is {chain[-1].new}"
                yield Violation("change missing", text, pending=True)


def _check_chain(what: str, chain: list[Change]) -> Iterator[Violation]:
    if [one.seq for one in chain] != list(range(1, len(chain) + 1)):
        yield Violation("numbers of changes", f"{what} has the numbers {[one.seq for one in chain]}")
    before: list[str | None] = [None, *(one.new for one in chain[:-1])]
    for one, old in zip(chain, before, strict=True):
        if one.old != old:
            yield Violation("broken chain", f"{what}: {one} follows a change to {old}")


def _check_story(what: str, told: Values, pushed: Values) -> Iterator[Violation]:
    """Some moves are never seen, because the next came first; the others are published in their order."""
    rest = iter(pushed)
    for new in told:
        if new not in rest:
            yield Violation("change that was never pushed", f"{what}: {new} was published, and not pushed then")
            return


def check_mirrors(added: list[SourceAdded], final: Observation) -> Iterator[Violation]:
    """Each acknowledged source has one holder, whose mirror equals the upstream; servers serve the same."""
    for one in added:
        if final.sources.get(one.repository) != one.source:
            yield Violation("source lost", f"{one} was acknowledged; the catalogue has {final.sources}")
    for name, source in final.sources.items():
        refs = final.upstream.get(name, {})
        holders = final.holders.get(source, [])
        if len(holders) != 1:
            yield Violation("not one holder", f"{name} ({source}) is polled by {holders}", pending=True)
        mirrors = final.mirrors.get(source, [])
        if len(mirrors) != 1:
            where = [mirror.worker for mirror in mirrors]
            yield Violation("not one mirror", f"{name} ({source}) is mirrored by {where}", pending=True)
        for mirror in mirrors:
            if mirror.refs != refs:
                text = f"{name} on {mirror.worker} ({source}): {_differences(mirror.refs, refs)}"
                yield Violation("mirror differs", text, pending=True)
            if mirror.damage:
                yield Violation("mirror damaged", f"{name} on {mirror.worker} ({source}): {mirror.damage}")
        for server, served in final.served.items():
            if served.get(source) != refs:
                text = f"{name} ({source}) of {server}: {_differences(served.get(source, {}), refs)}"
                yield Violation("served refs differ", text, pending=True)


def _differences(has: Refs, wanted: Refs) -> str:
    names = sorted(ref for ref in {*has, *wanted} if has.get(ref) != wanted.get(ref))
    return ", ".join(f"{ref} is {has.get(ref)}, not {wanted.get(ref)}" for ref in names)


def check_search(pushed: list[Pushed], searched: list[Searched], final: Observation) -> Iterator[Violation]:
    """Each server finds the word of the last commit to a default branch, and no word that was replaced."""
    owner = {one.word: final.sources.get(one.repository, "") for one in pushed if one.word}
    for answer in searched:
        if wrong := set(answer.sources) - {owner.get(answer.word, "")}:
            yield Violation("wrong hit", f"{answer}: {wrong} never had that word")
    last = {one.repository: one.word for one in pushed if one.ref == MAIN and one.word}
    for server, found in final.found.items():
        for name, word in last.items():
            source = final.sources.get(name, "")
            if source and found.get(word) != [source]:
                text = f"{server} finds {word} of {name} in {found.get(word)}, not in {source}"
                yield Violation("last commit not found", text, pending=True)
        for word, sources in found.items():
            if word not in last.values() and sources:
                text = f"{server} finds {word}, which is in no default branch, in {sources}"
                yield Violation("deleted word found", text, pending=True)


# tasks


def check_tasks(submitted: list[ContextSubmitted], final: Observation) -> Iterator[Violation]:
    """Each acknowledged context has finished; no attempt ran twice, no two attempts of a task ran at once."""
    for one in submitted:
        context = final.contexts.get(one.id)
        if context is None:
            yield Violation("context lost", f"{one} was acknowledged, and does not exist")
        elif one.once:
            yield from _check_once(context, final)
        else:
            yield from _check_context(context, final)
    for (task, attempt), times in Counter(
        (one.task, one.attempt) for one in final.effects if one.what == "begin"
    ).items():
        if times > 1:
            yield Violation("attempt ran twice", f"attempt {attempt} of {task} began {times} times")
    for effect in final.effects:
        if effect.what == "overlap":
            yield Violation("attempts overlap", f"attempt {effect.attempt} of {effect.task} began before another ended")


def _check_context(context: ContextState, final: Observation) -> Iterator[Violation]:
    if context.state != "FINISHED":
        states = {task.name: task.state for task in context.tasks if task.state != "FINISHED"}
        text = f"{context.name} ({context.id}) is {context.state}: {states}"
        yield Violation("context not finished", text, pending=context.state == "RUNNING")
        return
    for id in (context.id, *(task.id for task in context.tasks)):
        if final.ended.get(id) != ["FINISHED"]:
            text = f"skep.tasks reports {final.ended.get(id, [])} for {id} of {context.name}, which finished once"
            yield Violation("end not reported once", text, pending=id not in final.ended)
    effects = [one for one in final.effects if one.task.startswith(f"{context.name}.")]
    for task in context.tasks:
        yield from _check_task(task, f"{context.name}.{task.name}", effects)
    done = [n for n, one in enumerate(effects) if (one.what, one.task) == ("end", f"{context.name}.first")]
    begun = [n for n, one in enumerate(effects) if (one.what, one.task) == ("begin", f"{context.name}.second")]
    if begun and (not done or begun[0] < done[0]):
        yield Violation("need not kept", f"{context.name}.second began before {context.name}.first ended")


def _check_once(context: ContextState, final: Observation) -> Iterator[Violation]:
    """A task with `at_most_once` ends, and did not start twice. It may have failed, because its worker was lost."""
    if context.state == "RUNNING":
        yield Violation("context not finished", f"{context.name} ({context.id}) is RUNNING", pending=True)
    effects = [one.what for one in final.effects if one.task.startswith(f"{context.name}.")]
    if effects.count("begin") > 1:
        yield Violation(
            "started again", f"{context.name} may run at most once, and began {effects.count('begin')} times"
        )
    if context.state == "FINISHED" and "end" not in effects:
        yield Violation("effect missing", f"{context.name} finished, and did not reach its end")


def _check_task(task: TaskState, name: str, effects: list[Effect]) -> Iterator[Violation]:
    finished = [attempt for state, attempt in task.moves if state == "FINISHED"]
    newest = max((attempt for _, attempt in task.moves), default=0)
    if task.state != "FINISHED" or len(finished) != 1:
        yield Violation("not finished once", f"{name} ({task.id}) is {task.state} after {task.moves}")
        return
    if finished != [newest] or task.moves[-1] != ("FINISHED", newest):
        yield Violation("old attempt accepted", f"{name} ({task.id}) finished by attempt {finished} of {newest}")
    if ("end", name, finished[0]) not in {(one.what, one.task, one.attempt) for one in effects}:
        yield Violation("effect missing", f"{name} finished by attempt {finished[0]}, which did not reach its end")
    if name.endswith(".fails") and finished[0] < 2:
        yield Violation("failure lost", f"{name} finished by its first attempt, which fails")


# spaces


def check_tuples(put: list[TuplePut], taken: list[TupleTaken], final: Observation) -> Iterator[Violation]:
    """Each acknowledged tuple was taken, or is there; one that is done does not come again."""
    times: dict[int, list[TupleTaken]] = defaultdict(list)
    for one in taken:
        times[one.n].append(one)
    for entry in put:
        mine = times.get(entry.n, [])
        if not mine and entry.n not in final.tuples:
            # or somebody took it after the journal was read
            text = f"{entry} was acknowledged, nobody took it, and it is not in the space"
            yield Violation("tuple lost", text, pending=True)
        done = [one.ended for one in mine if one.ended is not None]
        if done and not entry.repeated and any(one.since > min(done) for one in mine):
            yield Violation("tuple came again", f"{entry} was done at {min(done)}, and was taken later: {mine}")
