"""Whom a harvester is to a node: nobody, a bearer of a token, the holder of a certificate; and where it never goes."""

import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.base.caller import SYSTEM
from skep.base.errors import BadUrl, NotAllowed
from skep.dataone.testing import Faults, MemberNode
from skep.dataone.types import AccessPolicy
from skep.sources.model import Failure, Key
from skep.storage.database import Database
from tests.dataone.farm import Farm
from tests.dataone.objects import EML


@pytest.fixture
async def database(sqlite: Database) -> AsyncIterator[Database]:
    yield sqlite


def key(node: MemberNode, token: str, host: str = "") -> Key:
    return Key("mn", host or node.base.split("/")[2], "", "", token, public=True)


async def test_who_shows_a_token_sees_private_objects(farm: Farm, node: MemberNode) -> None:
    node.token = "s3cret"
    node.put("open", b"<eml/>", EML)
    node.put("closed", b"<eml>closed</eml>", EML, access_policy=AccessPolicy())
    held = await farm.add(node)
    await farm.visit(held)
    assert await farm.pids() == {"open"}
    farm.kind.unlock([key(node, "s3cret", "other.example")])
    await farm.visit(held)
    assert await farm.pids() == {"open"}, "a secret is for its own host"
    farm.kind.unlock([key(node, "s3cret")])
    await farm.nodes.reconcile(SYSTEM, node.id)
    await farm.visit(held)
    assert await farm.pids() == {"open", "closed"}
    assert (await farm.store.listing(["public"], count=0)).total == 1


async def test_a_client_certificate_is_shown(
    farm: Farm, node: MemberNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = tmp_path / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    extra = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "crt")]
    subprocess.run([*command, *extra], check=True, capture_output=True)
    pem.write_text((tmp_path / "crt").read_text() + (tmp_path / "key").read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    context.load_verify_locations(tmp_path / "crt")
    context.verify_mode = ssl.CERT_REQUIRED
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "crt"))
    server = node._server
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=True)
    node.put("a", b"<eml/>", EML)
    added = await farm.sources.add(SYSTEM, node.base.replace("http:", "https:"), kind="dataone")
    held = await farm.sources.held(added.source.id)
    assert held is not None
    assert isinstance(await farm.visit(held), Failure), "nobody is not let in"
    farm.kind.unlock([key(node, pem.read_text())])
    assert await farm.visit(held) is None
    assert await farm.pids() == {"a"}


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/mn", "http://10.0.0.1/mn", "file:///etc", "ssh://host/mn", "nonsense"]
)
async def test_addresses_that_are_never_asked(farm: Farm, url: str) -> None:
    with pytest.raises((NotAllowed, BadUrl)):
        await farm.sources.add(SYSTEM, url, kind="dataone")


async def test_spellings_of_one_node(farm: Farm, node: MemberNode) -> None:
    ids = {
        (await farm.sources.add(SYSTEM, node.base + end, kind="dataone")).source.id for end in ("", "/", "/v2", "/v1/")
    }
    assert len(ids) == 1


async def test_one_node_is_not_harvested_as_two_sources(farm: Farm, node: MemberNode) -> None:
    await farm.visit(await farm.add(node))
    with MemberNode(node.id) as twin:
        failure = await farm.visit(await farm.add(twin))
    assert isinstance(failure, Failure) and "already" in failure.message


async def test_a_node_that_moved_is_followed_and_it_is_said_and_no_secret_goes_along(
    farm: Farm, node: MemberNode
) -> None:
    with MemberNode(node.id) as elsewhere:
        elsewhere.put("a", b"<eml/>", EML)
        node.faults = Faults(moved=elsewhere.base)
        held = await farm.add(node)
        farm.kind.unlock([key(node, "s3cret")])
        await farm.visit(held)
        assert await farm.pids() == {"a"}
        assert all("Authorization" in one.headers for one in node.requests)
        assert not any("Authorization" in one.headers for one in elsewhere.requests)
        assert elsewhere.base in (await farm.nodes.show(SYSTEM, node.id)).note
