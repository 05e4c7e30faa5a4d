from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.engine.failures import clean_line, explain_exit, speculation_fault

MISSING = [
    "0.00.004.696 I srv    load_model: loading model '/nope.gguf'",
    (
        "0.00.005.241 E gguf_init_from_file: failed to open GGUF file '/nope.gguf' "
        "(No such file or directory)"
    ),
    (
        "0.00.005.349 E llama_model_load: error loading model: llama_model_loader: "
        "failed to load model from /nope.gguf"
    ),
    "0.00.005.362 E llama_model_load_from_file_impl: failed to load model",
    "0.00.005.427 E srv    load_model: failed to load model, '/nope.gguf'",
    "0.00.005.428 I srv    operator(): operator(): cleaning up before exit...",
    "0.00.005.800 E srv  llama_server: exiting due to model loading error",
]
TRUNCATED = [
    (
        "0.00.034.215 E llama_model_load: error loading model: tensor 'token_embd.weight' data is "
        "not within the file bounds, model is corrupted or incomplete"
    ),
    "0.00.034.236 E llama_model_load_from_file_impl: failed to load model",
    "0.00.034.856 E srv  llama_server: exiting due to model loading error",
]
NO_MEMORY = [
    "0.00.262.314 E ggml_aligned_malloc: insufficient memory (attempted to allocate 43948.12 MB)",
    (
        "0.00.270.297 E llama_init_from_model: failed to initialize the context: failed to "
        "allocate buffer for kv cache"
    ),
    "0.00.271.022 E srv  llama_server: exiting due to model loading error",
]
BUSY = [
    (
        "0.00.003.188 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, "
        "port: 18765"
    ),
    "0.00.003.282 E srv  llama_server: exiting due to HTTP server error",
]
NO_NETWORK = [
    "0.00.014.338 E get_repo_commit: error: HTTPLIB failed: Could not establish connection",
    "0.00.028.458 E srv    load_model: failed to load model, ''",
    "0.00.028.920 E srv  llama_server: exiting due to model loading error",
]
REMOVED = [
    (
        'error while handling argument "--draft-max": the argument has been removed. '
        "use --spec-draft-n-max or --spec-ngram-mod-n-max"
    ),
    "",
    "usage:",
    "to show complete usage, run with -h",
]
OLD_MISMATCH = [
    "load_model: the draft model 'd.gguf' is not compatible with the target model 't.gguf'",
    "main: exiting due to model loading error",
]


@pytest.mark.parametrize(
    ("returncode", "tail", "kind", "words"),
    [
        (0, ["cleaning up"], "clean", "cleanly"),
        (1, MISSING, "missing_model", "/nope.gguf"),
        (1, TRUNCATED, "bad_model", "not within the file bounds"),
        (1, NO_MEMORY, "out_of_memory", "43948.12 MB"),
        (1, BUSY, "cannot_listen", "port: 18765"),
        (1, NO_NETWORK, "download_failed", "Could not establish connection"),
        (1, REMOVED, "bad_flag", "--spec-draft-n-max"),
        (1, ["error: invalid argument: --nope"], "bad_flag", "--nope"),
        (1, OLD_MISMATCH, "vocabulary_mismatch", "d.gguf"),
        (1, ["what a pity"], "unknown", "what a pity"),
        (1, [], "unknown", "it said nothing"),
        (
            127,
            ["llama-server: error while loading shared libraries: libllama.so.0: cannot open"],
            "missing_library",
            "libllama.so.0",
        ),
        (
            127,
            ["x: symbol lookup error: x: undefined symbol: ggml_new"],
            "missing_library",
            "ggml_new",
        ),
        (-4, ["loading"], "illegal_instruction", "SIGILL"),
        (132, [], "illegal_instruction", "SIGILL"),
        (-9, ["slot launch"], "killed", "SIGKILL"),
        (-15, [], "terminated", "SIGTERM"),
        (143, [], "terminated", "SIGTERM"),
        (-11, [], "crash", "SIGSEGV"),
        (-77, [], "crash", "signal 77"),
        (
            -6,
            ["terminate called after throwing an instance", "  what():  bad things"],
            "crash",
            "bad things",
        ),
        (
            -6,
            ["/src/ggml.c:100: GGML_ASSERT(n_tokens > 0) failed"],
            "assertion",
            "n_tokens > 0",
        ),
        (
            -6,
            ["CUDA error: an illegal memory access was encountered", "ggml-cuda.cu:98: CUDA error"],
            "device_failed",
            "illegal memory access",
        ),
    ],
)  # fmt: skip
def test_an_exit_is_named(returncode: int, tail: list[str], kind: str, words: str) -> None:
    cause = explain_exit(returncode, tail)
    assert cause.kind == kind
    assert words in cause.sentence


@pytest.mark.parametrize(
    "line",
    [
        "allocating 20000.00 MiB on device 0: cudaMalloc failed: out of memory",
        "CUDA error: out of memory",
        "alloc_tensor_range: failed to allocate CUDA0 buffer of size 1879048192",
        "ggml_gallocr_reserve_n_impl: failed to allocate ROCm0 buffer of size 99",
        "error loading model: unable to allocate CUDA0 buffer",
        "ggml_vulkan: Device memory allocation of size 1879048192 failed.",
        "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
        "UR error: UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "graph_reserve: failed to allocate compute buffers",
        "  what():  std::bad_alloc",
    ],
)
@pytest.mark.parametrize("returncode", [1, -6])
def test_every_backends_words_for_out_of_memory_are_known(line: str, returncode: int) -> None:
    """Field case 7."""
    assert explain_exit(returncode, ["loading", line, "bye"]).kind == "out_of_memory"


@pytest.mark.parametrize(
    "line",
    [
        "W srv  prompt_save: failed to allocate memory for prompt cache state: bad",
        "W warning: failed to mlock 1234-byte buffer: Cannot allocate memory",
        "E load: failed to allocate host buffer for async uploads for device CUDA0",
    ],
)
def test_complaints_that_nobody_dies_of_are_no_cause(line: str) -> None:
    assert explain_exit(-11, [line]).kind == "crash"


def test_lines_lose_colour_and_prefix() -> None:
    assert clean_line("\x1b[31m0.00.034.856 E srv  gone\x1b[0m\n") == "srv  gone"
    assert clean_line("E srv  gone") == "srv  gone"
    assert clean_line("plain words") == "plain words"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            (
                "0.01 W spec   are_compatible: draft model vocab type must match target model to "
                "use speculation but vocab_type_dft = 1 while vocab_type_tgt = 2"
            ),
            "vocabulary does not fit",
        ),
        ("E srv load_model: the target and draft vocabs are not compatible", "vocabulary"),
        (
            "W spec : draft model bos tokens must match target model to use speculation. add: 1",
            "vocabulary",
        ),
        (
            (
                "0.00.825.495 E srv    load_model: failed to initialize speculative decoding "
                "context: draft-simple requires a draft context"
            ),
            "context could not be set up",
        ),
        ("W srv    load_model: speculative decoding not supported by this context", "take tokens"),
        ("common_speculative_init: no implementations specified for speculative decoding", "type"),
        ("srv load_model: failed to load draft model, 'd.gguf'", "draft model could not"),
    ],
)
def test_the_log_tells_why_nothing_speculates(line: str, words: str) -> None:
    """Field case 1."""
    fault = speculation_fault(["I srv  loading model", line, "I srv  listening"])
    assert fault is not None
    assert words in fault
    assert clean_line(line)[:60] in fault


def test_the_first_cause_is_told_not_its_consequence() -> None:
    fault = speculation_fault(
        [
            "W spec : draft model vocab type must match target model to use speculation",
            "E srv : failed to initialize speculative decoding context: x",
        ]
    )
    assert fault is not None
    assert "vocabulary" in fault


def test_a_build_that_translates_between_vocabularies_does_speculate() -> None:
    lines = [
        "draft model vocab type must match target model to use speculation",
        (
            "the draft model 'd' is not compatible with the target model 't'. "
            "tokens will be translated between the draft and target models."
        ),
    ]
    assert speculation_fault(lines) is None


def test_a_healthy_log_has_no_fault() -> None:
    lines = [
        "I srv    load_model: speculative decoding context initialized",
        "T srv    load_model: speculative decoding will use checkpoints",
        "I srv  llama_server: listening on http://127.0.0.1:9000",
    ]
    assert speculation_fault(lines) is None


@given(st.integers(-64, 255), st.lists(st.text(max_size=200), max_size=20))
def test_any_end_is_explained(returncode: int, tail: list[str]) -> None:
    cause = explain_exit(returncode, tail)
    assert cause.sentence
    assert len(cause.sentence) < 1000
    speculation_fault(tail)


@pytest.mark.parametrize(
    ("line", "kind", "named"),
    [
        ("Failed to connect to 10.0.0.2:50052", "worker_lost", "the worker 10.0.0.2:50052"),
        ("RPC handshake failed for box:1", "worker_lost", "the worker box:1"),
        (
            "/src/ggml-rpc.cpp:1: Remote RPC server crashed or returned malformed response",
            "worker_lost",
            "a worker on another machine (rpc)",
        ),
        ("E RPC server version mismatch: 2.0.0", "worker_unfit", "different builds"),
    ],
)
def test_a_worker_is_blamed_for_what_looks_like_a_crash(line: str, kind: str, named: str) -> None:
    cause = explain_exit(-6, ["I something before", line, "GGML_ASSERT(x) failed"])
    assert cause.kind == kind
    assert named in cause.sentence
