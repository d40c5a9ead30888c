"""Makes the guest: fetches what it is made of, once. Status 77 where this host cannot have it, with the reason."""

import argparse
import sys
import time

from guest import debug_kernel, image, rapidio, siw


def main(words: list[str]) -> int:
    """tools/guest/setup"""
    parser = argparse.ArgumentParser(prog="tools/guest/setup", description=__doc__)
    parser.add_argument("--siw", action="store_true", help="soft-iWARP as well, which is built here")
    text = "RapidIO as well, which is built here; prints the folder of its modules"
    parser.add_argument("--rapidio", action="store_true", help=text)
    text = "a kernel with KASAN, lockdep and kmemleak as well, which is built here: INCAST_GUEST_KERNEL=debug boots it"
    parser.add_argument("--debug-kernel", action="store_true", help=text)
    chosen = parser.parse_args(words)
    begin = time.monotonic()
    try:
        made = image.ensure()
        if chosen.siw:
            siw.ensure()
        if chosen.debug_kernel:
            debug_kernel.ensure()
        if chosen.rapidio:
            print(rapidio.ensure())
    except image.UnavailableError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 77
    print(f"guest: ready in {made}, after {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
