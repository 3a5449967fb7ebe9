"""What the scene does, as commands: each with the caller who gives it. What they print and how they end is recorded."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.packages.making import MANIFEST, RUN

from . import world
from .scene import FILES, Ran, Scene

RULE = """
name = "check"
source = "**"
refs = ["main"]
[context]
name = "check it"
tasks = [{ name = "one", argv = ["true"] }]
"""
CONTEXT = """
name = "two steps"
description = "first, then second"
tasks = [
  { name = "first", argv = ["echo", "hello"] },
  { name = "second", argv = ["sh", "-c", "exit 3"], needs = [{ task = "first" }] },
]
[properties]
colour = "green"
"""
EVALUATING = "import skep.task; skep.task.evaluation('golden.txt', b'golden', 'text/plain')"
RESULT = '{"metric": "time", "value": 1.5, "unit": "s", "group": "parse"}\n'


class Step(NamedTuple):
    #: words divided by blanks; {name} is what an earlier command printed
    command: str
    who: str = "admin"
    stdin: str = ""
    #: the first `id` in the JSON that it prints is kept under this name; that of a task under NAME_task
    keeps: str = ""
    #: what happens in the world before it
    before: str = ""


SCRIPT: tuple[Step, ...] = (
    # sources
    Step("source add {garden} --wait --label fast --json", keeps="source"),
    Step("source add {garden}"),
    Step("source add {shed} --private --wait --json", keeps="shed_id"),
    Step("source add {broken} --wait"),
    Step("source add nonsense"),
    Step("source add {garden}/other", who="reader"),
    Step("source add {garden}/other", who="anonymous"),
    Step("source list"),
    Step("source list --json"),
    Step("source list --state failing"),
    Step("source list", who="anonymous"),
    Step("source show {source}"),
    Step("source show {source} --json"),
    Step("source show none"),
    Step("source show {shed_id}", who="reader"),
    Step("source update {source} --label green --set priority=5"),
    Step("source update {source} --set wrong=5"),
    Step("searches save honey honey --first"),
    Step("searches save honey honey"),
    Step("searches save bad ("),
    Step("searches save other zzzz"),
    Step("searches remove other"),
    Step("searches remove none"),
    Step("searches list"),
    Step("searches list --json"),
    Step("source fetch {source} --wait", before="grow"),
    Step("source fetch {source} --wait", before="shrink"),
    Step("source fetch {broken} --wait"),
    Step("source fetch {broken} --wait", before="mend"),
    Step("fetch {garden}"),
    Step("source add --file -", stdin="{garden}\n{spare}\n"),
    Step("source add {spare} --json", keeps="spare_id"),
    Step("source remove {spare_id} --yes"),
    Step("source remove {spare_id} --yes"),
    Step("source reindex {source}"),
    Step("source accept {source}"),
    Step("report {source}"),
    Step("report none"),
    # search
    Step("search honey"),
    Step("search honey --json"),
    Step("search honey --files"),
    Step("search honey --count"),
    Step("search honey --explain"),
    Step("search zzzz"),
    Step("search ("),
    Step("search --complete lang:p"),
    Step("search type:report garden"),
    Step("search type:commit commit"),
    Step("search honey", who="anonymous"),
    # lists
    Step("list add {lists} --json", keeps="list"),
    Step("list add nonsense"),
    Step("list add manifest:{garden}/none.js --json", keeps="manifest"),
    Step("list list", before="listed"),
    Step("list show {list}"),
    Step("list entries {list}"),
    Step("list read {list}"),
    Step("list confirm {list} --yes"),
    Step("list show none"),
    Step("list remove {manifest} --yes"),
    # tokens, credentials, audit
    Step("token create person --scope read --json", keeps="token"),
    Step("token create person --scope nonsense"),
    Step("token create person", who="writer"),
    Step("token list"),
    Step("token revoke {token}"),
    Step("token revoke none"),
    Step("credential set forge --host example.org", stdin="secret\n"),
    Step("credential set hook --host example.org --hook", stdin="secret\n"),
    Step("credential list"),
    Step("credential remove hook"),
    Step("credential remove none"),
    Step("audit --limit 2"),
    Step("audit", who="reader"),
    # topics
    Step("topic create news --partitions 2 --retain 30d"),
    Step("topic create news"),
    Step("topic create skep.mine"),
    Step("topic create bad/name"),
    Step("topic create queued"),
    Step("topic publish news hello --key anna"),
    Step("topic publish news - --partition 0", stdin='{"pots": 3}\nplain\n'),
    Step("topic publish skep.changes hello"),
    Step("topic publish none hello"),
    Step("topic publish news hello", who="reader"),
    Step("topic read news --partition 0"),
    Step("topic read news --partition 0 --json"),
    Step("topic read news --partition 9"),
    Step("topic read skep.changes", who="reader"),
    Step("topic list"),
    Step("topic show news"),
    Step("topic lag news", before="group"),
    Step("topic lag news none"),
    Step("topic trim news --before 1 --partition 0"),
    # spaces
    Step("space put jobs job 1 true --json"),
    Step("space put jobs job 2 1.5"),
    Step("space query jobs job :int :any"),
    Step("space get jobs job 1 :bool"),
    Step("space get jobs job 99 :bool"),
    Step("space query jobs :wrong"),
    Step("space list"),
    Step("space put jobs job", who="reader"),
    Step("space drop jobs --yes"),
    Step("space drop none --yes"),
    # tasks
    Step("task run --name hello --follow -- echo hello"),
    Step("task run --name bad --follow -- sh -c exit\\ 4"),
    Step("task run --name hello --json -- echo hello", keeps="context"),
    Step("context wait {context}"),
    Step("task run --name evaluate --follow -- {python} -c {evaluating}"),
    Step("task run --selector ( -- true"),
    Step("task run -- true", who="reader"),
    Step("context submit - --wait", stdin=CONTEXT),
    Step("context submit -", stdin="name = 5"),
    Step("context submit - --json", stdin=CONTEXT, keeps="failed"),
    Step("context wait {failed} --timeout 60s"),
    Step("context list"),
    Step("context list --json"),
    Step("context show {context}"),
    Step("context show none"),
    Step("context retry {failed} --wait"),
    Step('task run --json --selector labels\\ has\\ "none" -- true', keeps="stuck"),
    Step("context cancel {stuck} --reason enough"),
    Step("context wait {stuck} --timeout 60s"),
    Step("context remove {stuck}"),
    Step('task run --json --name held --selector labels\\ has\\ "none" -- true', keeps="held"),
    Step("task cancel {held_task}"),
    Step("task list --limit 3", before="task"),
    Step("task list --json"),
    Step("task show {task}"),
    Step("task output {task}"),
    Step("task output none"),
    Step("task cancel {task}"),
    # packages and results
    Step("package build {package} --output {package}.tar.gz"),
    Step("package push {package}.tar.gz"),
    Step("package push {package}"),
    Step("package list"),
    Step("package show org.example/bench/1.0"),
    Step("package show none/none/1"),
    Step("package download org.example/bench/1.0 {package}.out"),
    Step("package run org.example/bench/1.0 once --wait"),
    Step("package remove org.example/bench/1.0"),
    Step("result record {task} -", stdin=RESULT),
    Step("result record {task} -", stdin="{"),
    Step("result list"),
    Step("result list --json", keeps="result"),
    Step("result list nonsense"),
    Step("result show {result}"),
    Step("result series"),
    Step("result plot"),
    Step("result aggregate --by group"),
    Step("result export --format csv"),
    # workers and the rest of the fleet
    Step("worker list"),
    Step("worker list --json", keeps="worker"),
    Step("worker show {worker}"),
    Step("worker show none"),
    Step('worker select os\\ ==\\ "linux"'),
    Step("worker select os\\ =="),
    Step("worker token --name far --json", keeps="member_token"),
    Step("worker tokens"),
    Step("worker revoke {member_token}"),
    Step("worker drain {worker}"),
    Step("worker resume {worker}"),
    Step("worker forget {worker}"),
    Step("worker drain {worker}", who="writer"),
    Step("status", before="busy"),
    Step("status --json"),
    Step("status", who="anonymous"),
    Step("config"),
    Step("config --json"),
    Step("log --lines 1 --level error"),
    # rules and benchmarks
    Step("rule add -", stdin=RULE),
    Step("rule add -", stdin=RULE),
    Step("rule add -", stdin="name = 5"),
    Step("rule add -", stdin=RULE.replace("check", "other")),
    Step("rule remove other"),
    Step("rule list"),
    Step("rule show check"),
    Step("rule fire check --source {source}"),
    Step("rule disable check"),
    Step("rule enable check"),
    Step("rule disable check"),
    Step("rule show none"),
    Step("benchmark add - --json", stdin='name = "speed"\nsource = "{source}"\ncommand = ["true"]\nbisect = false\n'),
    Step("benchmark pause speed"),
    Step("benchmark add -", stdin='name = "other"\nsource = "{source}"\ncommand = ["true"]\n'),
    Step("benchmark pause other"),
    Step("benchmark remove other"),
    Step("benchmark list"),
    Step("benchmark show speed", before="step"),
    Step("benchmark show none"),
    Step("benchmark run speed main"),
    Step("benchmark pause speed"),
    Step("benchmark bisect speed wrong"),
    Step("benchmark remove none"),
    # DataONE
    Step("dataone nodes", before="objects"),
    Step("dataone node urn:node:Golden"),
    Step("dataone node urn:node:None"),
    Step("dataone explain golden-1"),
    Step("dataone explain none"),
    Step("dataone index"),
    Step("dataone index --bulk"),
    Step("dataone index --no-bulk"),
    Step("dataone index --audit"),
    Step("dataone approve urn:node:Golden"),
    Step("dataone set urn:node:Golden --rate 5"),
    Step("dataone set urn:node:Golden --pause"),
    Step("dataone set urn:node:Golden --resume"),
    Step("dataone reconcile urn:node:Golden"),
    Step("dataone replay urn:node:Golden", before="node"),
    # usage
    Step(""),
    Step("nonsense"),
    Step("source"),
    Step("source nonsense"),
    Step("source list --nonsense"),
    Step("topic read news --limit x"),
    Step("--version"),
    Step("simulate --sources 3 --days 1"),
    Step("completion nonsense"),
    Step("autoscale --once --most 0 true"),
    Step("status", who="away"),
    Step("search honey", who="away"),
)


async def play(scene: Scene) -> list[tuple[Step, Ran]]:
    """The whole script."""
    scene.names |= _world(scene)
    found = []
    for step in SCRIPT:
        if step.before:
            await getattr(world, step.before)(scene)
        found.append((step, await run(scene, step)))
    return found


async def run(scene: Scene, step: Step) -> Ran:
    tokens = {"admin": scene.admin, "reader": scene.reader, "writer": scene.writer}
    words = [one.replace("\0", " ") for one in step.command.replace("\\ ", "\0").split()]
    args = [_filled(one, scene.names) for one in words]
    url = "http://127.0.0.1:9" if step.who == "away" else ""
    ran = await scene.cli(*args, token=tokens.get(step.who, ""), stdin=_filled(step.stdin, scene.names), url=url)
    if step.keeps:
        assert ran.code == 0, (step, ran)
        found = json.loads(ran.out.splitlines()[0])
        scene.names[step.keeps] = next(_ids(found))
        if isinstance(found.get("task"), str):
            scene.names[f"{step.keeps}_task"] = found["task"]
    return ran


def _ids(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("id"), str):
            yield value["id"]
        for one in value.values():
            yield from _ids(one)


def _filled(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = text.replace("{" + name + "}", value)
    return text


def _world(scene: Scene) -> dict[str, str]:
    """The upstreams, and a folder with a package."""
    forge = scene.forge
    scene.garden = forge.create("hive/garden", FILES)
    forge.create("hive/spare", {"a.txt": b"wax\n"})
    forge.create("hive/shed", {"secret.txt": b"honeypot plans\n"})
    forge.create("hive/lists", {"all.yaml": f"- {forge.url('hive/garden')}\n- nonsense\n".encode()})
    package = Path(scene.folder) / "package"
    package.mkdir()
    (package / "skep-package.toml").write_text(MANIFEST.format(version="1.0"))
    (package / "run.sh").write_text(RUN)
    (package / "own.sh").write_text("#!/bin/sh\necho own\n")
    (package / "own.sh").chmod(0o755)
    names = {name: forge.url(f"hive/{name}") for name in ("garden", "shed", "broken", "lists", "spare")}
    return names | {"package": str(package), "python": sys.executable, "evaluating": EVALUATING}
