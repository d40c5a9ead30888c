"""The rule about rooms must see a planted violation, and its table is the one that people read."""

import re

import pytest
from mutants import ROOT
from rooms import INTERFACE, ROOMS, check_rooms, module_of, room_of

SOUND = {
    "python/incast/__init__.py": '"""The package."""\n',
    "python/incast/__main__.py": "from incast.cli import main\n",
    "python/incast/formats.py": "import struct\n",
    "python/incast/base/__init__.py": "",
    "python/incast/base/units.py": "import math\n",
    "python/incast/scan/plan.py": "import incast\nfrom incast.base import units\n",
    "python/incast/scan/table.py": "from incast.scan.plan import Plan\n",
    "python/incast/cli/__init__.py": "def main():\n    from incast.cli.scan import scan\n",
    "python/incast/cli/scan.py": "import typer\nfrom incast.scan.table import Row\n",
    "tools/other.py": "import typer\nfrom incast.cli import main\n",
}


def hints(changed: dict[str, str]) -> list[str]:
    return [f"{found.path}:{found.line}: {found.rule}: {found.hint}" for found in check_rooms({**SOUND, **changed})]


def test_what_is_right_passes() -> None:
    assert hints({}) == []


@pytest.mark.parametrize(
    ("path", "text", "hint"),
    [
        ("python/incast/scan/plan.py", "import incast.cli.scan\n", "plan.py:1: room: scan may import base, engine"),
        ("python/incast/scan/plan.py", "\nfrom incast.cli import scan\n", "plan.py:2: room: scan may import"),
        ("python/incast/scan/plan.py", "def f():\n    from incast.formats import Mfp\n", "plan.py:2: room: scan may"),
        (
            "python/incast/formats.py",
            "if TYPE_CHECKING:\n    import incast.scan\n",
            "formats.py:2: room: interface",
        ),
        ("python/incast/base/units.py", "from incast.scan import plan\n", "room: base may import no other room"),
        ("python/incast/scan/plan.py", "import typer\n", "plan.py:1: room: typer is imported by cli alone"),
        (
            "python/incast/scan/plan.py",
            "\ndef f():\n    from incast.scan import table\n",
            "plan.py:3: circle: incast.scan.plan imports incast.scan.table imports incast.scan.plan",
        ),
    ],
)
def test_a_planted_violation_is_found(path: str, text: str, hint: str) -> None:
    assert any(hint in found for found in hints({path: text})), hints({path: text})


def test_rooms_of_modules() -> None:
    assert module_of("python/incast/scan/__init__.py") == "incast.scan"
    assert module_of("python/tests/test_net.py") is None
    assert room_of("incast") is None
    assert room_of("incast.scan.plan") == "scan"
    assert room_of("incast.consumer") == INTERFACE


def test_arrows_go_upwards_in_the_table() -> None:
    names = list(ROOMS)
    for room, allowed in ROOMS.items():
        assert all(names.index(other) < names.index(room) for other in allowed), room


def test_the_table_of_the_document_is_that_of_the_rule() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| .* \|([^|]*)\|$", text, re.MULTILINE)
    assert [(name, tuple(filter(None, allowed.strip().split(", ")))) for name, allowed in rows] == list(ROOMS.items())


def test_each_folder_is_a_room() -> None:
    """A new one has its place in the table."""
    folders = {path.parent.name for path in (ROOT / "python/incast").glob("*/__init__.py")}
    assert folders == set(ROOMS) - {INTERFACE}
