"""Hadoop over network devices (docs/hadoop.md).

Runs where INCAST_HADOOP names a folder of `bridges/hadoop/run.sh --get`; bridges/hadoop/test.sh makes one.
"""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, wait_until

HADOOP = Path(os.environ.get("INCAST_HADOOP", "no-such-folder"))
RUN = ROOT / "bridges/hadoop/run.sh"
JOBS = ["dfsio-write", "dfsio-read", "teragen", "terasort", "teravalidate", "randomtextwriter", "sort", "wordcount"]
PATIENCE = 3600

pytestmark = [
    pytest.mark.skipif(not (HADOOP / "jars").is_dir(), reason="INCAST_HADOOP names no folder with Hadoop's jars"),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]


def command(engine: Path, out: Path, *words: str) -> list[str]:
    """A run with the jars that are there, into a folder of its own."""
    out.mkdir()
    (out / "jars").symlink_to(HADOOP / "jars")
    return [str(RUN), str(out), "--engine", str(engine.with_name("incast-netdev")), "--scale", "tiny", *words]


def story(out: Path, done: "subprocess.CompletedProcess[str]") -> str:
    logs = sorted(out.glob("logs/*/*.log"), key=lambda path: path.stat().st_mtime)
    last = "\n".join(logs[-1].read_text(errors="replace").splitlines()[-20:]) if logs else ""
    return f"{done.stdout}\n{done.stderr}\n{last}"


def result_of(engine: Path, out: Path, *words: str) -> dict[str, Any]:
    """What a run that was right says."""
    done = subprocess.run(command(engine, out, *words), capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, story(out, done)
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert_all_is_gone(out)
    return result


def assert_all_is_gone(out: Path) -> None:
    """No process of the run, no mount, no namespace, nothing but what it keeps."""
    assert not processes_with(str(out))
    assert str(out) not in Path("/proc/mounts").read_text()
    assert {path.name for path in out.iterdir()} <= {"jars", "logs", "result.json", "page.html"}
    assert not any(Path("/run/netns", f"host{index}").exists() for index in range(4))


def processes_with(text: str) -> list[int]:
    """Whose command line has it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if text.encode() in words and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


def assert_only_the_fabric_was_used(run: dict[str, Any]) -> None:
    assert [job["job"] for job in run["jobs"]] == JOBS
    assert all(job["valid"] and job["checks"] for job in run["jobs"])
    assert len(run["management_bytes"]) == 4 and not any(run["management_bytes"].values())
    assert sum(job["fabric_sent_bytes"] for job in run["jobs"]) > 32 << 20


def test_each_network_gives_the_same_results(engine: Path, tmp_path: Path) -> None:
    result = result_of(engine, tmp_path / "out")
    assert [run["network"] for run in result["runs"]] == ["rio", "veth"]
    for run in result["runs"]:
        assert_only_the_fabric_was_used(run)
    page = (tmp_path / "out" / "page.html").read_text()
    assert all(f"<td>{job}</td>" in page for job in JOBS) and "wrong:" not in page


def test_jobs_by_yarn_and_faults(engine: Path, tmp_path: Path) -> None:
    """A link that is down for 20 s, a data node that is killed."""
    run = result_of(engine, tmp_path / "out", "--network", "rio", "--yarn", "--faults")["runs"][0]
    assert run["framework"] == "yarn"
    assert_only_the_fabric_was_used(run)
    assert [job["job"] for job in run["faults"]] == ["teragen", "terasort", "teravalidate"] * 2
    assert all(job["valid"] for job in run["faults"])
    assert [job["fault"] for job in run["faults"] if "fault" in job] == [
        "the link of fabric2 is down for 20 s",
        "the data node of fabric3 is killed",
    ]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_nothing(engine: Path, tmp_path: Path, how: int) -> None:
    out = tmp_path / "out"
    words = command(engine, out, "--network", "rio")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until((out / "logs/rio/01-dfsio-write.log").exists, "the first job", 600)
        assert len(processes_with(str(out))) > 5
        process.send_signal(how)
        assert process.wait(30) != 0
        wait_until(lambda: processes_with(str(out)) == [], "the end of all processes")
    assert_all_is_gone(out)


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    done = subprocess.run([str(RUN), str(tmp_path)], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "holds result.json of an earlier run" in done.stderr


def test_the_commands_of_the_document(engine: Path, tmp_path: Path) -> None:
    """The first block of docs/hadoop.md, at the smallest scale, each line into a folder of its own."""
    block = (ROOT / "docs/hadoop.md").read_text().partition("```sh\n")[2].partition("```")[0]
    lines = [line.split() for line in block.splitlines() if line.startswith("bridges/hadoop/run.sh")]
    assert len(lines) > 1
    for number, (_, folder, *words) in enumerate(lines):
        assert folder.startswith("build/hadoop")
        out = tmp_path / str(number)
        done = subprocess.run(
            command(engine, out, *words), capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        assert done.returncode == 0, story(out, done)
