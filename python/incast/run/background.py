"""The process of a detached run: one that leaves its work to a child in a session of its own, and ends."""

import os
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until it is ready for requests to stop
    if os.fork():
        os._exit(0)
    os.setsid()
    from incast.run.detached import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(Path(sys.argv[1])))
