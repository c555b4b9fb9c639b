"""Where a Triton server comes from: a `tritonserver` on PATH, or the one inside the wheel `nvidia-pytriton`.

The wheel's server is 2.51.0 with the Python backend and a stub for each CPython 3.8-3.13: no container, no GPU.
What it takes to run it was found by trial (DECISIONS.md, "The embedded Triton").
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tristream.parsers.errors import TristreamError

__all__ = ["Installation", "InstallationError", "cache_folder", "find_installation"]

WHEEL: Final = "nvidia-pytriton"
OLDEST_GLIBC: Final = (2, 35)
ELSEWHERE: Final = (
    "elsewhere run the container nvcr-style: an image with tritonserver on PATH and tristream installed in it"
)


class InstallationError(TristreamError):
    """No Triton server can run here; the message says what to install."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A server that can be started.

    Args:
        executable: the `tritonserver` program.
        origin: where it comes from, for people.
        backend_directory: for `--backend-directory`; None leaves the server's own.
        path_prefixes: variables that hold lists of folders -> folders to put before what is there.
    """

    executable: Path
    origin: str
    backend_directory: Path | None = None
    path_prefixes: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    def full_environment(self, base: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
        """The environment of the process: `base`, then what the server needs, then `extra`."""
        environment = dict(base)
        for name, folders in self.path_prefixes.items():
            own = [str(folder) for folder in folders]
            environment[name] = os.pathsep.join([*own, *filter(None, [base.get(name)])])
        return {**environment, **extra}


def cache_folder() -> Path:
    """Where what is unpacked once is kept: `TRISTREAM_CACHE`, else the user's cache folder."""
    own = os.environ.get("TRISTREAM_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tristream"


def find_installation(cache: Path | None = None) -> Installation:
    """Find the server to run: the one on PATH, else the wheel's, unpacked into the cache where it is not yet.

    Args:
        cache: the folder to unpack into; `cache_folder()` by default.

    Raises:
        InstallationError: there is none; names what to install.
    """
    on_path = shutil.which("tritonserver")
    if on_path:
        return Installation(Path(on_path), f"{on_path}, on PATH")
    return _embedded(cache or cache_folder())


def _embedded(cache: Path) -> Installation:
    _check_platform()
    package = importlib.util.find_spec("pytriton")  # found, not imported: its import takes a second
    if package is None or not package.submodule_search_locations:
        raise InstallationError(f"no tritonserver on PATH and no {WHEEL}; run: pip install 'tristream[server]'")
    version = importlib.metadata.version(WHEEL)
    server = Path(package.submodule_search_locations[0]) / "tritonserver"
    libraries = server.parent.parent / "nvidia_pytriton.libs"
    executable = server / "bin" / "tritonserver"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = server / "python_backend_stubs" / python / "triton_python_backend_stub"
    for needed in (executable, stub, libraries):
        if not needed.exists():
            raise InstallationError(f"{WHEEL} {version} has no {needed}; it serves CPython 3.8-3.13, this is {python}")
    backends = cache / f"triton-{version}-python{python}" / "backends"
    if not backends.is_dir():
        _unpack(server / "backends" / "python", stub, backends)
    return Installation(
        executable,
        f"the one inside {WHEEL} {version}",
        backends,
        {
            # The stub links libpython; the loader must take the one of this very interpreter, or _ssl and others fail.
            "LD_LIBRARY_PATH": (_libpython_folder(python), libraries),
            # The stub's interpreter finds its environment (site-packages, .pth files) by the `python3` on PATH.
            "PATH": (Path(sys.prefix) / "bin",),
        },
    )


def _check_platform() -> None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        found = f"{platform.system()} on {platform.machine()}"
        raise InstallationError(f"the embedded Triton runs on Linux x86-64, this is {found}; {ELSEWHERE}")
    name, version = platform.libc_ver()
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if name != "glibc" or numbers < OLDEST_GLIBC:
        found = f"{name or 'another C library'} {version}"
        raise InstallationError(
            f"the embedded Triton needs glibc >= 2.35 (Debian 12, Ubuntu 22.04), this is {found}; {ELSEWHERE}"
        )


def _libpython_folder(python: str) -> Path:
    library = f"libpython{python}.so.1.0"
    for variable in ("LIBDIR", "LIBPL"):
        folder = sysconfig.get_config_var(variable)
        if folder and (Path(folder) / library).exists():
            return Path(folder)
    raise InstallationError(
        f"{sys.executable} has no {library}; install it: Debian and Ubuntu `apt-get install libpython{python}`, "
        f"Fedora `dnf install python{python}-libs`, pyenv: build with PYTHON_CONFIGURE_OPTS=--enable-shared"
    )


def _unpack(backend: Path, stub: Path, backends: Path) -> None:
    """Lay out `backends/python` with the stub of this Python; complete or not at all, also when two try at once."""
    backends.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=backends.parent) as folder:
        unfinished = Path(folder) / "backends"
        shutil.copytree(backend, unfinished / "python")
        shutil.copy2(stub, unfinished / "python" / stub.name)
        try:
            unfinished.rename(backends)
        except OSError:
            if not backends.is_dir():
                raise
