"""The upstream of the no-change benchmark: N repositories behind a real `git http-backend`, and files beside them.

    PYTHONPATH=. python bench/git/upstream.py FOLDER COUNT

Prints the base URLs of both and then serves until its standard input ends.
"""

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.support.forge import Forge


class Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    with Forge(folder) as forge:
        for n in range(count):
            repo = forge.create(f"org/r{n}", {"README.md": b"repository %d\n" % n})
            repo.git("pack-refs", "--all")
        files = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder)))
        Thread(target=files.serve_forever, daemon=True).start()
        print(forge.url(""), f"http://127.0.0.1:{files.server_address[1]}/", flush=True)
        sys.stdin.read()
        files.shutdown()
        files.server_close()


if __name__ == "__main__":
    main()
