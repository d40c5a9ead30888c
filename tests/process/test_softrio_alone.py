"""SoftRIO without the rest: what -DINCAST_SOFTRIO_ONLY=ON builds and installs."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_softrio_needs_nothing_of_event_building(tmp_path: Path) -> None:
    """INCAST_BUILD_SOFTRIO=1 also builds and installs it, which takes a minute."""
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    options = ["-DINCAST_SOFTRIO_ONLY=ON", "-DINCAST_TESTS=OFF", f"-DCMAKE_INSTALL_PREFIX={prefix}"]
    subprocess.run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *options], check=True, capture_output=True)
    commands = (build / "compile_commands.json").read_text()
    assert "/src/softrio/" in commands
    for folder in ("wire", "protocol", "transport", "sim", "runtime"):
        assert f"/src/{folder}/" not in commands.replace("/src/softrio/wire/", ""), folder
    if "INCAST_BUILD_SOFTRIO" in os.environ:
        subprocess.run(["cmake", "--build", build], check=True, capture_output=True)
        subprocess.run(["cmake", "--install", build], check=True, capture_output=True)
        shutil.rmtree(build)
        installed = {path.name for path in prefix.rglob("*") if path.is_file() or path.is_symlink()}
        assert {"softrio", "libmport.so", "librsvdmem.so", "libmport.a", "librsvdmem.a"} <= installed
        assert {"rapidio_mport_mgmt.h", "softrio.pc"} <= installed
        program = prefix / "bin" / "softrio"
        environment = {**os.environ, "RIO_FABRIC": f"shm:alone-{os.getpid()}", "RIO_DESTID": "5"}
        listed = subprocess.run(
            [program, "list", "--json"], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        assert listed.stdout == '{"own":5,"others":[]}\n'
