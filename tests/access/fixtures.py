"""One request for every operation, such that it succeeds for an admin. A new route needs a line here.

`{name}` is filled in from the world: of the public or the private object of the cell, of what `prepare` made for the
cell alone, or shared. A request with a name that differs between the two objects is made for both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
HTML = {"accept": "text/html"}
GIT = {"content-type": "application/x-git-upload-pack-request", "git-protocol": "version=2"}
_API = "/api/v1"
#: as many blocks of a stream as the topic has messages, and one that begins it
ALL = -1


@dataclass(frozen=True)
class RequestTemplate:
    path: str
    json: Any = None
    form: Mapping[str, str] | None = None
    #: multipart; a value that begins with < is sent as a file
    parts: Mapping[str, str] | None = None
    raw: str = ""
    headers: Mapping[str, str] | None = None
    #: a method of `Fresh` in fresh.py
    prepare: str = ""
    blocks: int = 0
    #: names one of several requests of an operation
    variant: str = ""
    #: later ones run after everything else
    last: int = 0


def _page(path: str, **more: Any) -> RequestTemplate:
    return RequestTemplate(path, headers=HTML, **more)


_WORK = {"name": "fresh", "tasks": [{"name": "a", "argv": ["true"], "source": "{source}", "selector": 'os == "never"'}]}
_TASK = {"name": "fresh", "argv": ["true"], "source": "{source}", "selector": 'os == "never"'}
_BENCHMARK = {"name": "fresh-{n}", "source": "{source}", "command": ["true"], "selector": 'os == "never"'}
_RULE = {"name": "fresh-{n}", "source": "{name}", "context": {"name": "x", "tasks": [{"name": "a", "argv": ["true"]}]}}
_CREDENTIAL = {"host": "fresh{n}.example.org", "token": "some-secret"}
_PACKAGE = f"{_API}/packages/org.example/tool/1.0"
_FRESH_PACKAGE = f"{_API}/packages/org.example/{{own}}/1.0"
_GROUP = f"{_API}/topics/{{topic}}/groups"
_SPACE = f"{_API}/spaces/{{own}}"
_ANY = [{"type": "any"}, {"type": "any"}]

API: dict[str, RequestTemplate | list[RequestTemplate]] = {
    "GET /api/v1/audit": RequestTemplate(f"{_API}/audit?limit=1000"),
    "GET /api/v1/benchmarks": RequestTemplate(f"{_API}/benchmarks"),
    "POST /api/v1/benchmarks": RequestTemplate(f"{_API}/benchmarks", _BENCHMARK),
    "GET /api/v1/benchmarks/{name}": RequestTemplate(f"{_API}/benchmarks/{{benchmark}}"),
    "DELETE /api/v1/benchmarks/{name}": RequestTemplate(f"{_API}/benchmarks/{{own}}", prepare="benchmark"),
    "POST /api/v1/benchmarks/{name}/pause": RequestTemplate(f"{_API}/benchmarks/{{own}}/pause", prepare="switched"),
    "POST /api/v1/benchmarks/{name}/resume": RequestTemplate(f"{_API}/benchmarks/{{own}}/resume", prepare="switched"),
    "POST /api/v1/benchmarks/{name}/wants": RequestTemplate(
        f"{_API}/benchmarks/{{own}}/wants", {"revs": "v1"}, prepare="switched"
    ),
    "GET /api/v1/benchmarks/{name}/series": RequestTemplate(f"{_API}/benchmarks/{{benchmark}}/series"),
    "GET /api/v1/benchmarks/{name}/steps": RequestTemplate(f"{_API}/benchmarks/{{benchmark}}/steps"),
    "GET /api/v1/contexts": RequestTemplate(f"{_API}/contexts?limit=1000"),
    "POST /api/v1/contexts": RequestTemplate(f"{_API}/contexts", _WORK),
    "GET /api/v1/contexts/{id}": RequestTemplate(f"{_API}/contexts/{{context}}"),
    "GET /api/v1/contexts/{id}/wait": RequestTemplate(f"{_API}/contexts/{{context}}/wait"),
    "DELETE /api/v1/contexts/{id}": RequestTemplate(f"{_API}/contexts/{{own}}", prepare="ended"),
    "POST /api/v1/contexts/{id}/cancel": RequestTemplate(f"{_API}/contexts/{{own}}/cancel", prepare="running"),
    "POST /api/v1/contexts/{id}/retry": RequestTemplate(f"{_API}/contexts/{{own}}/retry", prepare="ended"),
    "POST /api/v1/contexts/{id}/tasks": RequestTemplate(
        f"{_API}/contexts/{{own}}/tasks", {"tasks": [_TASK | {"name": "b"}]}, prepare="running"
    ),
    "GET /api/v1/credentials": RequestTemplate(f"{_API}/credentials"),
    "PUT /api/v1/credentials/{name}": [
        RequestTemplate(f"{_API}/credentials/fresh-{{n}}", _CREDENTIAL),
        RequestTemplate(
            f"{_API}/credentials/fresh-{{n}}", _CREDENTIAL | {"source": "{source}", "host": ""}, variant="of a source"
        ),
    ],
    "DELETE /api/v1/credentials/{name}": RequestTemplate(f"{_API}/credentials/{{own}}", prepare="credential"),
    "GET /api/v1/dataone/explain": [
        RequestTemplate(f"{_API}/dataone/explain?pid={{pid}}"),
        RequestTemplate(f"{_API}/dataone/explain?pid=hidden.meta.2", variant="of a private node"),
    ],
    "GET /api/v1/dataone/index": RequestTemplate(f"{_API}/dataone/index"),
    "PATCH /api/v1/dataone/index": RequestTemplate(f"{_API}/dataone/index", {"bulk": False}),
    "POST /api/v1/dataone/index/audit": RequestTemplate(f"{_API}/dataone/index/audit"),
    "GET /api/v1/dataone/nodes": RequestTemplate(f"{_API}/dataone/nodes"),
    "GET /api/v1/dataone/nodes/{id}": RequestTemplate(f"{_API}/dataone/nodes/{{node}}"),
    "PATCH /api/v1/dataone/nodes/{id}": RequestTemplate(f"{_API}/dataone/nodes/{{node}}", {"connections": 3}),
    "POST /api/v1/dataone/nodes/{id}/approve": RequestTemplate(f"{_API}/dataone/nodes/{{own}}/approve", prepare="node"),
    "GET /api/v1/dataone/nodes/{id}/preview": RequestTemplate(f"{_API}/dataone/nodes/{{node}}/preview"),
    "POST /api/v1/dataone/nodes/{id}/reconcile": RequestTemplate(f"{_API}/dataone/nodes/{{node}}/reconcile", {}),
    "POST /api/v1/dataone/nodes/{id}/replay": RequestTemplate(f"{_API}/dataone/nodes/{{node}}/replay", {}),
    "GET /api/v1/evaluations": RequestTemplate(f"{_API}/evaluations?limit=1000"),
    "DELETE /api/v1/evaluations/{id}": RequestTemplate(f"{_API}/evaluations/{{own}}", prepare="evaluation"),
    "POST /api/v1/fetch": [
        RequestTemplate(f"{_API}/fetch", {"url": "{url}"}, variant="known"),
        RequestTemplate(f"{_API}/fetch", {"url": "{forge}/fresh/{n}", "visibility": "{visibility}"}, variant="new"),
    ],
    "GET /api/v1/lists": RequestTemplate(f"{_API}/lists"),
    "POST /api/v1/lists": RequestTemplate(f"{_API}/lists", {"url": "{forge}/fresh/{n}", "visibility": "{visibility}"}),
    "GET /api/v1/lists/{id}": RequestTemplate(f"{_API}/lists/{{list}}"),
    "DELETE /api/v1/lists/{id}": RequestTemplate(f"{_API}/lists/{{own}}", prepare="list"),
    "POST /api/v1/lists/{id}/confirm": RequestTemplate(
        f"{_API}/lists/{{own}}/confirm", {"version": ""}, prepare="list"
    ),
    "GET /api/v1/lists/{id}/entries": RequestTemplate(f"{_API}/lists/{{list}}/entries"),
    "GET /api/v1/lists/{id}/problems": RequestTemplate(f"{_API}/lists/{{list}}/problems"),
    "POST /api/v1/lists/{id}/read": RequestTemplate(f"{_API}/lists/{{list}}/read"),
    "GET /api/v1/log": RequestTemplate(f"{_API}/log?about={{source}}&limit=1000"),
    "POST /api/v1/login-ticket": RequestTemplate(f"{_API}/login-ticket"),
    "GET /api/v1/openapi.json": RequestTemplate(f"{_API}/openapi.json"),
    "GET /api/v1/schema": RequestTemplate(f"{_API}/schema"),
    "GET /api/v1/schema/openapi.json": RequestTemplate(f"{_API}/schema/openapi.json"),
    "GET /api/v1/schema/{path}": RequestTemplate(f"{_API}/schema/openapi.json"),
    "GET /api/v1/packages": RequestTemplate(f"{_API}/packages"),
    "POST /api/v1/packages": RequestTemplate(f"{_API}/packages", prepare="archive"),
    "GET /api/v1/packages/{group}/{name}/{version}": RequestTemplate(_PACKAGE),
    "DELETE /api/v1/packages/{group}/{name}/{version}": RequestTemplate(_FRESH_PACKAGE, prepare="package"),
    "GET /api/v1/packages/{group}/{name}/{version}/archive": RequestTemplate(f"{_PACKAGE}/archive"),
    "POST /api/v1/packages/{group}/{name}/{version}/run": RequestTemplate(f"{_PACKAGE}/run", {"template": "single"}),
    "GET /api/v1/results": RequestTemplate(f"{_API}/results?limit=1000"),
    "POST /api/v1/results": RequestTemplate(
        f"{_API}/results", {"task": "{task}", "results": [{"metric": "fresh-{n}", "value": 1, "unit": "s"}]}
    ),
    "GET /api/v1/results/aggregate": RequestTemplate(f"{_API}/results/aggregate?by=source"),
    "GET /api/v1/results/export": RequestTemplate(f"{_API}/results/export"),
    "GET /api/v1/results/points": RequestTemplate(f"{_API}/results/points?source={{source}}&metric={{word}}-metric"),
    "GET /api/v1/results/series": RequestTemplate(f"{_API}/results/series"),
    "GET /api/v1/results/{id}": RequestTemplate(f"{_API}/results/{{result}}"),
    "GET /api/v1/rules": RequestTemplate(f"{_API}/rules"),
    "POST /api/v1/rules": RequestTemplate(f"{_API}/rules", _RULE),
    "GET /api/v1/rules/{name}": RequestTemplate(f"{_API}/rules/nightly"),
    "DELETE /api/v1/rules/{name}": RequestTemplate(f"{_API}/rules/{{own}}", prepare="rule"),
    "PATCH /api/v1/rules/{name}": RequestTemplate(f"{_API}/rules/{{own}}", {"enabled": False}, prepare="rule"),
    "POST /api/v1/rules/{name}/fire": RequestTemplate(
        f"{_API}/rules/{{own}}/fire", {"source": "{source}"}, prepare="rule"
    ),
    "GET /api/v1/search": [
        RequestTemplate(f"{_API}/search?q=honey&facets=true"),
        RequestTemplate(f"{_API}/search?q={{word}}honey", variant="a word of the object"),
        RequestTemplate(f"{_API}/search?q=type:repo", variant="sources"),
        RequestTemplate(f"{_API}/search?q=type:path+docs", variant="paths"),
        RequestTemplate(f"{_API}/search?q=type:commit+change", variant="commits"),
        RequestTemplate(f"{_API}/search?q=type:report+lang:python", variant="reports"),
        RequestTemplate(f"{_API}/search?q=type:record+glacier+or+moraine", variant="records"),
        RequestTemplate(f"{_API}/search?q=honey", headers={"accept": "application/x-ndjson"}, variant="lines"),
        RequestTemplate(f"{_API}/search?q=honey", headers={"accept": "text/event-stream"}, variant="events"),
    ],
    "GET /api/v1/search/complete": [
        RequestTemplate(f"{_API}/search/complete?q=repo:"),
        RequestTemplate(f"{_API}/search/complete?q=file:docs/", variant="paths"),
    ],
    "GET /api/v1/searches": RequestTemplate(f"{_API}/searches"),
    "PUT /api/v1/searches/{name}": RequestTemplate(f"{_API}/searches/fresh-{{n}}", {"query": "{word}honey"}),
    "DELETE /api/v1/searches/{name}": RequestTemplate(f"{_API}/searches/{{own}}", prepare="search"),
    "GET /api/v1/source": RequestTemplate(f"{_API}/source?ref={{url}}"),
    "GET /api/v1/sources": RequestTemplate(f"{_API}/sources?limit=1000"),
    "POST /api/v1/sources": [
        RequestTemplate(f"{_API}/sources", {"url": "{forge}/fresh/{n}", "visibility": "{visibility}"}, variant="new"),
        RequestTemplate(f"{_API}/sources", {"url": "{url}"}, variant="known"),
    ],
    "POST /api/v1/sources/bulk": [
        RequestTemplate(f"{_API}/sources/bulk", {"sources": [{"url": "{forge}/fresh/{n}"}]}, variant="new"),
        RequestTemplate(f"{_API}/sources/bulk", {"sources": [{"url": "{url}"}]}, variant="known"),
    ],
    "GET /api/v1/sources/{id}": [
        RequestTemplate(f"{_API}/sources/{{source}}"),
        RequestTemplate(f"{_API}/sources/{{node_source}}", variant="node"),
    ],
    "DELETE /api/v1/sources/{id}": RequestTemplate(f"{_API}/sources/{{own}}", prepare="source"),
    "PATCH /api/v1/sources/{id}": [
        RequestTemplate(f"{_API}/sources/{{own}}", {"labels": ["x=y"]}, prepare="source"),
        RequestTemplate(f"{_API}/sources/{{own}}", {"visibility": "public"}, prepare="source", variant="publish"),
    ],
    "POST /api/v1/sources/{id}/accept": RequestTemplate(f"{_API}/sources/{{source}}/accept"),
    "GET /api/v1/sources/{id}/changes": [
        RequestTemplate(f"{_API}/sources/{{source}}/changes"),
        RequestTemplate(f"{_API}/sources/{{node_source}}/changes", variant="node"),
    ],
    "POST /api/v1/sources/{id}/fetch": RequestTemplate(f"{_API}/sources/{{source}}/fetch"),
    "GET /api/v1/sources/{id}/file": RequestTemplate(f"{_API}/sources/{{source}}/file?path={{path}}"),
    "POST /api/v1/sources/{id}/reindex": RequestTemplate(f"{_API}/sources/{{source}}/reindex"),
    "GET /api/v1/sources/{id}/report": RequestTemplate(f"{_API}/sources/{{source}}/report"),
    "GET /api/v1/sources/{id}/tree": RequestTemplate(f"{_API}/sources/{{source}}/tree?path=docs"),
    "GET /api/v1/sources/{id}/wait": RequestTemplate(f"{_API}/sources/{{source}}/wait"),
    "GET /api/v1/spaces": RequestTemplate(f"{_API}/spaces?limit=1000"),
    "GET /api/v1/spaces/{space}": RequestTemplate(f"{_API}/spaces/room"),
    "DELETE /api/v1/spaces/{space}": RequestTemplate(_SPACE, prepare="space"),
    "POST /api/v1/spaces/{space}/acknowledge": RequestTemplate(
        f"{_SPACE}/acknowledge", {"seq": "{seq}", "ticket": "t"}, prepare="taken"
    ),
    "POST /api/v1/spaces/{space}/get": RequestTemplate(f"{_SPACE}/get", {"template": _ANY}, prepare="space"),
    "POST /api/v1/spaces/{space}/get_all": RequestTemplate(f"{_SPACE}/get_all", {"template": _ANY}, prepare="space"),
    "POST /api/v1/spaces/{space}/give_back": RequestTemplate(
        f"{_SPACE}/give_back", {"seq": "{seq}", "ticket": "t"}, prepare="taken"
    ),
    "POST /api/v1/spaces/{space}/keep": RequestTemplate(
        f"{_SPACE}/keep", {"seq": "{seq}", "ticket": "t"}, prepare="taken"
    ),
    "POST /api/v1/spaces/{space}/put": RequestTemplate(f"{_SPACE}/put", {"fields": ["new", 2]}, prepare="space"),
    "POST /api/v1/spaces/{space}/query": RequestTemplate(f"{_SPACE}/query", {"template": _ANY}, prepare="space"),
    "POST /api/v1/spaces/{space}/query_all": RequestTemplate(
        f"{_SPACE}/query_all", {"template": _ANY}, prepare="space"
    ),
    "POST /api/v1/spaces/{space}/replace": RequestTemplate(
        f"{_SPACE}/replace", {"template": _ANY, "fields": ["x", 2]}, prepare="space"
    ),
    "GET /api/v1/status": RequestTemplate(f"{_API}/status"),
    "GET /api/v1/tasks": RequestTemplate(f"{_API}/tasks?limit=1000"),
    "POST /api/v1/tasks": RequestTemplate(f"{_API}/tasks", _TASK),
    "GET /api/v1/tasks/{id}": RequestTemplate(f"{_API}/tasks/{{task}}"),
    "POST /api/v1/tasks/{id}/cancel": RequestTemplate(f"{_API}/tasks/{{own_task}}/cancel", prepare="running"),
    "GET /api/v1/tasks/{id}/output": [
        RequestTemplate(f"{_API}/tasks/{{task}}/output"),
        RequestTemplate(f"{_API}/tasks/{{task}}/output?follow=true", blocks=9, variant="follow"),
    ],
    "GET /api/v1/tokens": RequestTemplate(f"{_API}/tokens?limit=1000"),
    "POST /api/v1/tokens": RequestTemplate(f"{_API}/tokens", {"subject": "fresh", "scopes": ["admin"]}),
    "DELETE /api/v1/tokens/{id}": RequestTemplate(f"{_API}/tokens/{{own}}", prepare="token"),
    "GET /api/v1/topics": RequestTemplate(f"{_API}/topics?limit=1000"),
    "POST /api/v1/topics": RequestTemplate(f"{_API}/topics", {"name": "fresh-{n}"}),
    "GET /api/v1/topics/{topic}": RequestTemplate(f"{_API}/topics/{{topic}}"),
    "PATCH /api/v1/topics/{topic}": [
        RequestTemplate(f"{_API}/topics/{{own}}", {"retain_seconds": 5.0}, prepare="topic"),
        RequestTemplate(f"{_API}/topics/skep.changes", {"retain_seconds": 500000.0}, variant="built in"),
    ],
    "GET /api/v1/topics/{topic}/follow": RequestTemplate(f"{_API}/topics/{{topic}}/follow", blocks=ALL),
    "POST /api/v1/topics/{topic}/groups/{group}/commit": RequestTemplate(
        f"{_GROUP}/{{group}}/commit",
        {"member": "{member}", "commits": [{"partition": 0, "offset": 0, "generation": "{generation}"}]},
        prepare="member",
    ),
    "POST /api/v1/topics/{topic}/groups/{group}/join": RequestTemplate(f"{_GROUP}/fresh-{{n}}/join", {}),
    "GET /api/v1/topics/{topic}/groups/{group}/lag": RequestTemplate(f"{_GROUP}/readers/lag"),
    "POST /api/v1/topics/{topic}/groups/{group}/leave": RequestTemplate(
        f"{_GROUP}/{{group}}/leave", {"member": "{member}"}, prepare="member"
    ),
    "POST /api/v1/topics/{topic}/groups/{group}/seek": RequestTemplate(
        f"{_GROUP}/{{group}}/seek", {"to": "end"}, prepare="left"
    ),
    "GET /api/v1/topics/{topic}/messages": [
        RequestTemplate(f"{_API}/topics/{{topic}}/messages"),
        RequestTemplate(f"{_API}/topics/skep.searches/messages", variant="saved searches"),
        RequestTemplate(f"{_API}/topics/skep.tasks/messages?max=1000", variant="tasks"),
    ],
    "POST /api/v1/topics/{topic}/messages": RequestTemplate(
        f"{_API}/topics/{{own}}/messages", {"body": 1}, prepare="own_or_built_in"
    ),
    "GET /api/v1/topics/{topic}/places": RequestTemplate(f"{_API}/topics/{{topic}}/places"),
    "POST /api/v1/topics/{topic}/trim": RequestTemplate(
        f"{_API}/topics/{{own}}/trim", {"before": 0}, prepare="own_or_built_in"
    ),
    "GET /api/v1/workers": RequestTemplate(f"{_API}/workers"),
    "GET /api/v1/workers/load": RequestTemplate(f"{_API}/workers/load"),
    "GET /api/v1/workers/select": RequestTemplate(f"{_API}/workers/select?selector="),
    "GET /api/v1/workers/tokens": RequestTemplate(f"{_API}/workers/tokens"),
    "POST /api/v1/workers/tokens": RequestTemplate(f"{_API}/workers/tokens", {"name": "fresh-{n}"}),
    "DELETE /api/v1/workers/tokens/{id}": RequestTemplate(f"{_API}/workers/tokens/{{own}}", prepare="member_token"),
    "DELETE /api/v1/workers/{id}": RequestTemplate(f"{_API}/workers/{{worker}}", last=1),
    "POST /api/v1/workers/{id}/drain": RequestTemplate(f"{_API}/workers/{{worker}}/drain", last=2),
    "POST /api/v1/workers/{id}/resume": RequestTemplate(f"{_API}/workers/{{worker}}/resume", last=3),
}

PAGES: dict[str, RequestTemplate | list[RequestTemplate]] = {
    "GET /": [
        _page("/"),
        _page("/?q=honey", variant="search"),
        _page("/?q={word}honey", variant="a word of the object"),
    ],
    "GET /benchmarks": _page("/benchmarks"),
    "GET /benchmarks/{name}": _page("/benchmarks/{benchmark}"),
    "GET /benchmarks/{name}/{file}": _page("/benchmarks/{benchmark}/series.svg"),
    "POST /benchmarks/{name}/{verb}": _page("/benchmarks/{own}/pause", form={}, prepare="switched"),
    "GET /contexts": _page("/contexts"),
    "GET /contexts/{id}": _page("/contexts/{context}"),
    "POST /contexts/{id}/cancel": _page("/contexts/{own}/cancel", form={}, prepare="running"),
    "POST /contexts/{id}/remove": _page("/contexts/{own}/remove", form={}, prepare="ended"),
    "POST /contexts/{id}/retry": _page("/contexts/{own}/retry", form={}, prepare="ended"),
    "GET /credentials": _page("/credentials"),
    "POST /credentials": _page(
        "/credentials", form={"name": "fresh-{n}", "host": "fresh{n}.example.org", "token": "some-secret"}
    ),
    "POST /credentials/{name}/remove": _page("/credentials/{own}/remove", form={}, prepare="credential"),
    "POST /credentials/{name}/rotate": _page(
        "/credentials/{own}/rotate", form={"token": "another"}, prepare="credential"
    ),
    "GET /docs": _page("/docs"),
    "GET /docs/search": _page("/docs/search"),
    "GET /evaluations/{id}": _page("/evaluations/{evaluation}"),
    "GET /lists": _page("/lists"),
    "GET /lists/{id}": _page("/lists/{list}"),
    "POST /lists/{id}/confirm": _page("/lists/{own}/confirm", form={"version": ""}, prepare="list"),
    "GET /log": _page("/log?about={source}"),
    "GET /login": _page("/login"),
    "POST /login": _page("/login", form={"token": "{token}"}, prepare="own_token"),
    "POST /logout": _page("/logout", form={}),
    "GET /packages": _page("/packages"),
    "GET /record": [_page("/record?id={pid}"), _page("/record?id=hidden.meta.2", variant="of a private node")],
    "GET /results": _page("/results"),
    "GET /rules": _page("/rules"),
    "POST /rules/{name}/disable": _page("/rules/{own}/disable", form={}, prepare="rule"),
    "POST /rules/{name}/enable": _page("/rules/{own}/enable", form={}, prepare="rule"),
    "GET /searches": _page("/searches"),
    "POST /searches": _page("/searches", form={"name": "fresh-{n}", "query": "{word}honey"}),
    "POST /searches/{name}/remove": _page("/searches/{own}/remove", form={}, prepare="search"),
    "GET /sources": _page("/sources"),
    "POST /sources": _page("/sources", form={"url": "{forge}/fresh/{n}", "visibility": "{visibility}"}),
    "GET /sources/{id}": [_page("/sources/{source}"), _page("/sources/{node_source}", variant="node")],
    "POST /sources/{id}/accept": _page("/sources/{source}/accept", form={"loss": ""}),
    "GET /sources/{id}/commit/{commit}": _page("/sources/{source}/commit/{commit}"),
    "POST /sources/{id}/fetch": _page("/sources/{source}/fetch", form={}),
    "GET /sources/{id}/file/{path}": _page("/sources/{source}/file/{path}"),
    "POST /sources/{id}/remove": _page("/sources/{own}/remove", form={}, prepare="source"),
    "GET /sources/{id}/report": _page("/sources/{source}/report"),
    "GET /sources/{id}/tree": _page("/sources/{source}/tree"),
    "GET /sources/{id}/tree/{path}": _page("/sources/{source}/tree/docs"),
    "GET /static/{name}": _page("/static/style.css"),
    "GET /status": _page("/status"),
    "GET /tasks": _page("/tasks"),
    "GET /tasks/{id}": _page("/tasks/{task}"),
    "POST /tasks/{id}/cancel": _page("/tasks/{own_task}/cancel", form={}, prepare="running"),
    "GET /tasks/{id}/output": _page("/tasks/{task}/output"),
    "GET /topics": [_page("/topics"), RequestTemplate("/topics", variant="queue")],
    "GET /topics/{name}": _page("/topics/{topic}"),
    "GET /workers": _page("/workers?selector=os+==+%22linux%22"),
}

ROOT: dict[str, RequestTemplate | list[RequestTemplate]] = {
    "GET /healthz": RequestTemplate("/healthz"),
    "GET /readyz": RequestTemplate("/readyz"),
    "GET /metrics": RequestTemplate("/metrics"),
    "POST /hooks/{forge}": [
        RequestTemplate(
            "/hooks/gitlab",
            headers={"x-gitlab-event": "push", "content-type": "application/json", "x-gitlab-token": "hook-secret"},
            raw='{"repository": {"git_http_url": "{url}"}, "n": {n}}',
            prepare="hook",
        ),
        RequestTemplate(
            "/hooks/gitlab",
            headers={"x-gitlab-event": "push", "content-type": "application/json", "x-gitlab-token": "wrong"},
            raw='{"repository": {"git_http_url": "{url}"}, "n": {n}}',
            variant="wrong secret",
        ),
    ],
    "POST /topics": RequestTemplate("/topics", {"name": "fresh-{n}"}),
    "POST /producer/register": RequestTemplate("/producer/register", {"topic": "{own}"}, prepare="own_or_built_in"),
    "POST /producer/produce": RequestTemplate(
        "/producer/produce", {"topic": "{own}", "producer_id": "{producer}", "message": "m"}, prepare="producer"
    ),
    "POST /consumer/register": RequestTemplate("/consumer/register", {"topic": "{own}"}, prepare="own_or_built_in"),
    "GET /consumer/consume": RequestTemplate(
        "/consumer/consume?topic={own}&consumer_id={consumer}", prepare="consumer"
    ),
    "GET /size": RequestTemplate("/size?topic={own}&consumer_id={consumer}", prepare="consumer"),
    "ASGI /git/": [
        RequestTemplate("/git/manifest.js.gz", variant="GET manifest"),
        RequestTemplate("/git/{name}.git/info/refs?service=git-upload-pack", variant="GET info/refs"),
        RequestTemplate(
            "/git/{name}.git/git-upload-pack", headers=GIT, raw="0014command=ls-refs\n0000", variant="POST upload-pack"
        ),
        RequestTemplate("/git/{name}.git/git-receive-pack", headers=GIT, raw="0000", variant="POST receive-pack"),
    ],
}

_REPLICA = (
    f'{XML}<d1:replica xmlns:d1="http://ns.dataone.org/service/types/v1"><replicaMemberNode>urn:node:OPEN'
    "</replicaMemberNode><replicationStatus>completed</replicationStatus>"
    "<replicaVerified>2020-01-01T00:00:00Z</replicaVerified></d1:replica>"
)
_POLICY = (
    f'{XML}<d1:replicationPolicy xmlns:d1="http://ns.dataone.org/service/types/v1" replicationAllowed="false" '
    'numberReplicas="0"/>'
)
_FAILURE = (
    f'{XML}<error name="SynchronizationFailed" errorCode="0" detailCode="0" identifier="x">'
    "<description>d</description></error>"
)

DATAONE: dict[str, RequestTemplate | list[RequestTemplate]] = {
    "GET /cn/v2": RequestTemplate("/cn/v2"),
    "GET /cn/v2/monitor": RequestTemplate("/cn/v2/monitor/ping"),
    "GET /cn/v2/node": [RequestTemplate("/cn/v2/node"), RequestTemplate("/cn/v2/node/{node}", variant="one")],
    "POST /cn/v2/node": RequestTemplate("/cn/v2/node", parts={"node": "{document}"}, prepare="document"),
    "PUT /cn/v2/node": RequestTemplate("/cn/v2/node/{node}", parts={"node": "{document}"}, prepare="node_document"),
    "GET /cn/v2/formats": RequestTemplate("/cn/v2/formats"),
    "POST /cn/v2/reserve": RequestTemplate("/cn/v2/reserve", parts={"pid": "fresh.{n}"}),
    "GET /cn/v2/reserve": RequestTemplate("/cn/v2/reserve/reserved.1?subject=tester-admin", prepare="reservation"),
    "GET /cn/v2/object": [
        RequestTemplate("/cn/v2/object"),
        RequestTemplate("/cn/v2/object/{pid}", variant="one"),
        RequestTemplate("/cn/v2/object/hidden.meta.2", variant="of a private node"),
    ],
    "GET /cn/v2/changed": RequestTemplate("/cn/v2/changed"),
    "GET /cn/v2/meta": [
        RequestTemplate("/cn/v2/meta/{pid}"),
        RequestTemplate("/cn/v2/meta/hidden.meta.2", variant="of a private node"),
    ],
    "GET /cn/v2/checksum": RequestTemplate("/cn/v2/checksum/{pid}"),
    "GET /cn/v2/resolve": RequestTemplate("/cn/v2/resolve/{pid}"),
    "GET /cn/v2/isAuthorized": RequestTemplate("/cn/v2/isAuthorized/{pid}?action=read"),
    "GET /cn/v2/query": [
        RequestTemplate("/cn/v2/query/solr/?q=*:*&fl=id,title&rows=100&wt=json"),
        RequestTemplate("/cn/v2/query/solr/?q=glacier&wt=json&facet=true&facet.field=title", variant="facets"),
    ],
    "GET /cn/v2/search": RequestTemplate("/cn/v2/search/solr/?q=*:*"),
    "POST /cn/v2/synchronize": RequestTemplate("/cn/v2/synchronize", parts={"pid": "{pid}"}),
    "PUT /cn/v2/replicaNotifications": RequestTemplate(
        "/cn/v2/replicaNotifications/{pid}", parts={"nodeRef": "urn:node:OPEN", "status": "completed"}
    ),
    "PUT /cn/v2/replicaMetadata": RequestTemplate(
        "/cn/v2/replicaMetadata/{pid}",
        parts={"replicaMetadata": _REPLICA, "serialVersion": "{serial}"},
        prepare="serial",
    ),
    "PUT /cn/v2/replicaPolicies": RequestTemplate(
        "/cn/v2/replicaPolicies/{pid}", parts={"policy": _POLICY, "serialVersion": "{serial}"}, prepare="serial"
    ),
    "PUT /cn/v2/removeReplicaMetadata": RequestTemplate(
        "/cn/v2/removeReplicaMetadata/{pid}",
        parts={"nodeId": "urn:node:OPEN", "serialVersion": "{serial}"},
        prepare="serial",
    ),
    "GET /cn/v2/replicaAuthorizations": RequestTemplate("/cn/v2/replicaAuthorizations/{pid}?targetNodeSubject=CN%3Dx"),
    "GET /mn/v2": RequestTemplate("/mn/v2"),
    "GET /mn/v2/monitor": RequestTemplate("/mn/v2/monitor/ping"),
    "GET /mn/v2/node": RequestTemplate("/mn/v2/node"),
    "GET /mn/v2/object": [RequestTemplate("/mn/v2/object"), RequestTemplate("/mn/v2/object/{pid}", variant="one")],
    "GET /mn/v2/meta": RequestTemplate("/mn/v2/meta/{pid}"),
    "GET /mn/v2/checksum": RequestTemplate("/mn/v2/checksum/{pid}"),
    "GET /mn/v2/isAuthorized": RequestTemplate("/mn/v2/isAuthorized/{pid}"),
    "GET /mn/v2/replica": RequestTemplate("/mn/v2/replica/{pid}"),
    "POST /mn/v2/replicate": RequestTemplate(
        "/mn/v2/replicate", parts={"sysmeta": "{sysmeta}", "sourceNode": "{node}"}, prepare="sysmeta"
    ),
    "POST /mn/v2/dirtySystemMetadata": RequestTemplate("/mn/v2/dirtySystemMetadata", parts={"pid": "{pid}"}),
    "POST /mn/v2/error": RequestTemplate("/mn/v2/error", parts={"message": _FAILURE}),
}

FIXTURES = {**API, **PAGES, **ROOT, **DATAONE}

#: operations of which no cell of an admin succeeds, and why
NO_SUCCESS: dict[str, str] = {
    "POST /api/v1/sources/{id}/accept": "needs an upstream that rewrote its history; 409 comes after the access checks",
    "POST /sources/{id}/accept": "as above",
    "POST /api/v1/lists/{id}/confirm": "needs a list that lost many entries; 409 comes after the access checks",
    "POST /lists/{id}/confirm": "as above",
    "DELETE /api/v1/workers/{id}": "needs a lost worker; the only one is online, hence 409 after the access checks",
    "GET /cn/v2/replicaAuthorizations": "needs a replication in progress; 401 says that there is none",
}
