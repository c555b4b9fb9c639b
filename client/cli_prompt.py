"""A line from the terminal that Ctrl-C really ends.

With gRPC's threads running, the kernel may hand SIGINT to one of them; then nothing wakes the main thread,
which sits in readline, until Enter.
"""

from __future__ import annotations

import signal
import socket
import threading
from typing import Final

__all__ = ["ask", "enable_line_editing"]

_PATIENCE_S: Final = 0.05
"""How long the main thread may take to notice a signal that reached it directly."""


def enable_line_editing() -> None:
    """Arrow keys and history for `ask`, where Python has readline."""
    try:
        import readline  # noqa: F401
    except ImportError:
        pass


def ask(prompt: str) -> str:
    """One line of input; call it in the main thread.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        EOFError: Ctrl-D.
    """
    if not hasattr(signal, "pthread_kill"):  # Windows
        return input(prompt)
    main = threading.get_ident()
    answered = threading.Event()
    ear, mouth = socket.socketpair()

    def watch() -> None:
        # A byte for each signal that Python has seen, in whatever thread; none when the other end is closed.
        if ear.recv(1) and not answered.wait(_PATIENCE_S):
            signal.pthread_kill(main, signal.SIGINT)

    with ear, mouth:
        mouth.setblocking(False)
        before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            return input(prompt)
        finally:
            answered.set()
            signal.set_wakeup_fd(before)
            mouth.close()
            watcher.join()
