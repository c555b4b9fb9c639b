"""The house rules that no linter knows: who imports whom, and what is in the distribution (DESIGN 2)."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("parsers", "backend", "client")

# What `parsers` must do without although the standard library has it; one module is there to read files.
IMPURE = frozenset(
    "asyncio datetime http io logging multiprocessing os pathlib random secrets select shutil signal socket "
    "subprocess tempfile threading time urllib uuid".split()
)
PLACE_OF_IO = "formats/loading.py"

# Third-party packages of each room. A new one needs its reason in DECISIONS.md.
THIRD_PARTY = {
    "parsers": frozenset[str](),
    "backend": frozenset(
        "gguf google grpc jinja2 jsonschema numpy pydantic rich safetensors tokenizers torch transformers "
        "tritonclient typer xgrammar".split()
    ),
    "client": frozenset("google grpc numpy openai rich tritonclient typer".split()),
}


@dataclass(frozen=True)
class Import:
    room: str
    path: Path
    line: int
    module: str  # absolute name; relative ones are resolved
    level: int  # dots of a relative import
    lazy: bool  # inside a function, or for type checkers only

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.module}"

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]


def package_of(path: Path) -> str:
    """The import name of the folder a module lies in."""
    return ".".join(["tristream", *path.relative_to(ROOT).parent.parts])


def sources(room: str) -> list[Path]:
    return sorted(path for path in (ROOT / room).rglob("*.py") if "__pycache__" not in path.parts)


def imports_of(room: str) -> Iterator[Import]:
    for path in sources(room):
        package = package_of(path).split(".")
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        eager = set(eager_nodes(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(room, path, node.lineno, alias.name, 0, node not in eager)
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                module = ".".join([*base, *filter(None, [node.module])])
                yield Import(room, path, node.lineno, module, node.level, node not in eager)


def eager_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not typing_only:
            yield node
            yield from eager_nodes(node)


ALL_IMPORTS = [found for room in ROOMS for found in imports_of(room)]


def room_of(found: Import) -> str | None:
    """Which of our rooms the import leads into, None where it leaves the house."""
    parts = found.module.split(".")
    return parts[1] if parts[0] == "tristream" and len(parts) > 1 else None


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_has_sources(room: str) -> None:
    assert sources(room)


def test_parsers_import_the_standard_library_only() -> None:
    wrong = [
        found.place
        for found in ALL_IMPORTS
        if found.room == "parsers" and found.top not in sys.stdlib_module_names and room_of(found) != "parsers"
    ]
    assert not wrong


def test_parsers_have_no_io_no_clock_no_chance() -> None:
    wrong = [
        found.place
        for found in ALL_IMPORTS
        if found.room == "parsers" and found.top in IMPURE and not found.path.as_posix().endswith(PLACE_OF_IO)
    ]
    assert not wrong


def test_backend_never_imports_the_client() -> None:
    assert not [found.place for found in ALL_IMPORTS if found.room == "backend" and room_of(found) == "client"]


def test_client_imports_of_the_backend_only_the_contract_and_lazily_its_commands() -> None:
    wrong = [
        found.place
        for found in ALL_IMPORTS
        if found.room == "client"
        and room_of(found) == "backend"
        and not found.module.startswith("tristream.backend.contract")
        and not (found.module == "tristream.backend.cli" and found.lazy and found.path.name == "cli.py")
    ]
    assert not wrong


def test_relative_imports_inside_a_folder_absolute_ones_across_rooms() -> None:
    inside = [
        found.place
        for found in ALL_IMPORTS
        if not found.level and found.module.rpartition(".")[0] == package_of(found.path)
    ]
    across = [found.place for found in ALL_IMPORTS if found.level and room_of(found) != found.room]
    assert not inside, "write these relatively"
    assert not across, "write these absolutely"


def test_third_party_packages_are_those_agreed_on() -> None:
    wrong = [
        found.place
        for found in ALL_IMPORTS
        if found.top not in sys.stdlib_module_names
        and found.top not in ("tristream", "__future__")
        and found.top not in THIRD_PARTY[found.room]
    ]
    assert not wrong, "a new dependency needs its reason in DECISIONS.md and its place in pyproject.toml"


def test_the_backend_s_packages_import_nothing_of_their_own() -> None:
    """Importing one module of the backend must not load another, such as torch."""
    wrong = [
        found.place
        for found in ALL_IMPORTS
        if found.room == "backend" and found.path.name == "__init__.py" and found.top not in sys.stdlib_module_names
    ]
    assert not wrong
    assert not (ROOT / "backend" / "__init__.py").read_text(encoding="utf-8").strip()


@pytest.mark.parametrize("package", ["parsers", "client"])
def test_a_public_package_only_re_exports(package: str) -> None:
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    others = [
        ast.unparse(node)
        for node in tree.body[1:]
        if not isinstance(node, ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
    ]
    assert not others


def declared_packages() -> dict[str, Path]:
    """Packages of pyproject.toml -> their folders."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    roots: dict[str, str] = setuptools["package-dir"]
    folders = {}
    for name in setuptools["packages"]:
        root = next(root for root in roots if name == root or name.startswith(f"{root}."))
        folders[name] = ROOT / roots[root] / name[len(root) :].strip(".").replace(".", "/")
    return folders


def test_pyproject_lists_every_package_and_no_other() -> None:
    found = {path.parent for room in ROOMS for path in sources(room)}
    assert found == set(declared_packages().values())


def test_every_package_has_an_init() -> None:
    assert not [name for name, folder in declared_packages().items() if not (folder / "__init__.py").is_file()]


def test_the_wheel_holds_what_the_folders_hold(tmp_path: Path) -> None:
    # Built from a copy: setuptools leaves a build folder beside the sources, and takes stale files from it.
    copy = tmp_path / "source"
    ignore = shutil.ignore_patterns("__pycache__")
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, copy / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*command, str(tmp_path / "wheel"), str(copy)], check=True)
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {
        f"tristream/{path.relative_to(ROOT).as_posix()}"
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == expected
    assert {f"tristream/{room}/py.typed" for room in ROOMS} <= held


MODEL_FILES = sorted((ROOT / "model_repository").glob("*/*/*.py"))


@pytest.mark.parametrize("path", MODEL_FILES, ids=lambda path: path.parent.parent.name)
def test_a_model_file_is_short_and_hands_over_to_the_backend(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert path.name == "model.py", "Triton puts this folder on sys.path: no helper beside model.py"
    assert len(text.splitlines()) <= 30
    modules = {
        alias.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    ours = {module for module in modules if module.startswith("tristream.")}
    assert all(module.startswith("tristream.backend.models.") for module in ours)
    assert modules - ours <= {"__future__", "typing", "triton_python_backend_utils"}
