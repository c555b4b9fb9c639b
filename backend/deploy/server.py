"""Start a Triton server, wait for it, stop it; used by `tristream serve` and by the tests.

with TritonServer([Path("model_repository")]) as server:
    server.wait_ready()
    ... server.grpc_url ...
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

from tristream.parsers.errors import TristreamError

from .installation import Installation, find_installation
from .serverlog import failure, load_state

__all__ = ["LoadProgress", "ServerError", "TritonServer", "choose_port"]

SHARED_MEMORY: Final = Path("/dev/shm")
POLL_S: Final = 0.1
LLM_URL_VARIABLE: Final = "TRISTREAM_LLM_URL"
"""Where `chat_direct` finds its LLM: on this very server, unless the environment says otherwise."""
# Below the range the kernel takes ports of outgoing connections from: between choosing a port and the
# server's opening it lie the seconds in which the models load.
PORT_RANGE: Final = range(18000, 32000)

_counter = itertools.count()

LoadProgress = Callable[[tuple[str, ...], tuple[str, ...]], None]


class ServerError(TristreamError):
    """The server cannot be started, died, or is not ready in time; the message ends with what it said last."""


def choose_port(preferred: int | None = None, taken: Iterable[int] = (), host: str = "127.0.0.1") -> int:
    """`preferred` if it is free, else any free port.

    Args:
        preferred: the port to take if possible; None takes any.
        taken: ports that are spoken for.
        host: address that will be listened on.
    """
    spoken_for = set(taken)
    candidates = [preferred] if preferred else []
    for port in itertools.chain(candidates, random.sample(PORT_RANGE, 200)):
        if port not in spoken_for and _is_free(port, host):
            return port
    raise ServerError(f"no free port of {PORT_RANGE.start}-{PORT_RANGE.stop - 1} on {host} in 200 tries")


def _is_free(port: int, host: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class TritonServer:
    """One `tritonserver` process.

    Args:
        repositories: model repositories to serve.
        http_port, grpc_port, metrics_port: None takes a free one.
        host: address to listen on.
        model_settings: environment for the models, e.g. TRISTREAM_MODEL.
        extra_args: further arguments of tritonserver.
        log_file: where the server's output goes; a temporary file, removed when the server ends well, by default.
        exit_timeout_s: how long requests in flight may take after `stop`.
        installation: which server; `find_installation()` by default.
    """

    def __init__(
        self,
        repositories: Sequence[Path],
        *,
        http_port: int | None = None,
        grpc_port: int | None = None,
        metrics_port: int | None = None,
        host: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
        extra_args: Sequence[str] = (),
        log_file: Path | None = None,
        exit_timeout_s: int = 5,
        installation: Installation | None = None,
    ) -> None:
        self.repositories = tuple(Path(folder).resolve() for folder in repositories)
        self.host = host
        self.http_port = http_port or choose_port(host=host)
        self.grpc_port = grpc_port or choose_port(None, {self.http_port}, host)
        self.metrics_port = metrics_port or choose_port(None, {self.http_port, self.grpc_port}, host)
        self.environment = dict(environment or {})
        self.extra_args = tuple(extra_args)
        self.exit_timeout_s = exit_timeout_s
        self.installation = installation
        self.log_file = log_file
        self._own_log = log_file is None
        self._process: subprocess.Popen[bytes] | None = None
        # Unique for each server, so that what one killed hard leaves behind can be told from what lives.
        self._region_prefix = f"tristream-{os.getpid()}-{next(_counter)}-"

    @property
    def http_url(self) -> str:
        """Base URL of HTTP."""
        return f"http://{self._reach}:{self.http_port}"

    @property
    def grpc_url(self) -> str:
        """`host:port` of gRPC, as tritonclient wants it."""
        return f"{self._reach}:{self.grpc_port}"

    @property
    def metrics_url(self) -> str:
        """URL of the Prometheus metrics."""
        return f"http://{self._reach}:{self.metrics_port}/metrics"

    @property
    def _reach(self) -> str:
        return "127.0.0.1" if self.host == "0.0.0.0" else self.host

    @property
    def pid(self) -> int | None:
        """Process id, None before `start`."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process; returns at once.

        Raises:
            InstallationError: no server can run here.
            ServerError: a repository is no folder, or the server was started before.
        """
        if self._process is not None:
            raise ServerError("this TritonServer was started before; make another")
        for folder in self.repositories:
            if not folder.is_dir():
                raise ServerError(f"model repository {folder} is not a folder")
        installation = self.installation or find_installation()
        if self.log_file is None:
            handle, name = tempfile.mkstemp(prefix="tritonserver-", suffix=".log")
            os.close(handle)
            self.log_file = Path(name)
        else:
            self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                self.command(installation),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=installation.full_environment({LLM_URL_VARIABLE: self.grpc_url, **os.environ}, self.environment),
                # Ctrl-C in the terminal reaches us alone, and we stop the server in order.
                start_new_session=True,
            )

    def command(self, installation: Installation) -> list[str]:
        """The command line."""
        backends = installation.backend_directory
        return [
            str(installation.executable),
            *(f"--model-repository={folder}" for folder in self.repositories),
            *([f"--backend-directory={backends}"] if backends else []),
            f"--backend-config=python,shm-region-prefix-name={self._region_prefix}",
            f"--http-address={self.host}",
            f"--grpc-address={self.host}",
            f"--metrics-address={self.host}",
            f"--http-port={self.http_port}",
            f"--grpc-port={self.grpc_port}",
            f"--metrics-port={self.metrics_port}",
            f"--exit-timeout-secs={self.exit_timeout_s}",
            *self.extra_args,
        ]

    def wait_ready(self, timeout_s: float = 180.0, progress: LoadProgress | None = None) -> None:
        """Wait until the server and all its models are ready.

        Args:
            timeout_s: seconds to wait at most.
            progress: told (models loaded, models loading) whenever that changes.

        Raises:
            ServerError: the process has ended, as it does when a model fails to load, or the time is over.
        """
        deadline = time.monotonic() + timeout_s
        told = None
        while True:
            ready = self._answers_ready()
            if progress is not None:
                state = self.load_state()
                if state != told:
                    progress(*state)
                    told = state
            if ready:
                return
            if not self.running:
                raise ServerError(f"the Triton server {self._end()}; it said:\n{self.failure()}")
            if time.monotonic() > deadline:
                raise ServerError(f"the Triton server is not ready after {timeout_s:g} s; it said:\n{self.failure()}")
            time.sleep(POLL_S)

    def _answers_ready(self) -> bool:
        if not self.running:
            return False
        try:
            with urllib.request.urlopen(f"{self.http_url}/v2/health/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _end(self) -> str:
        if self._process is None:
            return "was not started"
        code = self._process.returncode
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"

    def load_state(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Models that are loaded, and models that are loading, as the log tells."""
        return load_state(self._log_text())

    def failure(self) -> str:
        """What went wrong, as the log tells, and where all of it is."""
        return f"{failure(self._log_text())}\n(all of it: {self.log_file})"

    def open_log(self) -> TextIO:
        """The server's log from its present end on, to follow it."""
        if self.log_file is None:
            raise ServerError("this TritonServer was not started")
        log = self.log_file.open(encoding="utf-8", errors="replace")
        log.seek(0, os.SEEK_END)
        return log

    def _log_text(self) -> str:
        if self.log_file is None or not self.log_file.exists():
            return ""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """End the server: SIGTERM, and SIGKILL when it does not end in time. Harmless when it has ended."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(self.exit_timeout_s + 10)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):  # a second Ctrl-C: at once
                # The stubs are in the server's own session, of which it is the leader and not yet reaped.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for region in SHARED_MEMORY.glob(f"{self._region_prefix}*"):
            region.unlink(missing_ok=True)
        if self._own_log and process.returncode == 0 and self.log_file is not None:
            self.log_file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
