"""A stand-in for llama-server, for the faults that a real one cannot be asked for.

The fixture `fake_engine` makes a folder with a program `llama-server` that runs `main`. It
reads its script from `llama-server.json` beside the program at each start, and appends every
start to `llama-server.starts.jsonl`. Keys of the script, all optional:

    load_seconds    /health says 503 for so long
    exit            {"when": "start" | "loading", "code": N, "log": [...]}; -N dies of signal N
    die_after       exits with `die_code` (default 1; -N: signal N) after so many completions
    die_midway      true: dies in the middle of the completion that `die_after` names
    hang            "completion" (health stays 200), "health" or "slots"
    deaf            true: completions are taken and never begun; slots stay idle
    wedge_after     after so many completions only /health is answered
    prefill_seconds every prompt takes so long; /slots is answered only between its batches of
                    `batch_seconds` (default: the whole prompt). The processor works, a little
    ignore_sigterm  true: only SIGKILL ends it
    lingers         true: told to end it stops listening, and goes on for ever
    log_flood       lines logged once ready; log_bytes: one line of so many bytes, never ended
    metrics         "missing" (501), "garbage", or "resets" (starts from zero at each scrape)
    speculation     "off": logs an error and then serves without it
    cached          tokens of each prompt that are said to come from the cache
    survival        [S_1, S_2, ...] probability that the first i drafted tokens are accepted
    token_ms        time of one round of decoding (default 1)
    fail_from       {"flag": F, "code": N, "log": [...]}: dies while loading if given that flag
    context_limit   dies while loading of a lack of memory with a context above it
    request_limit   dies of a lack of memory at its first completion with a context above it
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fake_state import Json, Options, State, Tally

VERSION = "version: 0.6.0-dev (build 11434, commit f4ke)\nbuilt with Fake 1.0 for Linux x86_64\n"
HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
--version                               show version and build info
-t,    --threads N                      CPU threads (default: -1)
                                        (env: LLAMA_ARG_THREADS)
-c,    --ctx-size N                     size of the context (default: 0)
                                        (env: LLAMA_ARG_CTX_SIZE)
-m,    --model FNAME                    model file
--log-jsonl                             JSON log lines on stdout
-lv,   --verbosity N                    log verbosity (default: 3)

----- server params -----

-np,   --parallel N                     number of slots (default: -1)
--host HOST                             address, or a path ending in .sock (default: 127.0.0.1)
--port PORT                             port (default: 8080)
--api-key-file FNAME                    file with API keys
--metrics                               enable the metrics endpoint (default: disabled)
--slot-save-path PATH                   path to save slot kv cache (default: disabled)
--slots, --no-slots                     expose slot state (default: enabled)

----- speculative params -----

--spec-draft-n-max N                    tokens to draft (default: 3)
--spec-draft-n-min N                    fewest tokens to draft (default: 0)
--spec-draft-p-min, --draft-p-min P     least probability (default: 0.00)
--spec-draft-ngl, -ngld, --gpu-layers-draft N
                                        layers of the draft on the GPU (default: auto)
--spec-draft-model, -md, --model-draft FNAME
                                        draft model (default: unused)
--spec-type none,draft-simple,draft-mtp,ngram-simple,ngram-mod
                                        kinds of speculation (default: none)
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max
--draft-min, --draft-n-min N            the argument has been removed. use --spec-draft-n-min
"""
REMOVED = {"--draft", "--draft-n", "--draft-max", "--draft-min", "--draft-n-min"}


def log(line: str) -> None:
    sys.stderr.write(f"0.00.000.001 I srv  {line}\n")
    sys.stderr.flush()


def end(code: int) -> None:
    """Exit with `code`, or die of signal -code."""
    if code < 0:
        os.kill(os.getpid(), -code)
        time.sleep(5)
    os._exit(code)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "llama.cpp"
    server: Server

    @property
    def state(self) -> State:
        return self.server.state

    def log_message(self, *_: object) -> None:
        pass

    def send(self, status: int, body: object, kind: str = "application/json") -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status: int, kind: str, message: str) -> None:
        self.send(status, {"error": {"code": status, "type": kind, "message": message}})

    def do_GET(self) -> None:
        path = self.path.split("?")[0].removeprefix("/v1").removeprefix("/")
        if self.state.script.get("hang") == path:
            time.sleep(3600)
        if self.state.leaving:
            self.close_connection = True
            return
        if path in ("slots", "metrics"):
            self.state.pass_queue()
        if not self.state.ready:
            self.refuse(503, "unavailable_error", "Loading model")
        elif path == "metrics":
            self.send_metrics()
        elif path in (pages := self.state.pages()):
            self.send(200, pages[path])
        else:
            self.refuse(404, "not_found_error", "File Not Found")

    def send_metrics(self) -> None:
        wanted = self.state.script.get("metrics")
        if wanted == "missing" or not self.state.options.metrics:
            self.refuse(501, "not_supported_error", "started without --metrics")
        elif wanted == "garbage":
            self.send(200, "llamacpp:tokens_predicted_total nan\n\x00{{{\n", "text/plain")
        else:
            with self.state.lock:
                text = self.state.metrics()
                if wanted == "resets":
                    self.state.zero()
            self.send(200, text, "text/plain; version=0.0.4")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        face = self.path.removeprefix("/v1")
        if self.state.options.keys and key not in self.state.options.keys:
            self.refuse(401, "authentication_error", "Invalid API Key")
        elif not self.state.ready:
            self.refuse(503, "unavailable_error", "Loading model")
        elif face.startswith("/slots/") and self.state.options.slot_folder:
            self.keep(face, json.loads(raw)["filename"])
        elif face not in ("/completion", "/completions", "/chat/completions"):
            self.refuse(404, "not_found_error", "File Not Found")
        else:
            try:
                asked = json.loads(raw)
            except ValueError as error:
                self.refuse(400, "invalid_request_error", f"parse error: {error}")
                return
            if not isinstance(asked, dict):
                self.refuse(400, "invalid_request_error", "no JSON object")
                return
            if self.state.script.get("deaf"):
                time.sleep(3600)
            slot = self.state.take_slot()
            try:
                self.complete(asked, face if self.path.startswith("/v1") else "", slot)
            finally:
                self.state.give_slot(slot)

    def keep(self, face: str, name: str) -> None:
        """Save a slot as the number of its tokens, or restore it."""
        slot = int(face.partition("?")[0].rpartition("/")[2])
        file = Path(self.state.options.slot_folder) / name
        if face.endswith("=save"):
            file.write_text(str(self.state.progress[slot]))
            self.send(200, {"id_slot": slot, "n_saved": self.state.progress[slot]})
        else:
            self.state.progress[slot] = int(file.read_text())
            self.send(200, {"id_slot": slot, "n_restored": self.state.progress[slot]})

    def complete(self, asked: Json, face: str, slot: int) -> None:
        script = self.state.script
        if script.get("hang") == "completion":
            time.sleep(3600)
        if self.state.options.context > script.get("request_limit", self.state.options.context):
            leave({"log": ["CUDA error: out of memory"], "code": -signal.SIGABRT})
        self.state.pass_queue()
        self.state.prefill(slot)
        dying = self.state.requests == script.get("die_after")
        wanted = int(asked.get("n_predict") or asked.get("max_tokens") or 16)
        stream = bool(asked.get("stream"))
        if stream:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
        seen = Tally(self.state.survival)
        text = ""
        for piece in self.state.decode(wanted, seen):
            if dying and script.get("die_midway") and seen.predicted > wanted // 2:
                end(script.get("die_code", 1))
            text += piece
            self.state.progress[slot] += 1
            if stream:
                self.event(chunk(face, piece))
        prompt = str(asked.get("prompt") or asked.get("messages") or "")
        timings = self.state.count(len(prompt.split()), seen)
        if stream:
            self.event(chunk(face, "", slot=slot, timings=timings))
            if face:
                self.piece(b"data: [DONE]\n\n")
            self.piece(b"")
        else:
            self.send(200, chunk(face, text, slot=slot, timings=timings))
        if dying:
            end(script.get("die_code", 1))

    def event(self, body: Json) -> None:
        self.piece(f"data: {json.dumps(body)}\n\n".encode())

    def piece(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def chunk(face: str, text: str, *, slot: int = -1, timings: Json | None = None) -> Json:
    """One answer, or one piece of a streamed one, as the endpoint `face` words it."""
    done: Json = {"timings": timings} if timings else {}
    if face == "/chat/completions":
        message = {"role": "assistant", "content": text}
        return {"choices": [{"index": 0, "message": message, "delta": message}], **done}
    if face == "/completions":
        return {"choices": [{"index": 0, "text": text}], **done}
    if timings:
        done |= {"tokens_predicted": timings["predicted_n"], "stop_type": "limit"}
    return {"content": text, "stop": bool(timings), "id_slot": slot, **done}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: str | tuple[str, int], state: State) -> None:
        self.state = state
        self.address_family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        super().__init__(address, Handler)  # type: ignore[arg-type]

    def handle_error(self, *_: object) -> None:
        """A client that went away is no news."""

    def server_bind(self) -> None:
        if self.address_family == socket.AF_UNIX:
            self.socket.bind(self.server_address)
            self.server_name, self.server_port = "unix", 0
        else:
            super().server_bind()


def serve(options: Options, script: Json) -> None:
    state = State(options, script)
    unix = options.host.endswith(".sock")
    address = options.host if unix else (options.host, options.port)
    try:
        server = Server(address, state)
    except OSError as error:
        log(f"couldn't bind HTTP server socket, hostname: {options.host}: {error}")
        end(1)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    log(f"loading model '{options.model}'")
    time.sleep(script.get("load_seconds", 0))
    fate = script.get("exit", {})
    if fate.get("when") == "loading":
        leave(fate)
    if script.get("fail_from", {}).get("flag") in options.argv:
        leave(script["fail_from"])
    if options.context > script.get("context_limit", options.context):
        leave({"log": ["ggml_backend_cpu_buffer_type_alloc_buffer: out of memory"]})
    stop = threading.Event()
    if script.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if options.types and not state.speculative:
        log("draft model vocab must match target model to use speculation: serving without it")
    state.ready = True
    log("model loaded")
    log(f"listening on {options.host}:{options.port}")
    for number in range(script.get("log_flood", 0)):
        log(f"flood {number}")
    sys.stderr.write("x" * script.get("log_bytes", 0))
    sys.stderr.flush()
    while not stop.wait(0.05):
        pass
    clean_up(server, options, script)


def clean_up(server: Server, options: Options, script: Json) -> None:
    log("cleaning up before exit...")
    if options.host.endswith(".sock"):
        Path(options.host).unlink(missing_ok=True)
    if script.get("lingers"):
        server.state.leaving = True
        server.socket.close()
        threading.Event().wait()
    end(0)


def leave(fate: Json) -> None:
    for line in fate.get("log", []):
        log(line)
    end(fate.get("code", 1))


def main(program: Path, argv: list[str]) -> None:
    if "--help" in argv or "-h" in argv:
        sys.stdout.write(HELP)
        return
    if "--version" in argv:
        sys.stderr.write(VERSION)
        return
    file = program.with_suffix(".json")
    script = json.loads(file.read_text()) if file.exists() else {}
    with program.with_suffix(".starts.jsonl").open("a") as starts:
        starts.write(json.dumps({"pid": os.getpid(), "argv": argv, "env": Json(os.environ)}) + "\n")
    fate = script.get("exit", {})
    if fate.get("when") == "start":
        leave(fate)
    if gone := REMOVED.intersection(argv):
        log(f"error: the argument {min(gone)} has been removed")
        end(1)
    serve(Options(argv), script)
