"""DataONE's own Generic Member Node and client, from their wheels, in an environment of their own (.venv/gmn).

The node runs on a PostgreSQL of its own and lets everybody do everything; the client judges answers by the schemas.
"""

import base64
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from skep.testing.server import Server, free_port
from tests.support.postgres import running_postgres

NODE_ID = "urn:node:SkepTestMN"
START_SECONDS = 120.0
_PYTHON = Path(sys.prefix) / "gmn" / "bin" / "python"
_GUNICORN = ("-m", "gunicorn", "--no-control-socket", "-w", "2")
_SELF_SIGNED = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9")
_SETTINGS = """
import json, os
from d1_gmn.app.settings_default import *
globals().update(json.loads(os.environ["GMN_SETTINGS"]))
DATAONE_TRUSTED_SUBJECTS = {"public"}
"""
#: d1_gmn.wsgi insists on a settings module of its own name
_WSGI = """
import sys, importlib
sys.modules["d1_gmn.settings"] = importlib.import_module("gmn_settings")
from d1_gmn.wsgi import application
"""
#: reads calls as lines of JSON, writes answers as such: XML as text, bytes as base64
_CLIENT = """
import base64, datetime, importlib, io, json, sys
module, kind, url, token = sys.argv[1:]
headers = {"Authorization": "Bearer " + token} if token else {}
made = getattr(importlib.import_module("d1_client." + module), kind)(url, headers=headers, timeout_sec=60)
import d1_common.types.dataoneTypes_v2_0 as v2, d1_common.types.exceptions as trouble

def given(value):
    if isinstance(value, dict) and "xml" in value:
        return v2.CreateFromDocument(value["xml"].encode())
    if isinstance(value, dict) and "bytes" in value:
        return io.BytesIO(base64.b64decode(value["bytes"]))
    if isinstance(value, dict) and "time" in value:
        return datetime.datetime.fromisoformat(value["time"])
    return value

def shown(answer):
    if hasattr(answer, "toxml"):
        return {"xml": answer.toxml("utf-8").decode()}
    if hasattr(answer, "content"):
        body = base64.b64encode(answer.content).decode()
        return {"status": answer.status_code, "bytes": body, "headers": dict(answer.headers)}
    if isinstance(answer, bytes):
        return {"bytes": base64.b64encode(answer).decode()}
    return {"value": answer if isinstance(answer, (str, int, bool, dict, list, type(None))) else dict(answer)}

for line in sys.stdin:
    name, args, more = json.loads(line)
    try:
        answer = shown(getattr(made, name)(*map(given, args), **{key: given(value) for key, value in more.items()}))
    except trouble.DataONEException as error:
        answer = {"error": error.name, "code": error.errorCode, "description": error.description}
    except Exception as error:
        answer = {"failed": repr(error)[:3000]}
    print(json.dumps(answer, default=str), flush=True)
"""


class NotInstalled(RuntimeError):
    """What to do about it is the message."""


class Refused(Exception):
    """A DataONE error, as the client understood it."""

    def __init__(self, name: str, code: int, description: str) -> None:
        super().__init__(f"{name} {code}: {description}")
        self.name, self.code = name, code


class OfficialClient:
    """`with OfficialClient(f"{skep.url}/cn") as cn: cn.listNodes()`: any method of the official client, version 2.

    XML comes back as bytes, an object as its bytes, a described one as its headers. What its parser rejects raises.
    """

    def __init__(self, url: str, *, member: bool = False, version: int = 2, token: str = "") -> None:
        kind = ("MemberNode" if member else "CoordinatingNode") + "Client"
        module = "mnclient" if member else "cnclient"
        if version == 2:
            kind, module = f"{kind}_2_0", f"{module}_2_0"
        self._process = subprocess.Popen(
            [str(installed()), "-W", "ignore", "-c", _CLIENT, module, kind, url, token],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment({}),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: self.call(name, *args, **more)

    def call(self, name: str, *args: Any, **more: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, args, more]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"], answer["code"], answer["description"])
        if "failed" in answer:
            raise AssertionError(f"the official client cannot {name}{args}: {answer['failed']}")
        if "headers" in answer:
            return base64.b64decode(answer["bytes"])
        if "bytes" in answer:
            return base64.b64decode(answer["bytes"])
        if "xml" in answer:
            return answer["xml"].encode()
        value = answer["value"]
        return {key.lower(): one for key, one in value.items()} if name == "describe" else value


def installed() -> Path:
    if not _PYTHON.exists():
        raise NotInstalled("these tests need DataONE's own node and client: run ./scripts/gmn-node")
    return _PYTHON


@contextmanager
def running_gmn(folder: Path) -> Iterator[str]:
    """Its base URL. Anonymous callers may create, update, archive and delete."""
    with running_postgres() as database:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        variables = _prepare(folder, url, database)
        _run([str(installed()), "-m", "django", "migrate", "-v0"], folder, variables)
        server = Server("the member node", folder / "gmn.log", START_SECONDS)
        command = [str(_PYTHON), *_GUNICORN, "-b", f"127.0.0.1:{port}", "gmn_wsgi:application"]
        try:
            server.start(command, lambda _: _answers(url), cwd=folder, env=variables)
            yield url
        finally:
            server.stop()


def _prepare(folder: Path, url: str, database: str) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gmn_settings.py").write_text(_SETTINGS)
    (folder / "gmn_wsgi.py").write_text(_WSGI)
    # without a certificate of its own it trusts nobody, whatever the settings say
    _run(
        ["openssl", *_SELF_SIGNED, "-subj", f"/DC=org/DC=dataone/CN={NODE_ID}", "-keyout", "key", "-out", "cert"],
        folder,
        dict(os.environ),
    )
    place = urlsplit(database)
    settings = {
        "DEBUG": True,
        "DEBUG_GMN": True,
        "STAND_ALONE": True,
        "STATIC_SERVER": True,
        "ALLOWED_HOSTS": ["*"],
        "NODE_IDENTIFIER": NODE_ID,
        "NODE_NAME": "a node for tests",
        "NODE_BASEURL": url,
        "NODE_SUBJECT": f"CN={NODE_ID},DC=dataone,DC=org",
        "NODE_SYNCHRONIZE": True,
        "CLIENT_CERT_PATH": str(folder / "cert"),
        "CLIENT_CERT_PRIVATE_KEY_PATH": str(folder / "key"),
        "OBJECT_STORE_PATH": str(folder / "store"),
        "OBJECT_FORMAT_CACHE_PATH": str(folder / "formats.json"),
        "SECRET_KEY": "nothing is secret on loopback",
        "DATAONE_ROOT": "http://127.0.0.1:9/cn",
        "RESOURCE_MAP_CREATE": "open",
        "SCIMETA_VALIDATION_ENABLED": False,
        "DEFAULT_AUTO_FIELD": "django.db.models.AutoField",
        "LOGGING": {"version": 1, "disable_existing_loggers": False},
        "DATABASES": {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": place.path[1:],
                "USER": place.username,
                "PASSWORD": place.password,
                "HOST": place.hostname,
                "PORT": place.port,
                "ATOMIC_REQUESTS": True,
            }
        },
        **{f"TRUST_CLIENT_{name}": True for name in _TRUSTED},
    }
    return _environment(
        {"GMN_SETTINGS": json.dumps(settings), "DJANGO_SETTINGS_MODULE": "gmn_settings", "PYTHONPATH": str(folder)}
    )


_TRUSTED = ("SUBMITTER", "ORIGINMEMBERNODE", "AUTHORITATIVEMEMBERNODE", "DATEUPLOADED")


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DJANGO", "SKEP"))}
    return {**kept, "PYTHONWARNINGS": "ignore", **more}


def _run(command: list[str], folder: Path, variables: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[:4]} failed: {done.stderr[-2000:]}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v2/monitor/ping", timeout=30):
            return True
    except OSError:  # it may listen long before it answers
        return False
