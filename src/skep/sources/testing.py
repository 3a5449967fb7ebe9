"""Webhooks as the forges send them: real shapes of payloads, signed with a secret."""

import base64
import hashlib
import hmac
import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

_ZERO = "0" * 40


class Delivery(NamedTuple):
    headers: Mapping[str, str]
    body: bytes

    def send(self, url: str) -> int:
        """POST it, and return the status of the answer."""
        request = urllib.request.Request(url, self.body, dict(self.headers))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


def github(url: str, secret: str, *, event: str = "push", after: str = "", form: bool = False) -> Delivery:
    body: dict[str, Any] = {"repository": _repository(url) | {"full_name": "org/repo", "private": False}}
    if event == "ping":
        body |= {"zen": "Keep it simple.", "hook_id": 7, "hook": {"type": "Repository", "events": ["push"]}}
    else:
        body |= _push(after)
    raw = json.dumps(body).encode()
    kind = "application/json"
    if form:
        raw, kind = urlencode({"payload": raw.decode()}).encode(), "application/x-www-form-urlencoded"
    signed = "sha256=" + _hmac(secret, raw)
    id = str(uuid.uuid4())
    headers = {"X-GitHub-Event": event, "X-GitHub-Delivery": id, "X-Hub-Signature-256": signed}
    return Delivery({"Content-Type": kind, "User-Agent": "GitHub-Hookshot/test", **headers}, raw)


def gitea(url: str, secret: str, *, event: str = "push", after: str = "") -> Delivery:
    raw = json.dumps(_push(after) | {"repository": _repository(url), "total_commits": 1}).encode()
    headers = {"X-Gitea-Event": event, "X-Gitea-Delivery": str(uuid.uuid4()), "X-Gitea-Signature": _hmac(secret, raw)}
    return Delivery({"Content-Type": "application/json", **headers}, raw)


def gitlab(url: str, secret: str, *, event: str = "Push Hook", after: str = "") -> Delivery:
    project = {"git_http_url": f"{url}.git", "git_ssh_url": _ssh(url), "web_url": url, "homepage": url}
    body = _push(after) | {"object_kind": "push", "project": project | {"url": _ssh(url)}}
    body["repository"] = {"name": "repo", "url": _ssh(url), "homepage": url, "git_http_url": f"{url}.git"}
    headers = {"X-Gitlab-Event": event, "X-Gitlab-Token": secret, "Idempotency-Key": str(uuid.uuid4())}
    return Delivery({"Content-Type": "application/json", **headers}, json.dumps(body).encode())


def gitee(
    url: str, secret: str, *, at: float, event: str = "Push Hook", after: str = "", password: bool = False
) -> Delivery:
    stamp = str(int(at * 1000))
    signed = base64.b64encode(hmac.new(secret.encode(), f"{stamp}\n{secret}".encode(), hashlib.sha256).digest())
    token = secret if password else quote(signed.decode())
    body = _push(after) | {"hook_name": "push_hooks", "timestamp": stamp, "sign": token, "password": ""}
    body |= {"repository": _repository(url), "project": _repository(url) | {"git_http_url": f"{url}.git"}}
    headers = {"X-Gitee-Event": event, "X-Gitee-Token": token, "X-Gitee-Timestamp": stamp, "X-Gitee-Ping": "false"}
    return Delivery({"Content-Type": "application/json", **headers}, json.dumps(body).encode())


def _push(after: str) -> dict[str, Any]:
    """Each push is another, as its commits are."""
    after = after or hashlib.sha1(uuid.uuid4().bytes, usedforsecurity=False).hexdigest()
    commits = [{"id": after, "message": "a commit", "modified": ["a"]}]
    return {"ref": "refs/heads/main", "before": _ZERO, "after": after, "commits": commits}


def _repository(url: str) -> dict[str, Any]:
    names = {"html_url": url, "clone_url": f"{url}.git", "ssh_url": _ssh(url)}
    return names | {"git_url": f"git://{urlsplit(url).hostname}{urlsplit(url).path}.git"}


def _ssh(url: str) -> str:
    parts = urlsplit(url)
    return f"git@{parts.hostname}:{parts.path[1:]}.git"


def _hmac(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
