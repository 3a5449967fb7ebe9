"""The processes that are asked: Skep itself, Skep's publish route without storing, and FastAPI doing the same."""

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

_SKEP = [str(Path(sys.executable).with_name("skep")), "up", "--listen", "127.0.0.1:0"]
_URL = re.compile(r"(http://127\.0\.0\.1:\d+)")

#: the same work as Skep's route: who asks, what is given, which partition, what to answer
_FAST = """
import hashlib, json, zlib
from typing import Annotated, Any
from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel, Field

app, known, counts = FastAPI(), {hashlib.sha256(b"TOKEN").hexdigest(): "admin"}, [0] * 4

class Message(BaseModel):
    body: Any
    key: str = Field("", max_length=1000)
    headers: dict[str, str] = {}
    partition: int | None = None

class Posted(BaseModel):
    partition: int
    offset: int

class Answer(BaseModel):
    posted: list[Posted]

async def caller(authorization: Annotated[str, Header()]) -> str:
    who = known.get(hashlib.sha256(authorization.removeprefix("Bearer ").encode()).hexdigest())
    if who is None:
        raise HTTPException(401)
    return who

@app.post("/api/v1/topics/{topic}/messages", status_code=201)
async def publish(topic: str, message: Message, who: Annotated[str, Depends(caller)]) -> Answer:
    body = json.dumps(message.body).encode()
    if len(body) > 1_000_000:
        raise HTTPException(413)
    partition = zlib.crc32(message.key.encode()) % 4 if message.key else 0
    counts[partition] += 1
    return Answer(posted=[Posted(partition=partition, offset=counts[partition])])
"""


class Server(msgspec.Struct):
    url: str
    token: str
    pid: int

    def post(self, path: str, body: object) -> None:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        wanted = urllib.request.Request(self.url + path, msgspec.json.encode(body), headers)
        urllib.request.urlopen(wanted, timeout=30).close()

    def cpu(self) -> float:
        """Seconds the process itself has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def skep(data: Path, **settings: str) -> Iterator[Server]:
    """As anybody would start it: FULL durability is how it comes."""
    variables = {f"SKEP_{name.upper()}": value for name, value in settings.items()}
    with _started([*_SKEP, "--data", str(data)], data.with_suffix(".log"), variables) as (url, pid):
        yield Server(url, (data / "admin.token").read_text().strip(), pid)


@contextmanager
def bare(data: Path) -> Iterator[Server]:
    command = [sys.executable, str(Path(__file__).with_name("bare.py")), str(data)]
    with _started(command, data.with_suffix(".log"), {}) as (url, pid):
        yield Server(url, (data / "admin.token").read_text().strip(), pid)


@contextmanager
def fastapi(folder: Path) -> Iterator[Server]:
    """In an environment of its own, thrown away afterwards; the newest releases of that day."""
    python = folder / "env/bin/python"
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    packages = ["fastapi", "uvicorn", "uvloop", "httptools"]
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    (folder / "fast.py").write_text(_FAST)
    options = ["--port", "0", "--no-access-log", "--app-dir", str(folder)]
    with _started([str(python), "-m", "uvicorn", "fast:app", *options], folder / "fast.log", {}) as (url, pid):
        yield Server(url, "TOKEN", pid)


@contextmanager
def _started(command: list[str], log: Path, variables: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **variables})
    try:
        until = time.monotonic() + 60
        while (found := _URL.search(log.read_text())) is None:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{command[0]} did not start: {log.read_text()}")
            time.sleep(0.05)
        yield found[1], process.pid
    finally:
        process.terminate()
        process.wait(30)
