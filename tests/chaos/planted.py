"""Bugs for the harness to find: each is a small change of the product that breaks one of its promises.

`make chaos-selftest` copies the tree, plants one of them at a time, runs the harness, and prints which it found.
"""

from pathlib import Path

import msgspec


class Edit(msgspec.Struct, frozen=True):
    path: str
    old: str
    new: str


class Bug(msgspec.Struct, frozen=True):
    name: str
    edits: tuple[Edit, ...]


class NotPlanted(Exception):
    """The text that the bug replaces is not in the tree, or more than once."""


def plant(bug: Bug, tree: Path) -> None:
    for edit in bug.edits:
        file = tree / "src" / "skep" / edit.path
        text = file.read_text()
        if text.count(edit.old) != 1:
            raise NotPlanted(f"{bug.name}: {edit.path} has {text.count(edit.old)} times {edit.old!r}")
        file.write_text(text.replace(edit.old, edit.new))


BUGS: tuple[Bug, ...] = (
    Bug(
        "commit-before-disk",  # an answer is sent before PostgreSQL has written the transaction
        (Edit("storage/postgres.py", 'commit = off" if lazy else "BEGIN")', 'commit = off")'),),
    ),
    Bug(
        "no-deduplication",  # a batch that a producer repeats is stored again
        (Edit("topics/service.py", 'id = f"{producer}/{sequence + n}" if producer else ""', 'id = ""'),),
    ),
    Bug(
        "outbox-deleted-early",  # a worker forgets a report when it is sent, not when it is acknowledged
        (
            Edit(
                "rpc/client.py",
                "            await self._wire.write(batch)\n",
                "            await self._outpost.settle([outcome.n for outcome in batch], [])\n"
                "            await self._wire.write(batch)\n",
            ),
        ),
    ),
    Bug(
        "no-epoch-fence",  # a report of a member that no longer holds the source is accepted
        (
            Edit("sources/report_handler.py", 'if rows[0]["epoch"] != report.epoch:', "if False:"),
            Edit(
                "processes/session_handler.py",
                "own = await held_by(self._db, member, by_source)",
                "own = set(by_source) or await held_by(self._db, member, by_source)",
            ),
        ),
    ),
    Bug(
        "lease-ignored-by-worker",  # a worker that cannot renew its lease goes on with its tasks
        (
            Edit("tasks/worker.py", "expired = () if self._has_lease() else", "expired = () if True else"),
            Edit("tasks/worker.py", "            if self._lease:\n", "            if self._lease and False:\n"),
        ),
    ),
    Bug(
        "lease-ignored-by-coordinator",  # tasks of a silent worker are given away before its lease is over
        (
            Edit("tasks/dispatcher.py", "since=now - self._lease,", "since=now - self._lease / 3,"),
            Edit("tasks/dispatcher.py", "silent=now - self._lease,", "silent=now - self._lease / 3,"),
        ),
    ),
    Bug(
        "place-goes-back",  # a late commit of a member that is out moves the group back
        (
            Edit(
                "topics/groups.py",
                "next_offset = CASE WHEN next_offset > :offset THEN next_offset ELSE :offset END, ",
                "next_offset = :offset, ",
            ),
            Edit(
                "topics/groups.py",
                '"AND member = :member AND generation = :generation RETURNING partition"',
                '"AND (member = :member OR generation >= :generation) RETURNING partition"',
            ),
        ),
    ),
    Bug(
        "changes-published-again",  # a repeated report publishes its changes again
        (
            Edit(
                "sources/report_handler.py",
                "at=at):\n                return Accepted()",
                "at=at):\n"
                '                rows = await tx.rows("SELECT * FROM change WHERE batch = :b", b=batch)\n'
                '                again = [Draft(msgspec.json.encode(row), "", report.source) for row in rows]\n'
                "                await self._topics.tell(tx, CHANGES, again, at)\n"
                "                return Accepted()",
            ),
        ),
    ),
    Bug(
        "index-request-lost",  # the place of the index reader is stored before the requests that it stands for
        (
            Edit(
                "indexing/updates.py",
                "        said = await self._sources.settings_with_labels(list(moved))\n",
                "        said = await self._sources.settings_with_labels(list(moved))\n"
                "        end = messages[-1].offset + 1\n"
                "        await self._db.write(lambda tx: self._topics.commit(tx, READER, CHANGES, end))\n"
                "        await asyncio.sleep(0.5)\n",
            ),
            Edit("indexing/updates.py", "in set(await unindexed(self._db)) - asked_before:", "in asked_before:"),
        ),
    ),
    Bug(
        "release-forgotten",  # a worker that no longer holds a source goes on polling it
        (
            Edit(
                "sources/polling/store.py",
                'await tx.rows("UPDATE held SET released = 1 WHERE source = :source", source=source)',
                "pass",
            ),
            Edit("processes/worker.py", "await self.poller.drop(source)", "pass"),
        ),
    ),
    Bug(
        "old-attempt-accepted",  # a report of an earlier attempt, on whichever worker, ends the present one
        (
            Edit("tasks/dispatcher.py", "task is None or task.attempt != report.attempt or", "task is None or"),
            Edit("tasks/dispatcher.py", 'f"ON member.id = task.worker WHERE', 'f"ON member.id = :member WHERE'),
        ),
    ),
    Bug(
        "once-started-again",  # a task that may run at most once is started again after a lost worker
        (
            Edit("tasks/dispatcher.py", "    if task.at_most_once:\n", "    if False:\n"),
            Edit("tasks/transitions.py", "return 0 if task.at_most_once else LOST", "return LOST"),
        ),
    ),
    Bug(
        "restart-keeps-tasks",  # what a killed worker ran is never given to another
        (
            Edit(
                "tasks/dispatcher.py",
                "if (task.id, task.attempt) not in kept]",
                "if (task.id, task.attempt) in kept]",
            ),
            Edit("tasks/dispatcher.py", "since=now - self._lease,", "since=now - 3_600,"),
        ),
    ),
    Bug(
        "orphans-go-on",  # the commands of a killed worker continue
        (
            Edit("runtime/supervisor.py", "    keeper.serve()\n    keeper.end_everything()\n", "    keeper.serve()\n"),
            # an isolated command would otherwise still end with its supervisor
            Edit("runtime/sandbox.py", "    kernel.die_with_parent()\n", ""),
        ),
    ),
    Bug(
        "tuple-lease-endless",  # what a taker that died had taken is never there again
        (Edit("spaces/batch.py", "AND lease_until <= :now", "AND lease_until <= :now - 86400"),),
    ),
    Bug(
        "gathering-gives-up",  # a server that could not fetch a copy does not try again
        (
            Edit(
                "mirrors/sync.py",
                'pause = min(_LONGEST, _GATHERING_AGAIN * 2 ** min(row["failures"], 20))',
                "pause = 86_400.0",
            ),
        ),
    ),
)
