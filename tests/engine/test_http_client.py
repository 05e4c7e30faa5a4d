"""The client of a child: it goes where it is told, and costs little to make."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from autospec.engine.launch import Endpoint
from autospec.engine.server import http_client


@pytest.mark.parametrize(
    ("endpoint", "base"),
    [
        (Endpoint(port=9000), "http://127.0.0.1:9000"),
        (Endpoint(host="::1", port=9000), "http://[::1]:9000"),
        (Endpoint(socket=Path("/run/x.sock")), "http://llama"),
    ],
)
def test_a_client_loads_no_certificates_and_follows_no_proxy(
    endpoint: Endpoint, base: str, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object, **__: object) -> ssl.SSLContext:
        raise AssertionError("certificates are loaded for a connection without TLS")

    monkeypatch.setattr(ssl, "create_default_context", refuse)
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    client = http_client(endpoint)
    assert str(client.base_url).rstrip("/") == base
    assert not client.trust_env
    assert not client.follow_redirects


def test_keys_come_from_the_file(tmp_path: Path):
    keys = tmp_path / "keys"
    keys.write_text("# ours\nsecret\n")
    client = http_client(Endpoint(port=1, api_key_file=keys))
    assert client.headers["Authorization"] == "Bearer secret"
