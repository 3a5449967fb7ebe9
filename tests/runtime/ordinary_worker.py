"""A worker of a few lines for another user: prints its isolation, and what one command writes."""

import asyncio
import sys
from pathlib import Path

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.runtime.runtime import Runtime
from skep.tasks.model import Command

CODE = 'cat "$1" 2>/dev/null; id -u; touch /usr/x 2>/dev/null || echo no'


def _write(body: bytes) -> None:
    sys.stdout.write(body.decode())


async def main(data: Path) -> None:
    data.mkdir()
    (data / "admin.token").write_text("secret")
    argv = ("/bin/sh", "-c", CODE, "sh", str(data / "admin.token"))
    async with Runtime(data / "runtime", Settings(data=str(data)), SystemClock()) as runtime:
        sys.stdout.write(f"{runtime.isolation}\n")
        await runtime.run(Command("t", 1, "c", argv), lambda _, body: _write(body))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
