"""What we read and judge, beside what the real engine does with the same files."""

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import httpx
import pytest

from autospec.engine.compatibility import check_pair
from autospec.engine.gguf import read_header
from autospec.engine.metrics import difference, parse_metrics
from autospec.engine.observe import parse_health, parse_props, parse_slots, parse_timings

pytestmark = pytest.mark.real

DEADLINE = 60.0


@contextmanager
def served(server: Path, target: Path, draft: Path, log: Path) -> Iterator[httpx.Client]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["-m", target, "-md", draft, "--spec-type", "draft-simple", "--metrics", "--slots"]
    arguments += ["--spec-draft-n-max", "4", "-np", "2", "-c", "512", "--no-warmup"]
    arguments += ["--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as out:
        child = subprocess.Popen([server, *arguments], stdout=out, stderr=subprocess.STDOUT)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE) as client:
            wait_until_healthy(client, child)
            yield client
    finally:
        child.kill()
        child.wait()


def wait_until_healthy(client: httpx.Client, child: subprocess.Popen) -> None:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline and child.poll() is None:
        try:
            answer = client.get("/health")
        except httpx.TransportError:
            time.sleep(0.1)
            continue
        health = parse_health(answer.status_code, answer.content)
        if health == "ok":
            return
        assert health == "loading"
        time.sleep(0.1)
    pytest.fail(f"the server did not come up, exit code {child.poll()}")


def another_text(token: int) -> Callable[[Path], bytes]:
    def changed(path: Path) -> bytes:
        reader = gguf.GGUFReader(path)
        field = reader.get_field("tokenizer.ggml.tokens")
        text = field.parts[field.data[token]]
        start = text.ctypes.data - reader.data.ctypes.data
        raw = bytearray(path.read_bytes())
        raw[start : start + len(text)] = b"\1" * len(text)
        return bytes(raw)

    return changed


def adds_bos(path: Path) -> bytes:
    raw = bytearray(path.read_bytes())
    key = b"tokenizer.ggml.add_bos_token"
    raw[raw.index(key) + len(key) + 4] = 1
    return bytes(raw)


@pytest.mark.parametrize(
    ("change", "fits"),
    [(another_text(3), True), (another_text(5), False), (adds_bos, False)],
    ids=["token 3 differs", "token 5 differs", "bos added"],
)
def test_the_engine_speculates_exactly_where_no_error_was_found(
    engine, models, tmp_path, change, fits
):
    draft = tmp_path / "draft.gguf"
    draft.write_bytes(change(models.draft_three_dropped))
    problems = check_pair(read_header(models.draft), read_header(draft))
    assert any(problem.severity == "error" for problem in problems) is not fits
    with served(engine.server, models.draft, draft, tmp_path / "log") as client:
        slots = parse_slots(client.get("/slots").content)
    assert [slot.speculative for slot in slots] == [fits, fits]


def test_counters_slots_and_timings_of_one_request_agree(engine, models, tmp_path):
    with served(
        engine.server, models.draft, models.draft_three_dropped, tmp_path / "log"
    ) as client:
        before = parse_metrics(client.get("/metrics").text)
        body = {"prompt": "The capital of France", "n_predict": 24, "temperature": 0}
        answer = client.post("/completion", json=body | {"cache_prompt": False})
        after = parse_metrics(client.get("/metrics").text)
        props = parse_props(client.get("/props").content)
    timings = parse_timings(answer.content)
    counted = difference(before, after)
    assert timings is not None
    assert counted is not None
    assert (
        counted.predicted == timings.predicted_n == json.loads(answer.content)["tokens_predicted"]
    )
    assert (counted.drafted, counted.accepted) == (timings.drafted, timings.accepted)
    assert sum(counted.per_position) == counted.accepted
    assert 0 < counted.drafts <= counted.drafted
    assert counted.predicted_seconds == pytest.approx(timings.predicted_ms / 1000, rel=1e-4)
    assert (props.slots, props.context) == (2, 256)
