"""A model's process ends when its server has gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time

CHILD = """
import threading, time
from tristream.backend import lifeline
lifeline.LOOK_S = lifeline.GRACE_S = 0.05
lifeline.end_with_server()
lifeline.end_with_server()
print(len([t for t in threading.enumerate() if t.name == "lifeline"]), flush=True)
threading.Event().wait()
"""
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
print(child.pid, child.stdout.readline().strip(), flush=True)
sys.stdin.readline()
"""


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_process_ends_with_its_parent_and_not_before() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid, threads = map(int, parent.stdout.readline().split())
    assert threads == 1
    time.sleep(0.3)
    assert lives(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert parent.stdin is not None
    parent.stdin.close()
    end = time.monotonic() + 20
    while lives(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not lives(pid)
