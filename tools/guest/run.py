"""Runs a command in a guest: Debian's kernel in an emulated machine, which sees all files of this host, can change
nothing but /out, and has the soft RDMA devices, netem and namespaces that this host's kernel may lack.

The status is that of the command; 124 if it took too long, 125 if the guest did not start, 77 if this host cannot have
one. Scripts that make devices are in its path: see tools/guest/inside.
"""

import argparse
import re
import signal
import sys
from pathlib import Path
from types import FrameType

from guest import image, machine


def arguments(words: list[str]) -> argparse.Namespace:
    usage = "tools/guest/run [OPTION]... -- COMMAND [ARGUMENT]..."
    parser = argparse.ArgumentParser(prog="tools/guest/run", usage=usage, description=__doc__)
    parser.add_argument("--cpus", type=int, default=2, metavar="N", help="virtual processors (default 2)")
    parser.add_argument("--memory", default="2G", metavar="SIZE", help="as 512M or 4G (default 2G)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="what is /out there; without it /out is forgotten")
    parser.add_argument("--peer", default="", metavar="NAME", help="a cable to another guest that names the same")
    text = "a UDP port of 127.0.0.1 that is the guest's; may be given often (net-host.sh)"
    parser.add_argument("--udp", type=int, action="append", default=[], metavar="PORT", help=text)
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds in all (default 300)")
    parser.add_argument("command", nargs="+", help="runs as root, in the folder where you are")
    chosen = parser.parse_args(words)
    if not 1 <= chosen.cpus <= 64:
        parser.error(f"--cpus {chosen.cpus}: from 1 to 64")
    if not re.fullmatch(r"[1-9][0-9]*[MG]", chosen.memory):
        parser.error(f"--memory {chosen.memory}: a number of MiB or GiB, as 512M or 4G")
    if not re.fullmatch(r"[\w.-]{0,32}", chosen.peer):
        parser.error(f"--peer {chosen.peer}: at most 32 letters, digits, '.', '_' and '-'")
    if not all(0 < port < 65536 for port in chosen.udp):
        parser.error("--udp: ports have numbers from 1 to 65535")
    if not 0 < chosen.timeout < 1e6:
        parser.error(f"--timeout {chosen.timeout:g}: more than 0 seconds")
    return chosen


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def leave(number: int, _: FrameType | None) -> None:
    """On the way out everything is undone, the guest as well, which no further signal may cut short."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def write_to(descriptor: int) -> machine.Sink:
    """Passes bytes on at once."""
    file = open(descriptor, "wb", buffering=0, closefd=False)  # noqa: SIM115
    return file.write


def main(words: list[str]) -> int:
    """tools/guest/run"""
    chosen = arguments(words)
    options = machine.Options(chosen.cpus, chosen.memory, chosen.timeout, chosen.out, chosen.peer, tuple(chosen.udp))
    for number in SIGNALS:
        signal.signal(number, leave)
    try:
        return machine.run(chosen.command, options, write_to(1), write_to(2))
    except image.UnavailableError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 77
    except (machine.GuestError, OSError) as error:
        print(f"guest: {error}", file=sys.stderr)
        return 124 if isinstance(error, machine.TimedOutError) else 125


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
