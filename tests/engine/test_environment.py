from __future__ import annotations

from autospec.engine.environment import child_environment


def test_hidden_command_lines_are_taken_out_and_named() -> None:
    base = {
        "PATH": "/bin",
        "LLAMA_ARG_DRAFT_MAX": "16",
        "LLAMA_ARG_CTX_SIZE": "1",
        "LLAMA_API_KEY": "secret",
        "HF_TOKEN": "kept",
        "LD_PRELOAD": "/lib/theirs.so",
        "LLAMA_CACHE": "/var/cache/llama",
    }
    environment, removed = child_environment(base, {"GGML_BATCH_COSTS": "1,2"})
    assert removed == ("LLAMA_API_KEY", "LLAMA_ARG_CTX_SIZE", "LLAMA_ARG_DRAFT_MAX")
    assert environment == {
        "PATH": "/bin",
        "HF_TOKEN": "kept",
        "LD_PRELOAD": "/lib/theirs.so",
        "LLAMA_CACHE": "/var/cache/llama",
        "GGML_BATCH_COSTS": "1,2",
    }


def test_what_we_add_wins_and_is_never_scrubbed() -> None:
    environment, removed = child_environment(
        {"A": "1", "LLAMA_ARG_X": "old"}, {"A": "2", "LLAMA_ARG_X": "ours"}
    )
    assert environment == {"A": "2", "LLAMA_ARG_X": "ours"}
    assert removed == ("LLAMA_ARG_X",)
