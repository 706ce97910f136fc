"""The retriever: generators for every gap in one index call, then the stages one after another."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retold.contracts.stages import Candidate, SearchEntry
from retold.policy.ports import Embedder, SearchRequest, SearchResponse
from retold.retrieval.caps import Chosen, choose
from retold.retrieval.config import RetrievalConfig
from retold.retrieval.found import Found, Tally
from retold.retrieval.freshness import prefer_fresh
from retold.retrieval.fusion import fuse
from retold.retrieval.gate import Gate, gate_for
from retold.retrieval.ports import (
    CurrentRecords,
    DenseQuery,
    Eligibility,
    EntityQuery,
    Generator,
    Hit,
    IndexQuery,
    LexicalQuery,
    RecordSearch,
)  # fmt: skip
from retold.retrieval.strength import by_strength, support_by_day
from retold.retrieval.subject import prefer_subjects, spoken_of
from retold.retrieval.text import possible_names

_SEARCHES = uuid.uuid5(uuid.NAMESPACE_URL, "urn:retold:search")
_GENERATORS = (Generator.DENSE, Generator.LEXICAL, Generator.ENTITY)
_READ_AHEAD = 1.5
"""Records loaded at first, as a multiple of what can be kept: a few are gone, or restate another."""


@dataclass(slots=True)
class _GapSearch:
    """One gap on its way through the stages, with the search log row that grows beside it."""

    query: str
    generated: dict[Generator, list[Hit]]
    found: list[Found]
    gate: Gate
    tally: Tally

    @property
    def unloaded(self) -> list[Found]:
        return [each for each in self.found if each.record is None]


class Retriever:
    """Finds candidates for the gaps of a turn (design section 5). Implements `CandidateRetriever`.

    The embedder's and the index's errors pass through: the turn records them as a failed retrieval, never as
    "nothing found".
    """

    def __init__(
        self,
        index: RecordSearch,
        embedder: Embedder,
        records: CurrentRecords,
        config: RetrievalConfig | None = None,
    ) -> None:
        self._index = index
        self._embedder = embedder
        self._records = records
        self.config = config or RetrievalConfig()

    @property
    def config_hash(self) -> str:
        """Hash of what this retriever really runs with; a bundle that declares another one is refused."""
        return self.config.config_hash(self._embedder.identity)

    async def search(self, request: SearchRequest) -> SearchResponse:
        """Candidates of all gaps together, best first, and one search log row a gap.

        At most `min(request.max_candidates, config.max_candidates)` candidates come back; they carry ids, versions
        and scores, never text.
        """
        if not request.gaps:
            return SearchResponse()
        started = time.perf_counter()
        searches = await self._ranked(request)
        chosen = await self._choose(searches, request)
        elapsed_ms = (time.perf_counter() - started) * 1_000
        return SearchResponse(
            candidates=tuple(_candidate(each) for each in chosen),
            searches=tuple(_entry(request, gap, search, chosen, elapsed_ms) for gap, search in enumerate(searches)),
        )

    async def _ranked(self, request: SearchRequest) -> list[_GapSearch]:
        vectors = await self._embedder.embed_queries([gap.query for gap in request.gaps])
        eligible = Eligibility(principal=request.principal, scopes=self.config.scopes, at=request.at)
        queries = [
            query
            for gap, vector in zip(request.gaps, vectors, strict=True)
            for query in self._queries(gap.query, vector, eligible)
        ]
        answers = await self._index.search(queries)
        width = len(_GENERATORS)
        return [
            self._rank(
                gap.query,
                vectors[at],
                dict(zip(_GENERATORS, answers[at * width : (at + 1) * width], strict=True)),
                request,
            )
            for at, gap in enumerate(request.gaps)
        ]

    def _queries(self, query: str, vector: NDArray[np.float32], eligible: Eligibility) -> tuple[IndexQuery, ...]:
        return (
            DenseQuery(eligible=eligible, limit=self.config.dense_depth, vector=vector),
            LexicalQuery(eligible=eligible, limit=self.config.lexical_depth, text=query),
            EntityQuery(
                eligible=eligible, limit=self.config.entity_depth, names=possible_names(query), vector=vector
            ),
        )  # fmt: skip

    def _rank(
        self, query: str, vector: NDArray[np.float32], generated: dict[Generator, list[Hit]], request: SearchRequest
    ) -> _GapSearch:
        """Everything that can be said without a record's text: the order, and who is too far away."""
        config, tally = self.config, Tally()
        fused = fuse(
            generated,
            vector,
            k=config.rrf_k,
            weights={
                Generator.DENSE: config.dense_weight,
                Generator.LEXICAL: config.lexical_weight,
                Generator.ENTITY: config.entity_weight,
            },
        )
        tally.drop("fusion", "below_depth", len(fused) - config.fused_depth)
        found = by_strength(
            fused[: config.fused_depth],
            query,
            lexical_weight=config.lexical_strength,
            date_bonus=config.date_bonus,
        )
        found = prefer_fresh(
            found, at=request.at, half_life_days=config.freshness_half_life_days, floor=config.freshness_floor
        )
        found = prefer_subjects(
            found,
            spoken_of(query, {each.hit.subject for each in found}),
            penalty=config.other_subject_penalty,
        )
        gate = gate_for(
            found,
            query,
            heard=bool(generated[Generator.LEXICAL] or generated[Generator.ENTITY]),
            dense_floors=config.dense_floors,
            unheard_floor=config.unheard_floor,
            lexical_min_share=config.lexical_min_share,
            relative_floor=config.relative_floor,
        )
        found = support_by_day(found, weight=config.day_support)
        search = _GapSearch(query, generated, found, gate, tally)
        self._pass_gate(search)
        return search

    async def _choose(self, searches: Sequence[_GapSearch], request: SearchRequest) -> list[Chosen]:
        """Fill the list from the top, and load no more records than that takes: the best few, rarely the rest."""
        max_candidates = min(request.max_candidates, self.config.max_candidates)
        portion = math.ceil(_READ_AHEAD * max_candidates / len(searches)) + 1
        while True:
            await self._load([search.unloaded[:portion] for search in searches], searches, request)
            tallies = [Tally() for _ in searches]
            chosen = choose(
                [search.found for search in searches],
                tallies,
                max_candidates=max_candidates,
                max_tokens=self.config.max_tokens,
                restatement_cosine=self.config.restatement_cosine,
            )
            if chosen is not None:
                for search, tally in zip(searches, tallies, strict=True):
                    search.tally.add(tally)
                return chosen
            portion = self.config.fused_depth

    async def _load(
        self, portions: Sequence[Sequence[Found]], searches: Sequence[_GapSearch], request: SearchRequest
    ) -> None:
        """Ask the store which of these versions still stand: an index lags, and only the store is the truth."""
        asked = {(each.ref.id, each.ref.version): each.ref for portion in portions for each in portion}
        if not asked:
            return
        records = await self._records.load_current(request.principal, list(asked.values()), request.at)

        def looked_up(each: Found) -> Found | None:
            if (each.ref.id, each.ref.version) not in asked:
                return each
            record = records.get(each.ref.id)
            stands = record is not None and record.version == each.ref.version and record.scope in self.config.scopes
            return each.loaded(record) if record is not None and stands else None

        for search in searches:
            found = [standing for each in search.found if (standing := looked_up(each)) is not None]
            search.tally.drop("current", "gone", len(search.found) - len(found))
            search.found = found
            self._pass_gate(search)

    @staticmethod
    def _pass_gate(search: _GapSearch) -> None:
        """Drop who is not let in. Those whose words decide stay until their text was read."""
        found = [each for each in search.found if search.gate.lets_in(each) is not False]
        search.tally.drop("gate", "below_floor", len(search.found) - len(found))
        search.found = found


def _candidate(chosen: Chosen) -> Candidate:
    return Candidate(
        ref=chosen.found.ref,
        score=chosen.found.score,
        dense=chosen.found.cosine,
        lexical=chosen.found.lexical,
        gaps=tuple(sorted(chosen.gaps)),
    )


def _entry(
    request: SearchRequest, gap: int, search: _GapSearch, chosen: Sequence[Chosen], elapsed_ms: float
) -> SearchEntry:
    return SearchEntry(
        search_id=str(uuid.uuid5(_SEARCHES, f"{request.decision_id}/{gap}")),
        gap_index=gap,
        query=search.query,
        generated={generator.value: len(hits) for generator, hits in search.generated.items()},
        dropped=search.tally.as_dict(),
        kept=tuple(each.found.ref for each in chosen if gap in each.gaps),
        elapsed_ms=elapsed_ms,
    )
