"""What the fake engine says, the real one says as well: the fake invents no field."""

from __future__ import annotations

import re
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import FakeEngine

    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

ASKED = {"prompt": "one two three", "n_predict": 12, "temperature": 0}


@contextmanager
def serving(server: Path, models: DemoModels, port: int, log: Path) -> Iterator[httpx.Client]:
    command = [str(server), "-m", str(models.draft), "-md", str(models.draft_one_dropped)]
    command += ["--spec-type", "draft-simple", "--spec-draft-n-max", "4", "--metrics"]
    command += ["-c", "1024", "-np", "1", "--port", str(port)]
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            deadline = time.monotonic() + 120
            while not healthy(client):
                assert child.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield client
    finally:
        child.kill()
        child.wait()


def healthy(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def shape(answer: Any) -> Any:
    """The keys of `answer`, all the way down; of a list, those of its first element."""
    if isinstance(answer, dict):
        return {key: shape(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [shape(answer[0])] if answer else []
    return None


def within(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and within(value, whole[key]) for key, value in part.items()
        )
    if isinstance(part, list):
        return isinstance(whole, list) and (not part or within(part[0], whole[0]))
    return True


def answers(client: httpx.Client) -> dict[str, Any]:
    metrics = client.get("/metrics")
    client.post("/completion", json=ASKED)
    said = {
        "completion": shape(client.post("/completion", json=ASKED).json()),
        "openai": shape(client.post("/v1/completions", json=ASKED | {"max_tokens": 4}).json()),
        "slots": shape(client.get("/slots").json()),
        "props": shape(client.get("/props").json()),
        "bad": shape(client.post("/completion", content=b"{").json()),
        "nowhere": shape(client.get("/nowhere").json()),
    }
    names = re.findall(r"^(llamacpp:\w+)", client.get("/metrics").text, re.MULTILINE)
    return said | {"metrics": dict.fromkeys(names), "kind": metrics.headers["content-type"]}


@pytest.mark.real
def test_the_fake_invents_no_field(
    engine: Engine, models: DemoModels, fake_engine: FakeEngine, free_port: int, tmp_path: Path
):
    with serving(fake_engine.server, models, free_port, tmp_path / "fake.log") as client:
        fake = answers(client)
    with serving(engine.server, models, free_port, tmp_path / "real.log") as client:
        real = answers(client)
    for page, said in fake.items():
        assert within(said, real[page]), f"{page}: the fake says {said}, the real {real[page]}"


@pytest.mark.real
def test_the_fake_benchmark_invents_no_column(
    engine: Engine, models: DemoModels, fake_engine: FakeEngine
):
    assert engine.batched_bench is not None
    arguments = ["-m", str(models.draft), "-c", "256", "-npp", "0", "-ntg", "1", "-npl", "1"]
    arguments += ["-pps", "-kvu", "--output-format", "jsonl"]

    def columns(program: Path) -> set[str]:
        result = subprocess.run(
            [program, *arguments], capture_output=True, text=True, check=True, timeout=120
        )
        (row,) = (line for line in result.stdout.splitlines() if line.strip())
        return set(re.findall(r'"(\w+)":', row))

    assert columns(fake_engine.bench) <= columns(engine.batched_bench)
