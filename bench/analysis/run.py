"""How fast files are classified, parsed and measured, in MB per CPU-second; ctags beside it where it is installed.

python -m bench.analysis.run FOLDER…     any folders of code; each language is measured by itself
"""

import resource
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from tree_sitter import Parser

from skep.languages.blob_facts import MOST_BYTES, analyse, grammar_of, read_syntax
from skep.languages.grammars import load
from skep.languages.languages import classify

#: of one language are measured
_BYTES = 8_000_000

File = tuple[Path, bytes]


def main(folders: Sequence[str]) -> None:
    files: dict[str, list[File]] = defaultdict(list)
    for folder in folders:
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_BYTES:
                content = path.read_bytes()
                grammar = grammar_of(classify(bytes(path), content)[0], bytes(path))
                if grammar and sum(len(one) for _, one in files[grammar]) < _BYTES:
                    files[grammar].append((path, content))
    print("| language | MB | classify | parse | names, measures | all | ctags |\n|---|---|---|---|---|---|---|")
    for grammar, some in sorted(files.items()):
        print(_row(grammar, some))


def _row(grammar: str, files: list[File]) -> str:
    size = sum(len(content) for _, content in files) / 1e6
    parser = Parser(load(grammar)[0])
    rates = [
        size / _seconds(lambda: [classify(bytes(path), content) for path, content in files]),
        size / _seconds(lambda: [parser.parse(content) for _, content in files]),
        size / _seconds(lambda: [read_syntax(grammar, content) for _, content in files]),
        size / _seconds(lambda: [analyse(bytes(path), content) for path, content in files]),
    ]
    return f"| {grammar} | {size:.1f} | " + " | ".join(f"{rate:.1f}" for rate in rates) + f" | {_ctags(files, size)} |"


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return max(time.process_time() - began, 1e-9)


def _ctags(files: list[File], size: float) -> str:
    if shutil.which("ctags") is None:
        return "not installed"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    listed = "\n".join(str(path) for path, _ in files).encode()
    subprocess.run(["ctags", "-f", "-", "--sort=no", "-L", "-"], input=listed, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return f"{size / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime):.1f}"


if __name__ == "__main__":
    main(sys.argv[1:])
