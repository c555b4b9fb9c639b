"""Reading what a Triton server writes to its log: progress, failures, and what is only noise."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["failure", "load_state", "worth_showing"]

_LOADED = re.compile(r"successfully loaded '([^']+)'")
_LOADING = re.compile(r"loading: ([^:\s]+):\d+")
# What a machine without a GPU makes the server say; harmless.
_NOISE = re.compile(
    r"CUDA driver version|CudaDriverHelper|NVML|DCGM|pinned_memory_manager|cuda_memory_manager|"
    r"Unable to allocate pinned|cudaGetDeviceCount|GPU metrics"
)
_LEVEL = re.compile(r"^[EWF]\d{4} ")
_ERROR = re.compile(r'^E\d{4} \S+ \d+ \S+\] "?(.*?)"?$')
_TABLE_OR_LOG = re.compile(r"^(\+-|\||[IWEF]\d{4} )")


def worth_showing(lines: Iterable[str]) -> list[str]:
    """The warnings and errors among log lines, without what every machine without a GPU complains of."""
    return [line for line in lines if _LEVEL.match(line) and not _NOISE.search(line)]


def load_state(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Models that are loaded, and models that are loading."""
    loaded = tuple(dict.fromkeys(_LOADED.findall(text)))
    return loaded, tuple(name for name in dict.fromkeys(_LOADING.findall(text)) if name not in loaded)


def failure(text: str, most_lines: int = 40) -> str:
    """What a person needs of a log to see what went wrong: errors and tracebacks, else its end."""
    lines = text.splitlines()
    told: list[str] = []
    for line in lines:
        message = _ERROR.match(line)
        if message:
            told += message[1].replace("\\n", "\n").split("\n")
        elif line and not _TABLE_OR_LOG.match(line):
            told.append(line)  # a traceback, or the server's last word: these bear no level
    told = [line for line in told if line and not _NOISE.search(line)] or lines
    return "\n".join(dict.fromkeys(told[-most_lines:]))
