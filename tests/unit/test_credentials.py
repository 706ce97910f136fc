"""A token makes signatures, a signature is good for one decision, and nothing stored makes either."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from retold.contracts.activation import ActivationCategory
from retold.contracts.review import Resolution, ReviewDecision
from retold.credentials import MalformedTokenError, ReviewerCredential, is_signed_by

names = (
    st.text(min_size=1, max_size=128)
    .filter(lambda name: name.strip() != "" and "\x00" not in name)
    .filter(lambda name: not any("\ud800" <= char <= "\udfff" for char in name))
)


@given(names)
def test_a_token_gives_back_its_credential_whatever_the_id(reviewer_id: str) -> None:
    credential = ReviewerCredential.issue(reviewer_id)
    again = ReviewerCredential.of(f"  {credential.token}\n")
    assert again == credential
    assert (again.token_hash, again.public_key) == (credential.token_hash, credential.public_key)
    assert credential.token not in repr(credential) and credential.token.split(".")[2] not in repr(credential)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c2VjcmV0",
        "retold-reviewer",
        "retold-reviewer..",
        "retold-reviewer.cml0YQ.ä",
        "retold-reviewer.cml0YQ.c2VjcmV0",
    ],
)
def test_what_is_no_token_is_refused_without_being_repeated(token: str) -> None:
    with pytest.raises(MalformedTokenError) as refused:
        ReviewerCredential.of(token)
    assert "c2VjcmV0" not in str(refused.value)


@given(st.data())
def test_a_signature_is_good_for_exactly_one_decision_of_one_person(data: st.DataObject) -> None:
    rita = ReviewerCredential.issue("rita")
    signed = rita.decide("review", Resolution.PROMOTE, expected_version=1, reason="said so")
    assert is_signed_by(rita.public_key, signed)
    assert not is_signed_by(ReviewerCredential.issue("rita").public_key, signed)
    change: dict[str, Any] = data.draw(
        st.sampled_from(
            [
                {"review_id": "other"},
                {"resolution": Resolution.REJECT},
                {"category": ActivationCategory.ACCESSIBILITY},
                {"expected_version": 2},
                {"reason": "said so "},
                {"reviewer_id": "vera"},
            ]
        )
    )
    assert not is_signed_by(rita.public_key, signed.model_copy(update=change))


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=200), st.text(max_size=60))
def test_garbage_is_no_signature_and_no_error(signature: str, public_key: str) -> None:
    decision = ReviewDecision(
        review_id="r", resolution=Resolution.REJECT, expected_version=1, reviewer_id="rita", signature=signature
    )
    assert not is_signed_by(public_key, decision)
    assert not is_signed_by(ReviewerCredential.issue("rita").public_key, decision)


def test_a_decision_read_back_from_json_has_the_same_signature_and_digest() -> None:
    rita = ReviewerCredential.issue("rita")
    signed = rita.decide("review", Resolution.KEEP_CONDITIONAL, expected_version=1, reason="“später” 慢慢")
    again = ReviewDecision.model_validate_json(signed.model_dump_json())
    assert is_signed_by(rita.public_key, again) and again.digest == signed.digest
    assert "慢慢".encode() in signed.signed_bytes(), "as hosts in other languages compute it: UTF-8, unescaped"
    assert len(base64.b64decode(signed.signature)) == 64


@pytest.mark.parametrize("member", ["reason", "resolution", "signature", "review_id", "reviewer_id"])
def test_a_decision_holds_nothing_a_database_could_not_keep(member: str) -> None:
    signed = ReviewerCredential.issue("rita").decide("review", Resolution.REJECT, expected_version=1)
    for text in ("a\x00b", "\ud800"):
        with pytest.raises(ValidationError):
            ReviewDecision.model_validate({**signed.model_dump(), member: text})
