"""What Skep costs while nothing happens: memory of all its processes, and CPU, with this checkout as its source."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

SKEP = str(Path(sys.executable).with_name("skep"))
SETTLE, WATCH = 20.0, 20.0


def processes(root: int) -> list[int]:
    found = [root]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def proportional(pid: int) -> int:
    """Bytes of memory, pages shared with other processes counted in part."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def main() -> None:
    checkout = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            SKEP,
            "up",
            "--data",
            folder,
            "--listen",
            "127.0.0.1:0",
            "--log-level",
            "error",
            "--add",
            str(checkout),
        ]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            time.sleep(SETTLE)
            pids = processes(server.pid)
            before = sum(map(ticks, pids))
            time.sleep(WATCH)
            used = sum(map(ticks, pids)) - before
            print("| idle, after indexing this checkout | |")
            print("|---|---|")
            print(f"| processes | {len(pids)} |")
            print(f"| resident memory, all processes | {sum(map(resident, pids)) / 1e6:.0f} MB |")
            print(f"| proportional memory, all processes | {sum(map(proportional, pids)) / 1e6:.0f} MB |")
            print(f"| CPU | {used / WATCH:.2f} % of one core |")
        finally:
            server.terminate()
            server.wait(30)


if __name__ == "__main__":
    main()
