import shutil
import subprocess
import zipfile
from pathlib import Path

import portable
import pytest

SAID = """
 0x0000000000000001 (NEEDED)             Shared library: [libstdc++.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x000000000000001d (RUNPATH)            Library runpath: [$ORIGIN/../lib:/opt/lib]

Version definition section '.gnu.version_d' contains 1 entry:
  0x001c: Rev: 1  Flags: none  Index: 2  Cnt: 1  Name: GLIBC_9.9

Version needs section '.gnu.version_r' contains 2 entries:
  0x0010:   Name: GLIBC_2.34  Flags: none  Version: 4
  0x0020:   Name: GLIBC_2.36  Flags: none  Version: 3
  0x0040:   Name: GLIBCXX_3.4.30  Flags: none  Version: 2
"""


def test_what_readelf_says() -> None:
    binary = portable.parse(SAID)
    assert binary.needed == ["libstdc++.so.6", "libc.so.6"]
    assert list(portable.faults("engine", binary, set())) == [
        "needs libstdc++.so.6, which not every system has",
        "needs GLIBC_2.36, newer than 2.34",
        "needs GLIBCXX_3.4.30: link the C++ library statically",
        "looks for libraries in /opt/lib",
    ]


def test_only_modules_may_need_what_some_hosts_have() -> None:
    binary = portable.Binary(["libibverbs.so.1", "libisal-1234.so.2"], [], {("GLIBC", "2.2.5")})
    assert list(portable.faults("_engine/incast-transport-verbs.so", binary, {"libisal-1234.so.2"})) == []
    assert list(portable.faults("_engine/incast-node", binary, {"libisal-1234.so.2"})) == [
        "needs libibverbs.so.1, which not every system has"
    ]


def wheel_of(folder: Path, *flags: str) -> Path:
    source, library, wheel = folder / "one.cpp", folder / "one.so", folder / "one.whl"
    source.write_text(
        '#include <iostream>\nextern "C" int one() { std::cout << "one"; throw 1; }\nchar here[] = HERE;\n'
    )
    command = ["g++", f'-DHERE="{folder}"', "-shared", "-fPIC", *flags, "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(library, "one.so")
    return wheel


@pytest.mark.skipif(not shutil.which("g++") or not shutil.which("readelf"), reason="needs g++ and readelf")
def test_a_wheel(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    good = list(portable.check_wheel(wheel_of(tmp_path, "-static-libstdc++"), elsewhere))
    assert not [fault for fault in good if "stdc++" in fault or "GLIBCXX" in fault or "path" in fault]
    bad = list(portable.check_wheel(wheel_of(tmp_path), tmp_path))
    assert f"one.so: holds the path {tmp_path}" in bad
    assert "one.so: needs libstdc++.so.6, which not every system has" in bad
    assert any("GLIBCXX" in fault for fault in bad)


def test_a_wheel_without_binaries(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "one.whl", "w") as archive:
        archive.writestr("one.py", "")
    assert list(portable.check_wheel(tmp_path / "one.whl")) == ["one.whl: holds no binary"]
    assert portable.main([]) == 1
