"""What the user's own words around the evidence allow, whatever a policy said about them."""

from __future__ import annotations

from collections.abc import Sequence

from retold.contracts.activation import ActivationOutcome, ActivationReason, VerifiedEvidence
from retold.contracts.extraction import OwnTurn
from retold.policy.activation.claims import Claims, claims_of
from retold.policy.activation.instruction import Instruction, is_bare, read_instruction
from retold.policy.activation.reading import Reading, read, read_once, read_record

EARLIER_TURNS_READ = 50
"""Own turns before the evidence that are read for contradiction; a session's, not a life's. After it all are read: the
latest word is what counts."""

Judgement = tuple[ActivationOutcome, ActivationReason]

_NARROWS = (ActivationReason.TEMPORARY_PREFERENCE, ActivationReason.SCOPED_PREFERENCE)
_PLAIN_DENIALS = frozenset({ActivationReason.NEGATED, ActivationReason.RETRACTED})
"""Doubts with which a sentence still takes an instruction back; with any other it is about something else."""


def judge_statement(
    record_text: str, evidence: VerifiedEvidence, turns: Sequence[OwnTurn], replaced: Sequence[str] = ()
) -> Judgement:
    """Promote only what is plainly a standing response instruction in a language with a reviewed word list.

    A statement that holds only for a while or only somewhere is conditional; every other doubt goes to review.

    Args:
        replaced: texts of the records about the same attribute that are superseded. What they said the user has changed
            their mind about; any other standing statement that disagrees is for a reviewer.
    """
    with read_once():
        return _judged(record_text, evidence, turns, replaced)


def is_taken_back(record_text: str, turns: Sequence[OwnTurn]) -> bool:
    """Whether the user plainly takes the standing instruction back in these turns, and does not say it again after.

    Something asked for once, somewhere or by somebody else takes nothing back. That it may mean something else is for
    the evaluation, and a reviewer: an instruction somebody may have taken back is not followed meanwhile.
    """
    wanted = claims_of(read_record(record_text).sentences)
    taken_back = False
    for turn in turns if not wanted.empty else ():
        reading = read(turn.text)
        for sentence in reading.sentences:
            instruction, said = read_instruction(reading, sentence), claims_of([sentence])
            if not _PLAIN_DENIALS.issuperset(instruction.doubts):
                continue
            retracted = ActivationReason.RETRACTED in instruction.doubts and said.names(wanted)
            denied = sentence.has("not") and instruction.directed
            if retracted or ((denied or instruction.standing) and said.contradicts(wanted)):
                taken_back = True
            elif instruction.directed and said.supports(wanted):
                taken_back = False
    return taken_back


def _judged(
    record_text: str, evidence: VerifiedEvidence, turns: Sequence[OwnTurn], replaced: Sequence[str]
) -> Judgement:
    said = next((turn for turn in turns if turn.turn_ref == evidence.turn_ref), None)
    if said is None or said.text[evidence.start : evidence.end] != evidence.span:
        return ActivationOutcome.CONDITIONAL, ActivationReason.NO_HOST_VERIFIED_EVIDENCE
    reading = read(said.text)
    if not reading.is_own(evidence.start, evidence.end):
        return ActivationOutcome.REVIEW, ActivationReason.QUOTED
    instructions = [read_instruction(reading, each) for each in reading.overlapping(evidence.start, evidence.end)]
    doubts = [doubt for each in instructions for doubt in each.doubts]
    if ActivationReason.LANGUAGE_NOT_REVIEWED in doubts:
        return ActivationOutcome.REVIEW, ActivationReason.LANGUAGE_NOT_REVIEWED
    if doubts:
        worst = next((doubt for doubt in doubts if doubt not in _NARROWS), doubts[0])
        return (ActivationOutcome.CONDITIONAL if worst in _NARROWS else ActivationOutcome.REVIEW), worst
    claims = claims_of(each.sentence for each in instructions)
    recorded = read_record(record_text).sentences
    wanted = claims_of(recorded)
    if wanted.contradicts(claims):
        return ActivationOutcome.REVIEW, ActivationReason.NEGATED
    if ("warnings", -1) in wanted.axes or any(sentence.has("unsafe") for sentence in recorded):
        # What reaches the profile is the record's text: it may say nothing that the span does not.
        return ActivationOutcome.REVIEW, ActivationReason.FLAGGED_UNSAFE
    over = [claims_of(read_record(text).sentences) for text in replaced if not _adds_to_what_was_said(instructions)]
    if (elsewhere := _said_elsewhere(claims, instructions, reading, said, turns, over)) is not None:
        return ActivationOutcome.REVIEW, elsewhere
    plain = [each for each in instructions if each.plain]
    if not plain:
        return ActivationOutcome.REVIEW, ActivationReason.NOT_PLAINLY_STANDING
    if all(is_bare(reading, each) for each in plain):
        return ActivationOutcome.PROMOTE, ActivationReason.ELIGIBLE_BROAD_PREFERENCE
    return ActivationOutcome.PROMOTE, ActivationReason.ELIGIBLE_GLOBAL_DEFAULT


def _said_elsewhere(
    claims: Claims,
    core: list[Instruction],
    reading: Reading,
    said: OwnTurn,
    turns: Sequence[OwnTurn],
    over: Sequence[Claims],
) -> ActivationReason | None:
    """Whether the user took it back later, or says something else at another place, other than what is over."""
    at = turns.index(said)
    for other in turns[at + 1 :]:
        if any(sentence.has("takeback", "not_asked") for sentence in read(other.text).sentences):
            return ActivationReason.RETRACTED
    spoken = {id(each.sentence) for each in core}
    earlier = turns[max(0, at - EARLIER_TURNS_READ) : at]
    for turn in (said, *earlier, *turns[at + 1 :]):
        there = reading if turn is said else read(turn.text)
        for sentence in there.sentences:
            if id(sentence) in spoken:
                continue
            instruction, against = read_instruction(there, sentence), claims_of([sentence])
            if not (instruction.directed or instruction.standing) or not against.contradicts(claims):
                continue
            is_over = _was_for_once(there, instruction) or any(each.supports(against) for each in over)
            if turn not in earlier or not is_over:
                return ActivationReason.CONTRADICTED
    for before in turns[max(0, at - 3) : at]:
        if any(sentence.has("roleplay") for sentence in read(before.text).sentences):
            return ActivationReason.HYPOTHETICAL
    return None


def _was_for_once(reading: Reading, instruction: Instruction) -> bool:
    """Asked for once, before the wish for every reply: that is answered, and nothing to disagree with."""
    return not instruction.standing and not is_bare(reading, instruction)


def _adds_to_what_was_said(instructions: Sequence[Instruction]) -> bool:
    """ "And always answer in one line": who goes on from what they said before does not seem to replace it."""
    return any(
        one.list == "conj" and one.start == each.sentence.start for each in instructions for one in each.sentence.found
    )
