"""Manual pages, completion, and a configuration to begin with: all made from the table of options and settings."""

import re
import shutil
import subprocess
import tomllib

import pytest
import typer
from incast.cli.commands import application
from incast.cli.manual import pages
from incast.engine.settings import settings

from tests.conftest import Incast


def test_every_command_has_a_page_with_all_its_options() -> None:
    found = pages()
    assert {"incast.1", "incast-run.1", "incast-mep-check.1", "incast-fabric.1"} <= found.keys()
    command = typer.main.get_command(application()).commands["run"]  # type: ignore[attr-defined]
    for option in command.params:
        for name in option.opts:
            if name.startswith("-"):
                assert rf"{name}".replace("-", r"\-") in found["incast-run.1"], name
    assert '.SS "Protocol"' in found["incast-run.1"]
    for name, text in found.items():
        assert text.startswith(".TH "), name
        assert not re.search(r"^['.](?!TH|SH|SS|B|BR|TP|PP)", text, re.MULTILINE), name


def test_pages_are_clean_for_groff() -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not here")
    for name, text in pages().items():
        done = subprocess.run(
            [groff, "-man", "-Tutf8", "-ww", "-Kutf8"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
        assert not done.stderr, f"{name}: {done.stderr}"


def test_pages_are_written_or_printed(incast: Incast) -> None:
    assert incast("man", "--output", "pages").returncode == 0
    written = sorted(path.name for path in (incast.folder / "pages").iterdir())
    assert written == sorted(pages())
    assert incast("man", "mep", "check").stdout == pages()["incast-mep-check.1"]
    done = incast("man", "rn")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "mep-check" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_words_are_completed(incast: Incast, shell: str) -> None:
    def completed(line: str) -> str:
        incast.environment |= {
            "_INCAST_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": line.replace(" ", "\n") if shell == "bash" else "",
            "COMP_CWORD": str(line.count(" ")),
            "_TYPER_COMPLETE_ARGS": line,
            "PYTHONPATH": "",
        }
        program = "import sys; sys.argv[0] = 'incast'; from incast.cli import main; main()"
        return subprocess.run(
            [*incast.command()[:1], "-c", program],
            env=incast.full_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        ).stdout

    assert {"run", "reproduce", "report"} <= set(re.findall(r"[\w-]+", completed("incast r")))
    assert "netdev" in completed("incast net")
    assert "--mfp-size" in completed("incast run --mfp")
    assert "pull-read" in completed("incast run --protocol pu")


def test_a_configuration_to_begin_with_has_every_setting(incast: Incast) -> None:
    done = incast("config", "init", "my.toml")
    assert done.returncode == 0, done.stderr
    text = (incast.folder / "my.toml").read_text()

    def keys(table: dict[str, object], prefix: str = "") -> set[str]:
        found: set[str] = set()
        for name, value in table.items():
            found |= keys(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name}
        return found

    assert not keys(tomllib.loads(text)), "nothing is set"
    whole = tomllib.loads(re.sub(r"^#(?=\w)", "", text, flags=re.MULTILINE))
    assert keys(whole) == set(settings())
    again = incast("config", "init", "my.toml")
    assert again.returncode == 2
    assert "my.toml is there already" in again.stderr


def test_a_configuration_to_begin_with_is_right(real_incast: Incast) -> None:
    assert real_incast("config", "init").returncode == 0
    done = real_incast("run", "incast.toml", "--check")
    assert done.returncode == 0, done.stderr
    assert "nothing was run" in done.stdout
    assert [path.name for path in real_incast.folder.iterdir()] == ["incast.toml"]
    done = real_incast("run", "--nodes", "0", "--check")
    assert done.returncode == 2
    assert "run.nodes = 0" in done.stderr
