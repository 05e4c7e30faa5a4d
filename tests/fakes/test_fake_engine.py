"""The fakes keep the promises that fault tests build on."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import httpx
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import FakeEngine

DRAFT = ("--spec-type", "draft-simple", "-md", "d.gguf", "--spec-draft-n-max", "4")
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(fake_engine: FakeEngine, free_port: int) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def launch(*arguments: str) -> subprocess.Popen[str]:
        command = [str(fake_engine.server), "-m", "m.gguf", "--port", str(free_port), "--metrics"]
        child = subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True)
        running.append(child)
        return child

    yield launch
    for child in running:
        child.kill()
        child.communicate()


@pytest.fixture
def client(free_port: int) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{free_port}", timeout=10) as client:
        yield client


def health(client: httpx.Client) -> int:
    try:
        return client.get("/health").status_code
    except httpx.TransportError:
        return 0


def client_answers(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).status_code == 200
    except httpx.TransportError:
        return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited 20 s"
        time.sleep(0.01)


def test_counters_agree_with_the_timings_of_the_answers(start: Start, client: httpx.Client):
    start(*DRAFT)
    until(lambda: health(client) == 200)
    asked = {"prompt": "a b c", "n_predict": 30}
    answers = [client.post("/completion", json=asked).json() for _ in range(3)]
    metrics = dict(
        line.rsplit(" ", 1)
        for line in client.get("/metrics").text.splitlines()
        if not line.startswith("#")
    )
    counted = {name.removeprefix("llamacpp:"): float(value) for name, value in metrics.items()}
    assert counted["tokens_predicted_total"] == 90
    for counter, timing in (("draft", "draft_n"), ("accepted", "draft_n_accepted")):
        total = sum(answer["timings"][timing] for answer in answers)
        assert counted[f"spec_decode_num_{counter}_tokens_total"] == total > 0
    by_position = [v for k, v in counted.items() if "per_pos" in k]
    assert by_position == sorted(by_position, reverse=True)
    assert all(slot["speculative"] for slot in client.get("/slots").json())


def test_a_stream_carries_the_same_text_and_ends_with_timings(start: Start, client: httpx.Client):
    start()
    until(lambda: health(client) == 200)
    asked = {"prompt": "a", "n_predict": 12}
    whole = client.post("/completion", json=asked).json()["content"]
    text = client.post("/completion", json=asked | {"stream": True}).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert "".join(event["content"] for event in events) == whole
    assert events[-1]["timings"]["predicted_n"] == 12


def test_openai_faces_stream_and_finish(start: Start, client: httpx.Client):
    start()
    until(lambda: health(client) == 200)
    asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "stream": True}
    text = client.post("/v1/chat/completions", json=asked).text
    assert '"delta"' in text
    assert text.endswith("data: [DONE]\n\n")


def test_it_says_503_while_loading_and_dies_of_sigterm_then(
    fake_engine: FakeEngine, start: Start, client: httpx.Client
):
    fake_engine.script_server(load_seconds=60)
    child = start()
    until(lambda: health(client) == 503)
    child.terminate()
    assert child.wait(20) == -signal.SIGTERM


def test_sigterm_when_ready_is_a_clean_exit(start: Start, client: httpx.Client):
    child = start()
    until(lambda: health(client) == 200)
    child.terminate()
    assert child.wait(20) == 0


def test_a_unix_socket_is_served(start: Start, isolated: Path):
    path = isolated / "x.sock"
    start("--host", str(path))
    until(path.exists)  # httpx leaves a socket open when a path does not exist yet
    transport = httpx.HTTPTransport(uds=str(path))
    with httpx.Client(transport=transport, base_url="http://child") as client:
        until(lambda: health(client) == 200)


@pytest.mark.parametrize("code", [1, -signal.SIGILL])
def test_exit_at_start_is_scripted(fake_engine: FakeEngine, start: Start, code: int):
    fake_engine.script_server(exit={"when": "start", "code": code, "log": ["out of memory"]})
    child = start()
    assert child.wait(20) == code
    assert child.stderr is not None
    assert "out of memory" in child.stderr.read()


def test_a_removed_flag_ends_it(start: Start):
    assert start("--draft-max", "4").wait(20) == 1


def test_it_dies_in_the_middle_of_the_second_answer(
    fake_engine: FakeEngine, start: Start, client: httpx.Client
):
    fake_engine.script_server(die_after=2, die_midway=True, die_code=-signal.SIGSEGV)
    child = start()
    until(lambda: health(client) == 200)
    asked = {"prompt": "a", "n_predict": 10, "stream": True}
    assert client.post("/completion", json=asked).status_code == 200
    with pytest.raises(httpx.RemoteProtocolError):
        client.post("/completion", json=asked)
    assert child.wait(20) == -signal.SIGSEGV


def test_a_hung_completion_leaves_health_at_200(
    fake_engine: FakeEngine, start: Start, client: httpx.Client
):
    fake_engine.script_server(hang="completion")
    start()
    until(lambda: health(client) == 200)
    with pytest.raises(httpx.ReadTimeout):
        client.post("/completion", json={"prompt": "a"}, timeout=0.2)
    assert health(client) == 200
    assert client.get("/slots").json()[0]["is_processing"]


@pytest.mark.parametrize("page", ["health", "slots"])
def test_one_page_can_hang_alone(
    fake_engine: FakeEngine, start: Start, client: httpx.Client, page: str
):
    fake_engine.script_server(hang=page)
    start()
    until(lambda: client_answers(client, "/props"))
    with pytest.raises(httpx.ReadTimeout):
        client.get(f"/{page}", timeout=0.2)
    assert client.post("/completion", json={"prompt": "a"}).status_code == 200


def test_sigterm_can_be_ignored(fake_engine: FakeEngine, start: Start, client: httpx.Client):
    fake_engine.script_server(ignore_sigterm=True)
    child = start()
    until(lambda: health(client) == 200)
    child.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.3)
    assert health(client) == 200


def test_the_log_can_flood_and_then_never_end_its_line(fake_engine: FakeEngine, start: Start):
    fake_engine.script_server(log_flood=2000, log_bytes=300_000)
    child = start()
    assert child.stderr is not None
    lines = [child.stderr.readline() for _ in range(2003)]
    assert lines[-1].endswith("flood 1999\n")
    assert child.stderr.read(300_000) == "x" * 300_000


@pytest.mark.parametrize(("wanted", "status"), [("missing", 501), ("garbage", 200)])
def test_metrics_can_be_missing_or_garbage(
    fake_engine: FakeEngine, start: Start, client: httpx.Client, wanted: str, status: int
):
    fake_engine.script_server(metrics=wanted)
    start()
    until(lambda: health(client) == 200)
    answer = client.get("/metrics")
    assert answer.status_code == status
    assert "# TYPE" not in answer.text


def test_counters_can_start_from_zero_again(
    fake_engine: FakeEngine, start: Start, client: httpx.Client
):
    fake_engine.script_server(metrics="resets")
    start()
    until(lambda: health(client) == 200)
    client.post("/completion", json={"prompt": "a", "n_predict": 7})
    assert "tokens_predicted_total 7\n" in client.get("/metrics").text
    assert "tokens_predicted_total 0\n" in client.get("/metrics").text


def test_a_key_is_asked_for_where_one_is_set(start: Start, client: httpx.Client, isolated: Path):
    keys = isolated / "keys"
    keys.write_text("secret\n")
    start("--api-key-file", str(keys))
    until(lambda: health(client) == 200)
    asked = {"prompt": "a"}
    assert client.post("/completion", json=asked).status_code == 401
    with_key = {"Authorization": "Bearer secret"}
    assert client.post("/completion", json=asked, headers=with_key).status_code == 200


def test_speculation_can_be_off_in_silence(
    fake_engine: FakeEngine, start: Start, client: httpx.Client
):
    fake_engine.script_server(speculation="off")
    start(*DRAFT)
    until(lambda: health(client) == 200)
    assert not client.get("/slots").json()[0]["speculative"]
    assert "spec_decode" not in client.get("/metrics").text


def test_starts_are_recorded_with_their_arguments(fake_engine: FakeEngine, start: Start):
    fake_engine.script_server(exit={"when": "start"})
    child = start("--slots")
    child.wait(20)
    (record,) = fake_engine.starts()
    assert record["pid"] == child.pid
    assert record["argv"][-1] == "--slots"


def bench(fake_engine: FakeEngine, *arguments: str) -> list[str]:
    command = [str(fake_engine.bench), "-m", "m.gguf", "--output-format", "jsonl", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line for line in result.stdout.splitlines() if line.strip()]


def test_bench_skips_what_does_not_fit_and_exits_0(fake_engine: FakeEngine):
    lines = bench(fake_engine, "-npp", "512", "-ntg", "8", "-npl", "1,16,64", "-pps", "-c", "700")
    assert [json.loads(line)["pl"] for line in lines] == [1, 16]


def test_bench_prints_minus_nan_at_depth_0(fake_engine: FakeEngine):
    lines = bench(fake_engine, "-npp", "0", "-ntg", "8", "-npl", "1,1", "-pps")
    assert all('"speed_pp": -nan' in line for line in lines)
    slow, usual = (float(line.split('"t_tg": ')[1].split(",")[0]) for line in lines)
    assert slow > usual


def test_bench_can_stop_in_the_middle_of_a_line(fake_engine: FakeEngine):
    fake_engine.script_bench(half_line=1)
    lines = bench(fake_engine, "-npp", "64", "-ntg", "8", "-npl", "1,2", "-pps")
    assert len(lines) == 2
    assert not lines[1].endswith("}")
