"""The manifest of what is mirrored: as grokmirror would compute it, for whom it may be seen."""

import gzip
import hashlib
import json
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import Any

from tests.doors.test_git_door import git, sources
from tests.house.running import RunningSkep


def manifest(skep: RunningSkep, **headers: str) -> tuple[int, dict[str, Any], Message]:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"{skep.url}/git/manifest.js.gz", headers=fields)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(gzip.decompress(answer.read())), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, {}, error.headers


def test_names_what_the_caller_may_see(full_skep: RunningSkep, tmp_path: Path) -> None:
    by = {seen: f"/{row['name']}.git" for seen, row in sources(full_skep).items()}
    status, said, headers = manifest(full_skep)
    assert status == 200 and by["public"] in said and by["private"] not in said
    _, more, _ = manifest(full_skep, Authorization=f"Bearer {full_skep.token}")
    assert {by["public"], by["private"]} <= set(more)
    copy = tmp_path / "copy.git"
    git("clone", "--mirror", f"{full_skep.url}/git{by['public']}", copy)
    shown = hashlib.sha1(git("-C", copy, "show-ref").stdout.encode()).hexdigest()
    assert said[by["public"]]["fingerprint"] == shown
    assert said[by["public"]]["head"] == "ref: " + (copy / "HEAD").read_text().removeprefix("ref: ").strip()
    assert manifest(full_skep, If_None_Match=headers["ETag"])[0] == 304
    assert manifest(full_skep, If_Modified_Since=headers["Last-Modified"])[0] == 304
    assert manifest(full_skep, If_Modified_Since="nonsense")[0] == 200
    assert manifest(full_skep, If_None_Match='"other"', If_Modified_Since=headers["Last-Modified"])[0] == 200
