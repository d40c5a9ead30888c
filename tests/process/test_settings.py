"""Every key, and every setting of a transport, is one thing: in the engine, a file, the schema, the documents and help.

src/runtime/config/config_test.cpp takes every value through --set and a file and compares;
python/tests/test_settings.py looks at the command line's help. Here is what joins them: the schema, against which all
of it is held.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from incast.engine.settings import Setting, schema, settings
from support import ROOT, Start
from transports import ONE_THREAD, SOCKETS

_RUN = ("--set", f"transport.name={ONE_THREAD}", "--set", "run.nodes=2")


def check(engine: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(engine), *arguments, "--check"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """`run.nodes` as a table in a table."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *way, last = key.split(".")
        table = tree
        for name in way:
            table = table.setdefault(name, {})
        table[last] = value
    return tree


def typed(setting: Setting) -> Any:
    """Its default as a file has it."""
    if setting.kind == "boolean":
        return setting.default == "true"
    if setting.default != "auto" and setting.kind in ("count", "real"):
        return json.loads(setting.default)
    return setting.default


def validate(values: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(schema()).validate(nested(values))


def test_the_engine_takes_every_default_from_options_and_from_a_file(engine: Path, tmp_path: Path) -> None:
    everything = [word for one in settings().values() for word in ("--set", f"{one.key}={one.default}")]
    assert check(engine, *everything, *_RUN).stderr == ""
    config = tmp_path / "config.toml"
    lines = [f"{one.key} = {json.dumps(typed(one))}\n" for one in settings().values()]
    config.write_text("".join(lines))
    assert check(engine, str(config), *_RUN).stderr == ""
    validate({one.key: typed(one) for one in settings().values()})


def test_the_schema_takes_what_the_engine_takes() -> None:
    good = {
        "count": [],
        "bytes": ["64K", "64KiB", "64kB", "1M"],
        "duration": [1, "2m", "90s", "1h", "500ms"],
        "frequency": [100, "40kHz"],
        "rate": [10**6, "100Gbps", "100 Gbit/s", "12.5GB/s"],
        "real": [1],
        "boolean": [True, False],
        "text": ["anything"],
    }
    bad = {"count": "1", "bytes": "12Q", "duration": "1 parsec", "frequency": "fast", "rate": "100G", "boolean": "yes"}
    for one in settings().values():
        usual = {"bytes": 65536, "count": 1}
        whole = [int(one.default) if one.default.isdecimal() else usual[one.kind]] if one.kind in usual else []
        automatic = ["auto"] if one.allowed.endswith("or auto") else []
        for value in [*(one.choices or good[one.kind]), *whole, *automatic]:
            validate({one.key: value})
        with pytest.raises(jsonschema.ValidationError):
            validate({one.key: bad.get(one.kind, [])})
    with pytest.raises(jsonschema.ValidationError):
        validate({f"transport.{SOCKETS}.staging_bytes": 65536})


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def test_every_setting_has_its_line_in_the_documents() -> None:
    reference = (ROOT / "docs/config.md").read_text()
    for one in settings().values():
        section, _, name = one.key.rpartition(".")
        cells = (f"`{name}`", f"`{one.default}`" if one.default else "", *map(_cell, (one.allowed, one.help)))
        line = f"| {' | '.join(cells)} |\n"
        assert line in reference.partition(f"\n## [{section}]\n")[2].partition("\n## ")[0], one.key
        transport = section.partition(".")[2]
        if transport:
            page = (ROOT / f"docs/transports/{transport}.md").read_text()
            assert line in page.partition("\n## Settings\n")[2], one.key


def test_former_names_work_with_one_warning(engine: Path, start: Start) -> None:
    former = schema()["x-former-names"]
    words = [
        word for name, entry in former.items() for word in ("--set", f"{name}={'8' if entry['unit'] else '65536'}")
    ]
    fitting = ("protocol.slot_bytes=auto", "protocol.max_buffer_bytes=0", "run.roles=split", "run.rus=1", "run.bus=1")
    fits = [word for setting in fitting for word in ("--set", setting)]
    said = check(engine, *words, *fits, *_RUN).stderr.splitlines()
    assert len(said) == 1, said
    assert said[0].startswith("incast-node: warning: ")
    for name, entry in former.items():
        assert f"{name} is now {entry['present']}" in said[0]
    run = start({"transport.name": ONE_THREAD, "run.nodes": 2, "run.events": 100, "source.prefill_bytes": "64K"})
    assert run.finish() == 0, run.story()
    assert "source.prefill_bytes is now source.prefill_size" in run.story()
    assert "prefill_bytes" not in (run.output / "config.toml").read_text()
