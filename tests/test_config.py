"""`ga-dspy.toml`: who reads it, what stands above it, how it is written, and that no key is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import dspy
import pytest

import ga_dspy
from ga_dspy.cli.config import Setting, find_config, read_config
from ga_dspy.cli.console import Console
from ga_dspy.demo import corpus
from ga_dspy.errors import InputError

Command = Callable[..., subprocess.CompletedProcess[str]]
QUESTION = "Which river does Bath lie on?"
KEY = "sk-a1b2c3d4e5f6g7h8i9j0k1l2"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("config") / "index"
    few = [passage for passage in corpus() if "Bath" in passage.content]
    ga_dspy.Index.build(few, folder, kind="sparse")
    return folder


@pytest.fixture
def here(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Path]]:
    """A git repository with an index, which is the working directory; writes its settings file."""
    before = dict(os.environ)
    root = tmp_path / "root"
    (root / ".git").mkdir(parents=True)
    (root / "my-index").symlink_to(index)
    monkeypatch.chdir(root)

    def write(text: str) -> Path:
        (root / "ga-dspy.toml").write_text(text)
        return root

    yield write
    os.environ.clear()
    os.environ.update(before)


Here = Callable[[str], Path]


def in_effect(given: tuple[str, ...] = ()) -> dict[str, object]:
    return {name: one.value for name, one in read_config(find_config(), given).items()}


def test_the_settings_file_replaces_options_of_ask(command: Command, here: Here) -> None:
    root = here('index = "my-index"\nprogram = "vanilla-rag"\n[settings]\nk = 2\n')
    done = command("ask", QUESTION, "--json", cwd=root)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["passages"]) == 2


def test_index_graph_and_arena_commands_also_read_the_settings_file(
    command: Command, here: Here
) -> None:
    root = here('index = "my-index"\ngraph = "my-graph"\n')
    built = ("graph", "build", "--out", "my-graph")
    (root / "q.csv").write_text("question,answer\nWho?,Nobody\n")
    arena = ("arena", "--dataset", "qa", "--data", "q.csv", "--out", "runs")
    for words in (("index", "info"), built, ("graph", "stats"),
                  (*arena, "--programs", "vanilla-rag,graph-rag")):  # fmt: skip
        done = command(*words, cwd=root)
        assert done.returncode == 0, (words, done.stderr, done.stdout)
    assert {path.name for path in (root / "runs").rglob("*-rag*")} == {"vanilla-rag", "graph-rag"}


def test_options_override_the_environment_which_overrides_the_file(
    command: Command, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = here('index = "my-index"\nprogram = "ircot"\nlm = "openai/of-the-file"\n')
    assert in_effect()["program"] == "ircot"
    monkeypatch.setenv("GA_DSPY_PROGRAM", "closed-book")
    monkeypatch.setenv("GA_DSPY_LM", "ga-dspy/extractive answer=ga-dspy/extractive")
    assert in_effect()["program"] == "closed-book"
    assert in_effect()["lm"] == ["ga-dspy/extractive", "answer=ga-dspy/extractive"]
    done = command("ask", QUESTION, "--program", "vanilla-rag", cwd=root)
    assert "quoted in a passage" in done.stdout, done.stderr


def test_overriding_an_option_drops_the_options_that_belong_to_it(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here(
        'lm = "openai/local"\napi_base = "http://localhost:8000/v1"\nindex = "my-index"\n'
        'graph = "g"\nprogram = "ircot"\nartifact = "artifacts/mine"\n[settings]\nk = 3\n'
    )
    assert in_effect().keys() >= {"api_base", "graph", "artifact", "settings"}
    assert "api_base" not in in_effect(("lm",))  # else a hosted model is asked at the local server
    assert "graph" not in in_effect(("index",))
    assert not {"artifact", "settings"} & in_effect(("program",)).keys()
    assert in_effect(("api_base",))["lm"] == ["openai/local"]
    monkeypatch.setenv("GA_DSPY_LM", "openai/gpt-4.1-mini")
    assert "api_base" not in in_effect()


def test_the_nearest_file_up_to_the_root_of_the_repository_is_read(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = here('index = "my-index"\n')
    (tmp_path / "ga-dspy.toml").write_text('index = "a-stranger"\n')
    below = root / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert find_config() == root / "ga-dspy.toml"
    assert in_effect()["index"] == root / "my-index"  # relative to the file
    (root / "a" / "ga-dspy.toml").write_text("")
    assert find_config() == root / "a" / "ga-dspy.toml"
    (root / "a" / "ga-dspy.toml").unlink()
    (root / "ga-dspy.toml").unlink()
    assert find_config() is None


def test_outside_of_repository_and_home_only_the_working_directory_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ga-dspy.toml").write_text("")
    (tmp_path / "below").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path / "below")
    assert find_config() is None
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_config() == tmp_path / "ga-dspy.toml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'indx = "my-index"',
            "ga-dspy.toml: setting 'indx' is unknown. Expected one of lm, api_base, index",
        ),
        ('indx = "my-index"', "Did you mean index?"),
        ("lm = 5", "ga-dspy.toml: lm has the wrong type. Expected a valid list"),
        ("index = 5", "ga-dspy.toml: index has the wrong type"),
        (
            'program = "grph-anchor"',
            "method 'grph-anchor' is unknown. Expected one of closed-book",
        ),
        ('program = "grph-anchor"', "Did you mean graph-anchor?"),
        (
            "[settings]\nmax_step = 2",
            "ga-dspy.toml: setting 'max_step' is unknown. Expected one of abstain",
        ),
        ("[settings]\nmax_step = 2", "Did you mean max_steps?"),
        ("[settings]\nk = 0", "ga-dspy.toml: k is 0. Expected a whole number from 1"),
        ("index = ", "ga-dspy.toml: Invalid value (at end of document)"),
    ],
)
def test_an_error_in_the_file_is_one_line_that_names_it(
    command: Command, here: Here, text: str, message: str
) -> None:
    done = command("index", "info", cwd=here(text))
    assert done.returncode == 2 and message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [f'lm = "{KEY}"', f'OPENAI_API_KEY = "{KEY}"', f'api_base = "http://u:{KEY}@host/v1"',
     f'[settings]\nk = "{KEY}"'],
)  # fmt: skip
def test_a_key_in_the_file_is_refused_and_not_repeated(
    command: Command, here: Here, text: str
) -> None:
    root = here(text)
    with pytest.raises(InputError, match="put keys into the environment") as refused:
        read_config(find_config())
    assert KEY not in str(refused.value)
    assert KEY not in command("index", "info", cwd=root).stderr


def test_a_digest_in_a_path_is_not_mistaken_for_a_key(here: Here) -> None:
    source = "runs:/0123456789abcdef0123456789abcdef/artifact"
    here(f'artifact = "{source}"')
    assert in_effect()["artifact"] == source


def test_a_key_in_dot_env_is_used_and_never_printed(command: Command, here: Here) -> None:
    root = here('lm = "openai/m"\n')
    (root / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
    os.environ.pop("OPENAI_API_KEY", None)
    done = command("config", "show", cwd=root)
    assert re.search(r"OPENAI_API_KEY +set +\.env", done.stdout), done.stderr
    assert KEY not in done.stdout + done.stderr
    assert os.environ["OPENAI_API_KEY"] == KEY


def test_the_environment_overrides_dot_env(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    (here("") / ".env").write_text("OPENAI_API_KEY=of-the-file\nGA_DSPY_PROGRAM=ircot\n")
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-shell")
    assert in_effect() == {"program": "ircot"}
    assert os.environ["OPENAI_API_KEY"] == "of-the-shell"


def test_config_show_prints_the_source_of_each_value(
    command: Command, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = here('index = "my-index"\n[settings]\nk = 3\nstyle = "report"\n')
    monkeypatch.setenv("GA_DSPY_LM", "openai/m")
    shown = command("config", "show", cwd=root).stdout
    for name, value, source in (
        ("lm", "openai/m", "environment"), ("index", "my-index", "ga-dspy.toml"),
        ("program", "graph-anchor", "default"), ("settings", "k=3, style=report", "ga-dspy.toml"),
    ):  # fmt: skip
        assert re.search(rf"^{name} +{value} +{source}", shown, re.MULTILINE), shown
    (root / "ga-dspy.toml").unlink()
    assert "ga-dspy init writes one" in command("config", "show", cwd=root).stdout


def test_help_shows_the_built_in_defaults_even_with_a_broken_file(
    command: Command, here: Here, tmp_path: Path
) -> None:
    plain = command("ask", "--help", cwd=tmp_path).stdout
    assert "graph-anchor" in plain
    assert command("ask", "--help", cwd=here('program = "ircot"\n')).stdout == plain
    assert command("ask", "--help", cwd=here("broken")).stdout == plain


# --- init


def test_init_writes_the_options_and_explains_where_keys_go(command: Command, here: Here) -> None:
    root = here("")
    (root / "ga-dspy.toml").unlink()
    done = command("init", "--lm", "openai/small", "--lm", "answer=openai/big", "--index",
                   "my index", "--program", "ircot", "--set", "k=3", cwd=root)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ".env" in done.stdout and "OPENAI_API_KEY=…" in done.stdout
    assert "ga-dspy index build FILES --out my index" in done.stdout
    assert tomllib.loads((root / "ga-dspy.toml").read_text()) == {
        "lm": "openai/small answer=openai/big", "index": "my index", "program": "ircot",
        "settings": {"k": 3},
    }  # fmt: skip
    assert in_effect()["lm"] == ["openai/small", "answer=openai/big"]
    assert in_effect()["settings"] == ["k=3"]


def test_init_overwrites_only_with_force(command: Command, here: Here) -> None:
    root = here("broken")
    done = command("init", "--index", "my-index", cwd=root)
    assert done.returncode == 2 and "--force" in done.stderr
    assert (root / "ga-dspy.toml").read_text() == "broken"
    assert command("init", "--index", "my-index", "--force", cwd=root).returncode == 0
    assert in_effect()["index"] == Path("my-index")


@pytest.mark.parametrize(
    "words",
    [("--lm", KEY), ("--index", KEY), ("--set", f"k={KEY}"), ("--program", "magic"),
     ("--set", "kk=1"), ("--api-base", "http://localhost:1/v1"), ("--lm", "a", "--lm", "b")],
)  # fmt: skip
def test_init_refuses_keys_and_invalid_options(
    command: Command, here: Here, words: tuple[str, ...]
) -> None:
    root = here("")
    done = command("init", "--force", *words, cwd=root)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert KEY not in done.stdout + done.stderr
    assert (root / "ga-dspy.toml").read_text() == ""


def test_init_does_not_ask_for_a_key_that_the_environment_has(
    command: Command, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = here("")
    monkeypatch.setenv("MY_API_KEY", "looks-like-a-name-1")
    done = command("init", "--force", "--lm", "openai/looks-like-a-name-1", cwd=root)
    assert done.returncode == 2 and "a secret" in done.stderr


def test_init_prompts_for_missing_options_in_a_terminal(
    command: Command, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, asked = here(""), list[str]()

    def answer(question: str, **options: object) -> str:
        asked.append(question)
        return "http://localhost:8000/v1" if "Address" in question else ""

    monkeypatch.setattr(Console, "can_ask", True)
    monkeypatch.setattr("ga_dspy.cli.config.Prompt.ask", answer)
    done = command("init", "--force", "--lm", "openai/m", "--index", "my-index", cwd=root)
    assert done.returncode == 0, done.stderr
    assert [question.split()[0] for question in asked] == ["Address", "Folder", "Program"]
    assert in_effect()["api_base"] == ["http://localhost:8000/v1"]


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_init_adds_dot_env_to_gitignore_once(command: Command, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("build/")
    assert "added .env to .gitignore" in command("init", cwd=tmp_path).stdout
    assert (tmp_path / ".gitignore").read_text() == "build/\n.env\n"
    assert ".gitignore" not in command("init", "--force", cwd=tmp_path).stdout
    assert (tmp_path / ".gitignore").read_text() == "build/\n.env\n"


# --- from_config


def test_from_config_answers_without_changing_dspys_settings(here: Here) -> None:
    here('index = "my-index"\nlm = "ga-dspy/extractive"\n[settings]\nk = 3\n')
    before = dspy.settings.lm
    program = ga_dspy.from_config()
    assert dspy.settings.lm is before
    assert isinstance(program, ga_dspy.GraphAnchor) and program.k == 3
    assert {lm.model for lm in program.step_lms().values()} == {"ga-dspy/extractive"}
    with dspy.context(lm=None):
        assert program(question=QUESTION).answer == "River Avon"


def test_from_config_reads_the_given_file(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = here('index = "my-index"\nlm = "openai/a answer=openai/b"\nprogram = "vanilla-rag"\n')
    monkeypatch.chdir(tmp_path)
    program = ga_dspy.from_config(root / "ga-dspy.toml")
    assert isinstance(program, ga_dspy.VanillaRAG)
    assert [lm.model for lm in program.step_lms().values()] == ["openai/b"]
    with pytest.raises(InputError, match="no index in ga-dspy"):
        ga_dspy.from_config()
    with pytest.raises(InputError, match="missing"):
        ga_dspy.from_config("missing.toml")


def test_a_schema_path_is_relative_to_the_settings_file(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = here('index = "my-index"\n[settings]\nschema = "schema.json"\n')
    (root / "schema.json").write_text('{"entities": {"place": ""}}')
    monkeypatch.chdir(tmp_path)
    program = ga_dspy.from_config(root / "ga-dspy.toml")
    assert program.settings()["schema"]["entities"] == {"place": ""}


def test_each_value_has_the_name_of_its_source(here: Here) -> None:
    here('index = "my-index"')
    assert read_config(find_config()) == {"index": Setting(Path("my-index"), "ga-dspy.toml")}
