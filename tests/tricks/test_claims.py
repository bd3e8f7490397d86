"""The check of each claim gives an answer, with evidence, on the torch that is installed."""

import pytest
import torch

from perfkit.features.tricks.claims import claims

CLAIMS = {claim.name: claim for claim in claims()}
# Name, answer, and what the evidence has to tell.
FINDINGS = [
    ("contiguous_copies", "partly true", "of a contiguous matrix it returned that matrix itself: yes"),
    ("views_are_not_contiguous", "partly true", "view() gave one: yes"),
    ("view_needs_contiguous", "true", "raised RuntimeError; reshape() returned a copy instead: yes"),
    ("inference_tensors_are_immutable", "partly true", "within the mode it worked"),
    ("inference_mode_has_no_gradients", "partly true", "requires_grad=True did: yes"),
    ("no_grad_carries_gradients", "partly true", "product of a parameter asked for a gradient: no"),
    ("no_grad_allows_in_place", "true", "worked under no_grad(); with gradients on it raised RuntimeError"),
    ("zero_grad_drops", "true", "there was a gradient: no"),
    ("dropping_changes_nothing", "partly true", "left out of the second step, 0.90 and 0.81"),
    ("rmsprop_formula", "true", "of 100 parameters differed"),
    (
        "foreach_uses_blas",
        "false",
        "step 0 were matrix products; on lists of tensors there were _foreach_add_",
    ),
    ("sum_does_not_wait", "true", "sum() worked"),
    ("reading_waits", "true", "item() raised RuntimeError"),
]
ON_CUDA = {"clear_before_first_transfer": "false", "clearing_frees_tensors": "partly true"}


@pytest.mark.parametrize(("name", "answer", "seen"), FINDINGS)
def test_a_claim_is_answered_by_what_was_seen(name: str, answer: str, seen: str) -> None:
    """The answer stands with its evidence."""
    finding = CLAIMS[name].check()
    assert answer == finding.answer
    assert seen in finding.evidence


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU's foreach may round otherwise")
def test_foreach_gives_the_plain_loops_bits_on_a_processor() -> None:
    """On a processor not one of the parameters differs."""
    finding = CLAIMS["foreach_differs"].check()
    assert "false" == finding.answer
    assert "on cpu 0 of 4224 parameters differed" in finding.evidence


@pytest.mark.parametrize(("name", "answer"), ON_CUDA.items())
def test_what_only_a_device_can_tell_is_left_to_one(name: str, answer: str) -> None:
    """Without a CUDA device the check says so; with one it reads the bytes reserved."""
    finding = CLAIMS[name].check()
    assert finding.answer == (answer if torch.cuda.is_available() else "needs CUDA")


def test_checks_change_nothing() -> None:
    """The random numbers and whether gradients are recorded are as they were."""
    before = torch.random.get_rng_state()
    for claim in CLAIMS.values():
        claim.check()
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def test_claims_have_names_of_their_own_and_whole_sentences() -> None:
    """No two claims share a name; statements and evidence are of one line that ends with a full stop."""
    assert len(claims()) == len(CLAIMS)
    for claim in CLAIMS.values():
        for text in (claim.statement, claim.check().evidence):
            assert text.endswith(".")
            assert "\n" not in text
