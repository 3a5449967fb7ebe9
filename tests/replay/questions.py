"""What people and programs ask a Skep, as requests: lists, pages, searches, git, DataONE, and mistakes."""

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

if TYPE_CHECKING:
    from tests.replay.corpus import Corpus

HTML = {"accept": "text/html"}
NODE_PATHS = ("node", "node/urn:node:OPEN", "node/x", "monitor/ping", "formats/text/csv", "zzz", "")


def node_calls(c: "Corpus") -> None:
    """What nodes and clients of DataONE ask and tell."""
    pid, prefix = c.some("pid"), c.dice.choice(("/cn/v2", "/cn/v2", "/cn/v1"))
    for word in c.dice.sample(("object", "meta", "checksum", "resolve", "isAuthorized", "replicaAuthorizations"), 3):
        c.ask(c.dice.choice(("GET", "GET", "HEAD")), f"{prefix}/{word}/{pid}", c.role())
    c.ask(
        "GET",
        f"{prefix}/{c.dice.choice(NODE_PATHS)}",
        c.role(),
    )
    listing = {
        "start": c.dice.choice(("0", "1", "x")),
        "count": c.dice.choice(("0", "2", "100")),
        "formatId": c.dice.choice(("", "text/csv")),
    }
    c.ask("GET", f"{prefix}/object?{urlencode({k: v for k, v in listing.items() if v})}", c.role())
    c.ask("GET", f"{prefix}/changed", c.role())
    c.ask(
        "GET",
        f"/mn/v2/{c.dice.choice(('node', 'object', f'object/{pid}', f'meta/{pid}', 'monitor/ping', 'x'))}",
        c.role(),
    )
    c.ask("POST", f"{prefix}/reserve", c.role(), parts={"pid": f"reserved.{c.number()}"})
    c.ask("GET", f"/record?id={pid}", c.role(), headers=HTML)
    c.api("GET", f"/dataone/explain?pid={pid}", c.role())


def solr(c: "Corpus") -> None:
    words = (
        "*:*",
        "glacier",
        "title:Open*",
        "id:open.meta.1",
        'keywords:"ice core"',
        "glacier OR moraine",
        "-formatType:DATA",
        "title:[A TO Z]",
        "((",
        "beginDate:[1990-01-01T00:00:00Z TO *]",
    )
    params = {"q": c.dice.choice(words), "wt": c.dice.choice(("json", "json", "xml", "csv", "odd"))}
    more: list[dict[str, str]] = [
        {},
        {"rows": "2", "start": "1"},
        {"fl": "id,title"},
        {"sort": "title asc"},
        {"facet": "true", "facet.field": "formatId"},
        {"fq": "formatType:METADATA"},
    ]
    c.ask("GET", f"/cn/v2/query/solr/?{urlencode(params | c.dice.choice(more))}", c.role())
    c.ask("GET", f"/cn/v2/search/solr/?{urlencode({'q': params['q']})}", c.role())
    c.ask("GET", f"/cn/v2/query{c.dice.choice(('', '/solr', '/zzz'))}", c.role())


QUERIES = (
    *(
        "honey",
        "openhoney",
        "hiddenhoney",
        '"second line"',
        "/hon[ey]+/",
        "honey -docs",
        "honey or beta",
        "(honey or beta) file:docs",
    ),
    *(
        "repo:alpha honey",
        "r:omega honey",
        "file:\\.py$",
        "f:README",
        "lang:python",
        "l:c",
        "sym:open_find",
        "s:beta",
        "branch:side honey",
    ),
    *(
        "b:v1 honey",
        "content:honey",
        "c:repo:x",
        "case:yes Honey",
        "case:no HONEY",
        "type:file honey",
        "t:repo alpha",
        "type:path docs",
    ),
    *(
        "type:commit change",
        "type:commit author:forge docs",
        "type:commit after:2000-01-01 before:2002-01-01",
        "commit:v1 honey",
    ),
    *(
        "type:report alpha lang:python",
        "type:report beta lines:[1 TO 100]",
        "type:record open",
        "type:record title:open",
        "count:1 honey",
    ),
    *(
        "count:all honey",
        "nosuchword",
        "repo:",
        "(",
        '"open',
        "lang:nonsense",
        "/(/",
        "type:king",
        "after:never type:commit",
        "",
    ),
)


def search(c: "Corpus") -> None:
    for _ in range(3):
        params: dict[str, Any] = {"q": c.dice.choice(QUERIES)}
        params |= c.dice.choice(
            ({}, {"lines": 1}, {"context": 2}, {"facets": "true"}, {"explain": "true"}, {"lines": 0}, {"page": "bad"})
        )
        media = c.dice.choice((None, None, {"accept": "application/x-ndjson"}, {"accept": "text/event-stream"}))
        c.api("GET", f"/search?{urlencode(params)}", c.role(), headers=media)
    c.ask("GET", f"/?{urlencode({'q': c.dice.choice(QUERIES)})}", c.role(), headers=HTML)
    c.api(
        "GET",
        f"/search/complete?{urlencode({'q': c.dice.choice(('re', 'repo:a', 'lang:p', 'file:d', 'type:', 'x'))})}",
        c.role(),
    )


def pages_of_search(c: "Corpus") -> None:
    """From page to page, to the end."""
    role = c.dice.choice(("admin", "read", "private"))
    path, page = "/api/v1/search?q=honey&lines=1", ""
    for _ in range(3):
        name, keep = c.keeps("page", "next_page")
        c.ask("GET", path + page, role, keep=keep)
        page = f"&page={name}"
    path, page = (
        c.dice.choice(
            ("/api/v1/sources?limit=2", "/api/v1/topics?limit=2", "/api/v1/tasks?limit=2", "/api/v1/contexts?limit=1")
        ),
        "",
    )
    for _ in range(2):
        name, keep = c.keeps("page", "next_page")
        c.ask("GET", path + page, role, keep=keep)
        page = f"&page={name}"


def reads(c: "Corpus") -> None:
    source, commit = c.some("source"), c.some("commit")
    of_source = (
        "",
        "/changes",
        "/changes?limit=zzz",
        "/tree",
        "/tree?path=docs",
        "/tree?path=zzz",
        "/tree?rev=v1",
        "/tree?rev=zzz",
    )
    files = ("README.md", "docs/open.txt", "docs/hidden.txt", "zzz", "../x")
    api = (
        *(f"/sources/{source}{path}" for path in of_source),
        *(f"/sources/{source}/file?path={path}" for path in files),
        *(f"/sources/{source}/report", f"/source?ref={source}", "/sources?state=failing", "/sources?limit=0", "/lists"),
        *(f"/lists/{c.some('list')}/{what}" for what in ("entries", "problems")),
        *(f"/contexts/{c.some('context')}", f"/tasks/{c.some('task')}", f"/tasks/{c.some('task')}/output?after=0"),
        *(
            "/contexts?state=FINISHED",
            "/contexts?cause=person",
            "/tasks?state=ABORTED",
            "/tasks?state=KING",
            "/rules",
            "/packages",
        ),
        *(
            "/benchmarks",
            f"/benchmarks/{c.some('benchmark')}/steps",
            "/evaluations",
            "/dataone/nodes",
            "/dataone/index",
            "/spaces",
        ),
        *(
            f"/dataone/nodes/{c.some('node')}",
            "/workers/select?selector=os+%3D%3D+%22linux%22",
            "/workers/select?selector=((",
            "/status",
        ),
        *(
            f"/topics/{c.some('topic')}/messages?max=2",
            "/topics",
            "/log?level=error",
            "/audit?about=token.revoke",
            "/tokens?limit=1000",
            "/workers/load",
        ),
    )
    pages = (
        *(
            "/",
            "/sources",
            f"/sources/{source}",
            f"/sources/{source}/tree",
            f"/sources/{source}/tree/docs",
            "/lists",
            "/contexts",
        ),
        *(f"/sources/{source}/file/{path}" for path in files[:4]),
        *(
            f"/sources/{source}/commit/{commit}",
            f"/sources/{source}/report",
            f"/lists/{c.some('list')}",
            "/tasks",
            "/packages",
        ),
        *(
            "/benchmarks",
            f"/benchmarks/{c.some('benchmark')}",
            f"/benchmarks/{c.some('benchmark')}/series.svg",
            "/rules",
            "/searches",
        ),
        *(
            "/docs",
            "/docs/search",
            "/login",
            "/results",
            "/status",
            "/log?level=error",
            "/sources?state=zzz",
            "/zzz",
            "/static/style.css",
        ),
    )
    for _ in range(4):
        c.api("GET", c.dice.choice(api), c.role())
    for _ in range(3):
        c.ask("GET", c.dice.choice(pages), c.role(), headers=HTML)


def git(c: "Corpus") -> None:
    name = c.some("git")
    c.ask(
        "GET",
        f"/git/{name}.git/info/refs?service={c.dice.choice(('git-upload-pack', 'git-receive-pack', ''))}",
        c.role(),
        headers={"git-protocol": c.dice.choice(("version=2", "", "version=1"))},
    )
    headers = {"content-type": "application/x-git-upload-pack-request", "git-protocol": "version=2"}
    c.ask("POST", f"/git/{name}.git/git-upload-pack", c.role(), headers=headers, raw="0014command=ls-refs\n0000")
    c.ask("GET", f"/git/{name}.git/{c.dice.choice(('HEAD', 'objects/x', ''))}", c.role())
    c.ask("GET", "/git/manifest.js.gz", c.role())


def mistakes(c: "Corpus") -> None:
    bodies = ("", "{", "[]", "null", '{"unknown": 1}', '{"url": 5}', '"text"', "\x00")
    paths = (
        "/sources",
        "/topics",
        "/contexts",
        "/tasks",
        "/rules",
        "/tokens?limit=1000",
        "/results",
        "/lists",
        "/benchmarks",
        "/fetch",
        "/spaces/x/put",
    )
    for _ in range(3):
        c.api(
            "POST",
            c.dice.choice(paths),
            c.role(),
            raw=c.dice.choice(bodies) or " ",
            headers={"content-type": "application/json"},
        )
    c.api(
        c.dice.choice(("PUT", "DELETE", "PATCH", "POST")),
        c.dice.choice(("/status", "/audit", "/search", "/nowhere", "/topics/x/messages")),
        c.role(),
        json={},
    )
    c.ask(
        "GET",
        c.dice.choice(
            ("/api/v1/openapi.json", "/healthz", "/readyz", "/hooks/github", "/api/v2/x", "/cn/v3/x", "/mn/v2/node")
        ),
        c.role(),
    )
    c.ask(
        "POST",
        "/hooks/gitlab",
        "none",
        raw='{"repository": {}}',
        headers={"x-gitlab-event": "push", "content-type": "application/json", "x-gitlab-token": "wrong"},
    )
    c.api("GET", "/sources", "admin", headers={"origin": "http://elsewhere.example"})
