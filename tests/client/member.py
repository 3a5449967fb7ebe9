"""A member of a group in a process of its own, to be killed: writes `partition offset` for each message it handled."""

import subprocess
import sys
import threading

from skep.client import Consumer


class Member:
    def __init__(self, *args: str) -> None:
        command = [sys.executable, "-m", "tests.client.member", *args]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        #: what it has written so far
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)

    def close(self) -> None:
        """Killed; what it wrote until then is heard."""
        with self._process:
            self._process.kill()
            self._thread.join()


def main(url: str, token: str, topic: str, group: str) -> None:
    with Consumer(topic, url, token=token, group=group, heartbeat=0.2) as consumer:
        for message in consumer:
            sys.stdout.write(f"{message.partition} {message.offset}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
