"""The real server: started, waited for, stopped, and what is said when it fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tristream.backend.deploy.server import PORT_RANGE, ServerError, TritonServer, choose_port
from tristream.backend.deploy.serverlog import worth_showing

CONFIG = """backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
WORDS = """
import os

import numpy as np
import triton_python_backend_utils as pb_utils

import tristream.parsers
from tristream.backend.contract import MODELS


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode()
            text = text.replace("$LLM", os.environ["TRISTREAM_LLM_URL"])
            for word in text.split():
                tensor = pb_utils.Tensor("text_output", np.array([word.encode()], dtype=object))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
BROKEN = """
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("config.pbtxt parameter 'tokenizer': found 'x'; allowed: a file")
"""


def make_repository(folder: Path, **models: str) -> Path:
    for name, code in models.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(CONFIG, encoding="utf-8")
        (folder / name / "1" / "model.py").write_text(code, encoding="utf-8")
    return folder


def regions() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob(f"tristream-{os.getpid()}-*")}


def test_a_taken_port_is_replaced_by_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert choose_port(port) in PORT_RANGE
    assert choose_port(port) == port
    assert choose_port(port, {port}) != port


def test_harmless_complaints_are_not_worth_showing() -> None:
    lines = [
        'W1201 15:28:29.49 8861 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory"',
        'E1201 15:28:29.49 8861 server.cc:241] "CudaDriverHelper has not been initialized."',
        "Error: Failed to initialize NVML",
        'W1201 15:28:31.26 8861 metrics.cc:798] "DCGM unable to start: DCGM initialization error"',
        'I1201 15:28:31.26 8861 metrics.cc:770] "Collecting CPU metrics"',
        'E1201 15:28:31.26 8861 model_lifecycle.cc:642] "failed to load"',
    ]
    assert worth_showing(lines) == lines[-1:]


@pytest.mark.parametrize("action", ["open_log", "start"])
def test_using_it_out_of_order_says_so(action: str, tmp_path: Path) -> None:
    server = TritonServer([tmp_path / "nowhere"])
    with pytest.raises(ServerError, match=r"not started|is not a folder"):
        getattr(server, action)()
    server.stop()


def stream_words(server: TritonServer, text: str) -> list[str]:
    url = f"{server.http_url}/v2/models/words/generate_stream"
    request = urllib.request.Request(url, json.dumps({"text_input": text}).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        events = [line[len("data: ") :] for line in answer.read().decode().splitlines() if line]
    return [json.loads(event)["text_output"] for event in events]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with TritonServer([make_repository(tmp_path_factory.mktemp("repository"), words=WORDS)]) as server:
        server.wait_ready()
        yield server


@pytest.mark.server
def test_it_streams_through_a_model_that_imports_this_package(running: TritonServer) -> None:
    assert stream_words(running, "grüße aus Triton") == ["grüße", "aus", "Triton"]


@pytest.mark.server
def test_models_know_where_their_own_server_is(running: TritonServer) -> None:
    assert stream_words(running, "LLM at $LLM") == ["LLM", "at", running.grpc_url]


@pytest.mark.server
def test_all_three_ports_answer(running: TritonServer) -> None:
    with urllib.request.urlopen(running.metrics_url, timeout=30) as answer:
        assert b"nv_inference_request_success" in answer.read()
    host, port = running.grpc_url.split(":")
    with socket.create_connection((host, int(port)), timeout=10):
        pass


@pytest.mark.server
def test_progress_names_the_models(running: TritonServer) -> None:
    told: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    running.wait_ready(progress=lambda loaded, loading: told.append((loaded, loading)))
    assert told == [(("words",), ())]


@pytest.mark.server
def test_its_shared_memory_is_its_own(running: TritonServer) -> None:
    assert regions()


@pytest.mark.server
def test_stopping_leaves_nothing_behind(tmp_path: Path) -> None:
    before = regions()
    server = TritonServer([make_repository(tmp_path, words=WORDS)])
    with server:
        server.wait_ready()
        log = server.log_file
    assert not server.running
    assert regions() == before
    assert log is not None
    assert not log.exists()
    server.stop()


@pytest.mark.server
def test_a_killed_server_s_regions_are_removed_and_its_log_is_kept(tmp_path: Path) -> None:
    before = regions()
    server = TritonServer([make_repository(tmp_path, words=WORDS)], log_file=tmp_path / "log")
    with server:
        server.wait_ready()
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        while server.running:
            time.sleep(0.02)
        with pytest.raises(ServerError, match="was ended by SIGKILL"):
            server.wait_ready()
    assert regions() == before
    assert (tmp_path / "log").exists()


@pytest.mark.server
def test_a_model_that_does_not_load_ends_the_wait_at_once(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository", words=WORDS, broken=BROKEN)
    started = time.monotonic()
    with TritonServer([repository], log_file=tmp_path / "log") as server, pytest.raises(ServerError) as caught:
        server.wait_ready(120)
    assert time.monotonic() - started < 60
    said = str(caught.value)
    assert "config.pbtxt parameter 'tokenizer': found 'x'; allowed: a file" in said
    assert "+-----" not in said
    assert "CUDA" not in said


@contextmanager
def serve(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """`tristream serve`; a test that fails leaves none behind."""
    command = [sys.executable, "-m", "tristream.backend.cli", "serve", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


@pytest.mark.server
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_where_it_is_and_stops_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    with serve(make_repository(tmp_path, words=WORDS), "--log-file", tmp_path / "log") as process:
        assert process.stderr is not None
        said = ""
        while "Ctrl-C" not in said:
            line = process.stderr.readline()
            assert line, f"serve ended early: {said}"
            said += line
        process.send_signal(number)
        said += process.stderr.read()
        assert process.wait(30) == 0
    for wanted in ("gRPC", "HTTP", "http://127.0.0.1:", "words", "loaded", "stopping"):
        assert wanted in said


@pytest.mark.server
def test_serve_runs_a_command_and_passes_its_status_on(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository", words=WORDS)
    code = "import os, sys; sys.exit(7 if ':' in os.environ['TRISTREAM_URL'] else 1)"
    with serve(repository, "--log-file", tmp_path / "log", "--exec", f'{sys.executable} -c "{code}"') as process:
        process.communicate(timeout=150)
        assert process.returncode == 7


@pytest.mark.server
def test_serve_says_what_is_wrong_with_status_1(tmp_path: Path) -> None:
    broken = make_repository(tmp_path / "broken", broken=BROKEN)
    for arguments, wanted in (
        ([tmp_path / "nowhere"], "found no such folder"),
        ([broken, "--log-file", tmp_path / "log"], "parameter 'tokenizer'"),
        ([broken, "--set", "broken"], "allowed: MODEL.PARAMETER=VALUE"),
        ([broken, "--llm", tmp_path], "found no model that reads ${TRISTREAM_MODEL}"),
    ):
        with serve(*arguments) as process:
            _, said = process.communicate(timeout=150)
            assert process.returncode == 1
        assert wanted in said
        assert "Traceback" not in said
