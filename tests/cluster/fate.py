"""What may happen to a fleet, one thing after the other; whatever is down comes back a little later."""

import logging
import random
import shutil
import signal
import time
from collections.abc import Callable

from tests.cluster.cluster import Cluster
from tests.cluster.fleet import Member, until
from tests.house.running import RunningSkep
from tests.support.forge import Fault, Repo
from tests.support.forge.repository import Files

log = logging.getLogger(__name__)
#: a clone takes so long at least, while somebody wants to kill it
_CLONE_SECONDS = 1.5


class Fate:
    def __init__(self, servers: Cluster, aggregator: RunningSkep, seed: int, workers: int = 4) -> None:
        self._servers = servers
        self._aggregator = aggregator
        self._random = random.Random(seed)
        self._workers = workers
        self._deeds: list[Callable[[], None]] = [
            *(self.commit, self.commit, self.branch, self.rewrite, self.upstream_is_away, self.rename),
            *(self.kill_worker, self.stop_worker, self.pause_worker, self.cut, self.join, self.drain, self.revoke),
            *(self.lose_mirrors, self.lose_disk, self.retire, self.kill_clone, self.remove_and_add),
            *(self.kill_coordinator, self.pause_coordinator, self.kill_aggregator),
        ]

    def act(self) -> None:
        deed = self._random.choice(self._deeds)
        log.info("%s", deed.__name__)
        deed()

    # upstream

    @property
    def _name(self) -> str:
        return self._random.choice(sorted(self._servers.repos))

    @property
    def _repo(self) -> Repo:
        return self._servers.repos[self._name]

    @property
    def _files(self) -> Files:
        return {"a.txt": f"{self._random.random()}".encode()}

    def commit(self) -> None:
        self._repo.commit(self._files)

    def branch(self) -> None:
        """One comes, or moves, or goes."""
        repo = self._repo
        if "refs/heads/side" in repo.refs() and self._random.random() < 0.5:
            repo.delete_branch("side")
        else:
            repo.commit(self._files, branch="side")

    def rewrite(self) -> None:
        self._repo.force_push(self._files)

    def upstream_is_away(self) -> None:
        name = self._name
        self._servers.forge.fault(name, Fault(status=503))
        self._servers.repos[name].commit(self._files)
        self._pause(2.0)
        self._servers.forge.fault(name, None)

    def rename(self) -> None:
        self._servers.rename(self._name)

    def remove_and_add(self) -> None:
        name = self._name
        self._servers.remove(name)
        self._pause(1.0)
        self._servers.add_source(name)

    # workers

    @property
    def _worker(self) -> Member:
        return self._random.choice(self._servers.workers)

    def kill_worker(self) -> None:
        self._kill(self._worker)

    def _kill(self, worker: Member) -> None:
        worker.kill()
        self.commit()
        worker.start()

    def stop_worker(self) -> None:
        worker = self._worker
        worker.stop()
        self.commit()
        worker.start()

    def pause_worker(self) -> None:
        """It stands still, and knows nothing of it."""
        worker = self._worker
        worker.process.send_signal(signal.SIGSTOP)
        self.commit()
        self._pause(4.0)
        worker.process.send_signal(signal.SIGCONT)

    def kill_clone(self) -> None:
        """Whoever clones a new source is killed meanwhile."""
        servers, name = self._servers, self._servers.create()
        servers.forge.fault(name, Fault(clone_delay=_CLONE_SECONDS))
        servers.add_source(name)
        until(lambda: servers.cloned(name) > 0, servers.server)
        servers.may_clone(name)
        self._kill(servers.holder(name))
        servers.forge.fault(name, None)

    def lose_mirrors(self) -> None:
        worker = self._worker
        until(self._servers.gathered, self._servers.server)
        worker.kill()
        shutil.rmtree(worker.data / "mirrors", ignore_errors=True)
        worker.start()

    def lose_disk(self) -> None:
        """Nothing is left of it: whoever starts on an empty disk is somebody else."""
        worker = self._worker
        until(self._servers.gathered, self._servers.server)
        worker.kill()
        self._servers.forget(worker)
        shutil.rmtree(worker.data)
        self._start_anew(worker)

    def _start_anew(self, worker: Member) -> None:
        worker.settings["token_file"] = self._servers.token()
        worker.start()
        worker.attached()

    def retire(self) -> None:
        """Emptied, stopped and forgotten, as an operator would."""
        if len(self._servers.workers) > 2:
            worker = self._worker
            self._servers.server.cli("worker", "drain", worker.data.name)
            until(lambda: self._servers.is_empty(worker), self._servers.server)
            worker.stop()
            self._servers.forget(worker)
            self._servers.workers.remove(worker)

    def drain(self) -> None:
        name = self._worker.data.name
        self._servers.server.cli("worker", "drain", name)
        self.commit()
        self._pause(2.0)
        self._servers.server.cli("worker", "resume", name)

    def revoke(self) -> None:
        worker = self._worker
        self._servers.revoke(worker)
        worker.says("revoked")
        worker.stop()
        self._start_anew(worker)

    def cut(self) -> None:
        lines = self._random.sample(self._servers.lines, 2)
        for line in lines:
            line.cut()
        self._pause(3.0)
        for line in lines:
            line.mend()

    def join(self) -> None:
        if len(self._servers.workers) < self._workers:
            self._servers.join(token_file=self._servers.token()).attached()

    # those who serve

    def kill_coordinator(self) -> None:
        """The other one goes on."""
        victim = self._random.choice(self._servers.coordinators)
        victim.kill()
        self.commit()
        self._pause(2.0)
        victim.start()

    def pause_coordinator(self) -> None:
        victim = self._random.choice(self._servers.coordinators)
        victim.process.send_signal(signal.SIGSTOP)
        self.commit()
        self._pause(4.0)
        victim.process.send_signal(signal.SIGCONT)

    def kill_aggregator(self) -> None:
        self._aggregator.kill()
        self.commit()
        self._aggregator.start()

    def _pause(self, most: float) -> None:
        """Things take time; nothing is expected to have happened after it."""
        time.sleep(self._random.random() * most)
