"""A model's process ends with its server.

Triton's stub notices that a server was killed, and asks the model to finalize; but a thread that is waiting for the
server just then (a send, `is_cancelled`, a metric) waits for ever, and the process stays with all its memory (seen on
2.51). So a thread of ours watches the parent.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import Final

__all__ = ["end_with_server"]

LOOK_S: Final = 2.0
GRACE_S: Final = 5.0
"""What `finalize` gets after the server's death."""


@functools.cache
def end_with_server() -> None:
    """Start the watch, once per process: when the parent has gone, this process ends, whatever it waits for."""
    threading.Thread(target=_watch, args=(os.getppid(),), name="lifeline", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    time.sleep(GRACE_S)
    os._exit(1)
