"""Every fault of a file, with its line; and what a sound file means."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty import MODEL, PATH, fault, faults

from autospec.config.faults import ConfigFaults
from autospec.config.load import MOST_BYTES, find_config, load, parse
from autospec.engine.launch import Launch
from autospec.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("target.gguf", "draft.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    (tmp_path / "keys").write_text("# for the team\nsecret\n")
    return tmp_path


def test_an_empty_file_only_lacks_a_model() -> None:
    assert str(fault("")) == (
        f"{PATH}:1: models: no model is configured (expected at least one [models.NAME])"
    )


def test_a_model_alone_is_enough() -> None:
    config = parse(MODEL, path=PATH)

    assert str(config.address("chat")) == "127.0.0.1:8080"
    assert config.models["chat"].launch("chat") == Launch("chat", hf="a/b")
    assert config.calibration.budget == 120.0
    assert config.engine.start_timeout is None


def test_reads_everything(folder: Path) -> None:
    file = folder / "autospec.toml"
    file.write_text(
        """
        [server]
        listen = "0.0.0.0:9000"
        api_key_file = "keys"
        [engine]
        path = "."
        live_policy = "auto"
        environment = { CUDA_VISIBLE_DEVICES = 0, EMPTY = "" }
        start_timeout = "5m"
        [models.chat]
        path = "target.gguf"
        draft = "./draft.gguf"
        context = 4096
        slots = 2
        extra = ["-ngl", 99, "-ot", 'blk\\.1=CPU', "--yarn-ext-factor", -1.0]
        type = ["draft-simple"]
        thresholds = [0, 0.5, 1]
        n_max = 3
        [models.other]
        hf = "user/model:Q4_K_M"
        extra = "--chat-template 'a b' -fa on"
        type = "off"
        enabled = false
        [calibration]
        budget = 30
        depths = [0, 512]
        """
    )

    config = load(file)

    chat, other = config.models["chat"], config.models["other"]
    assert chat.launch("chat") == Launch(
        "chat",
        model=folder / "target.gguf",
        draft=folder / "draft.gguf",
        context=4096,
        slots=2,
        extra=("-ngl", "99", "-ot", r"blk\.1=CPU", "--yarn-ext-factor", "-1.0"),
    )
    assert chat.thresholds == (0.0, 0.5, 1.0)
    assert chat.type == ("draft-simple",)
    assert other.extra == ("--chat-template", "a b", "-fa", "on")
    assert other.type == "off"
    assert set(config.enabled_models()) == {"chat"}
    assert config.engine.environment == {"CUDA_VISIBLE_DEVICES": "0", "EMPTY": ""}
    assert config.engine.start_timeout == 300
    assert (config.calibration.budget, config.calibration.depths) == (30, (0, 512))
    endpoint = config.address("chat").endpoint(config.server.api_key_file)
    assert (endpoint.host, endpoint.port, endpoint.api_key_file) == (
        "0.0.0.0",
        9000,
        folder / "keys",
    )


def test_reports_all_faults_at_once_in_the_order_of_lines(folder: Path) -> None:
    text = """\
[models.chat]
path = "targt.gguf"
slots = "two"
n-max = 3
extra = [
  "-ngl", "99",
  "--port", "1",
  true,
]

[server]
listen = "0.0.0.0:80"

[retun]
after = "1m"

[calibration]
budget = "soon"
max_draft = 4

[models.code]
n_max = 9
p_min = 1.5
"""

    found = faults(text, folder / "autospec.toml")

    assert [(one.line, one.key, one.nearest) for one in found] == [
        (2, "models.chat.path", "target.gguf"),
        (3, "models.chat.slots", None),
        (4, "models.chat.n-max", "n_max"),
        (7, "models.chat.extra[2]", None),
        (8, "models.chat.extra[4]", None),
        (12, "server.listen", None),
        (14, "retun", "retune"),
        (18, "calibration.budget", None),
        (21, "models.code", None),
        (22, "models.code.n_max", None),
        (23, "models.code.p_min", None),
    ]
    assert found[1].expected == "a whole number from 1 to 256"


@pytest.mark.parametrize(
    ("table", "line", "nearest"),
    [
        ("[model.chat]", 1, "models"),
        ("[models.a]\nhf='a/b'\nctx-size = 1", 3, "context"),
        ("[models.a]\nhf='a/b'\nslot = 1", 3, "slots"),
        ("[server]\nport = 1", 2, "listen"),
        ("[server]\nn_max = 1", 2, "models.NAME.n_max"),
        ("[engine]\nbudget = 1", 2, "calibration.budget"),
        ("[engine]\nqqq = 1", 2, None),
    ],
)
def test_an_unknown_key_comes_with_the_nearest_valid_one(
    table: str, line: int, nearest: str | None
) -> None:
    found = [one for one in faults(table) if one.message == "unknown key"]

    assert [(one.line, one.nearest) for one in found] == [(line, nearest)]


def test_a_misspelt_model_path_is_one_fault_not_two() -> None:
    assert fault('[models.a]\npth = "x"').nearest == "path"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb = \n", 2),
        ("[a]\nb = 1\nb = 2\n", 3),
        ('a = "open\n', 1),
        ("a = 1\n[[[", 2),
        ("x = [1,\n2,\n\n", 2),
        ("\n\n=", 3),
        ("a = 1979-99-99", 1),
    ],
)
def test_a_fault_of_syntax_has_its_line(text: str, line: int) -> None:
    found = fault(text)

    assert found.line == line
    assert found.message.startswith("is not TOML: ")


def test_nesting_without_end_is_a_fault() -> None:
    assert "nested" in fault("a = " + "[" * 100_000).message


def test_a_number_without_end_is_a_fault() -> None:
    assert "is not TOML" in fault("a = " + "9" * 10_000).message


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        ('path = "target.gguf"', 2, "a model has either path or hf"),
        ('draft = "draft.gguf"\ndraft_hf = "a/b"', 4, "either draft or draft_hf"),
        ("n_max = 4\nn_min = 5", 4, "5 is more than n_max"),
        ("n_max = 17", 3, "beyond the drafts that are measured"),
        ("n_max = 2\nthresholds = [0.1]", 4, "holds 1 values"),
        ("thresholds = [0.1]\np_min = 0.5", 4, "no meaning beside thresholds"),
        ('type = "draft-simple"', 3, "needs a draft model"),
        ('extra = ["-ngl", "1",\n"--api-key=secret"]', 4, '"--api-key" is refused'),
        ('extra = "--tools all"', 3, '"--tools" is refused'),
        ('extra = "a \'b"', 3, "cannot be split"),
        ('listen = "0.0.0.0:1"', 3, "no key guards it"),
        ("thresholds = []", 3, "holds 0 values"),
        ("p_min = nan", 3, "out of range"),
        ("slots = 1.0", 3, "1.0 is a number"),
        ("enabled = 1", 3, "1 is a whole number"),
        ("context = true", 3, "true is a boolean"),
        ("extra = 1979-05-27", 3, "1979-05-27 is a date or time"),
        ('draft = ""', 3, "is empty"),
        ('draft = "a\\u0000b"', 3, "NUL"),
        ('draft = "' + "x" * 5000 + '"', 3, "does not exist"),
        ('draft = "."', 3, "is not a file"),
    ],
)
def test_a_fault_of_one_model(folder: Path, lines: str, line: int, message: str) -> None:
    text = f'{MODEL}{lines}\n[engine]\nlive_policy = "auto"\n'
    found = faults(text, folder / "a.toml")

    assert [one.line for one in found] == [line]
    assert message in found[0].message
    assert "secret" not in str(found[0])


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[server]\napi_key_file = "empty"', "server.api_key_file"),
        ('[server]\napi_key_file = "gone"', "server.api_key_file"),
        ('[engine]\npath = "gone"', "engine.path"),
        ('[engine]\nlive_policy = "on"', "engine.live_policy"),
        ('[engine.environment]\nLLAMA_ARG_PORT = "1"', "engine.environment.LLAMA_ARG_PORT"),
        ('[engine.environment]\nLLAMA_API_KEY = "1"', "engine.environment.LLAMA_API_KEY"),
        ('[engine.environment]\n"A-B" = "1"', "engine.environment.A-B"),
        ('[engine]\nenvironment = "A=B"', "engine.environment"),
        ('[models."a b"]\nhf = "a/b"', "models.a b"),
        ("[calibration]\ndepths = [-1]", "calibration.depths[0]"),
        ("[calibration]\nmax_draft = 65", "calibration.max_draft"),
        ("[retune]\nmin_gain = -0.1", "retune.min_gain"),
    ],
)
def test_a_fault_of_another_table(folder: Path, text: str, key: str) -> None:
    (folder / "empty").write_text("# no key here\n\n")

    found = fault(f"{MODEL}{text}", folder / "a.toml")

    assert (found.line, found.key) == (3 if text.startswith("[models") else 4, key)


def test_pinned_types_are_written_as_they_were_read() -> None:
    pinned = parse(MODEL + 'type = "draft-mtp, ngram-mod"', path=PATH).models["chat"]

    assert pinned.model_dump()["type"] == ("draft-mtp", "ngram-mod")
    assert pinned.model_dump(mode="json")["type"] == ["draft-mtp", "ngram-mod"]


def test_thresholds_need_the_live_policy() -> None:
    text = MODEL + 'thresholds = [0.1]\n[engine]\nlive_policy = "off"\n'

    assert "live policy" in fault(text).message
    parse(MODEL + "thresholds = [0.1]", path=PATH)


def test_other_machines_are_let_in_only_with_a_key(folder: Path) -> None:
    text = MODEL + '[server]\nlisten = "0.0.0.0:8080"\n'

    assert "no key guards it" in fault(text, folder / "a.toml").message
    parse(text + 'api_key_file = "keys"', path=folder / "a.toml")


def test_home_and_the_folder_of_the_file_are_understood(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))

    model = parse('[models.a]\npath = "~/target.gguf"', path=PATH).models["a"]

    assert model.path == folder / "target.gguf"


def test_a_file_that_may_not_be_read_is_not_called_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)

    assert "may not be read" in fault('[models.a]\npath = "target.gguf"', folder / "a").message


def test_only_text_of_a_sensible_size_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    for raw, message in (
        (b"a = 1\nb = '\xff'", "2: is not UTF-8"),
        (b"#" * (MOST_BYTES + 1), "1: the file is larger"),
        (b"\xef\xbb\xbf" + MODEL.encode() + b"x=1", "3: models.chat.x: unknown key"),
    ):
        file.write_bytes(raw)
        with pytest.raises(ConfigFaults, match=f"a.toml:{message}"):
            load(file)


@pytest.mark.parametrize("place", ["gone.toml", "."])
def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / place)


class TestFinding:
    @pytest.fixture
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        monkeypatch.delenv("AUTOSPEC_CONFIG", raising=False)
        (tmp_path / "autospec").mkdir()
        return tmp_path

    def test_the_named_file_comes_first_then_the_variable_then_the_folder(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        users, named, explicit = (home / name for name in ("autospec/autospec.toml", "n", "e"))
        for file in (users, named, explicit):
            file.touch()

        assert find_config(None) == users
        monkeypatch.setenv("AUTOSPEC_CONFIG", str(named))
        assert find_config(None) == named
        assert find_config(explicit) == explicit

    def test_every_place_looked_at_is_said(self, home: Path) -> None:
        with pytest.raises(ConfigError) as raised:
            find_config(None)

        assert f"{home}/autospec/autospec.toml" in str(raised.value)
        assert "/etc/autospec/autospec.toml" in str(raised.value)
        assert "autospec import" in str(raised.value.hint)
        assert "serve --" in str(raised.value.hint)

    def test_a_named_file_must_exist(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (home / "autospec/autospec.toml").touch()

        with pytest.raises(ConfigError, match=r"gone \(--config\)"):
            find_config(home / "gone")
        monkeypatch.setenv("AUTOSPEC_CONFIG", "/gone")
        with pytest.raises(ConfigError, match=r"gone \(AUTOSPEC_CONFIG\)"):
            find_config(None)
