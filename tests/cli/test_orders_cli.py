"""Words to the running daemon: what is sent, what is shown, and the exit code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from autospec.cli.app import main
from autospec.daemon.control import ControlServer
from autospec.errors import AutospecError

Told = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def told() -> Told:
    """Run a command beside a daemon that answers with `answer`."""

    def ran(answer: dict[str, Any] | AutospecError, *argv: str) -> tuple[int, list[dict[str, Any]]]:
        asked = []

        async def handler(request: dict[str, Any]) -> dict[str, Any]:
            asked.append(request)
            if isinstance(answer, AutospecError):
                raise answer
            return answer

        async def both() -> int:
            server = await ControlServer.open(handler)
            try:
                return await asyncio.to_thread(main, list(argv))
            finally:
                await server.close()

        return asyncio.run(both()), asked

    return ran


@pytest.mark.parametrize("word", ["on", "off"])
def test_a_model_is_switched(told: Told, capsys: pytest.CaptureFixture[str], word: str):
    code, asked = told({"ok": True, "text": "chat decodes plainly"}, word, "chat")
    assert (code, asked) == (0, [{"op": word, "model": "chat"}])
    assert capsys.readouterr().out == "chat decodes plainly\n"


def test_reload_tells_what_became_of_each_model(told: Told, capsys: pytest.CaptureFixture[str]):
    answer = {"ok": True, "text": "2 models", "models": {"chat": "restarted", "code": "unchanged"}}
    code, asked = told(answer, "reload")
    assert (code, asked) == (0, [{"op": "reload"}])
    assert capsys.readouterr().out == "2 models\n  chat: restarted\n  code: unchanged\n"
    code, _ = told(answer, "reload", "--json")
    assert json.loads(capsys.readouterr().out) == answer


def test_a_configuration_with_faults_is_1(told: Told, capsys: pytest.CaptureFixture[str]):
    code, _ = told({"ok": False, "text": "1 fault; the old one stays"}, "reload")
    assert code == 1
    assert "the old one stays" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["reload"], ["off", "chat"], ["on", "chat"]])
def test_a_refusal_is_1_and_no_daemon_is_6(
    told: Told, capsys: pytest.CaptureFixture[str], argv: list[str]
):
    assert told(AutospecError("no model chat"), *argv)[0] == 1
    assert "no model chat" in capsys.readouterr().err
    assert main(argv) == 6
