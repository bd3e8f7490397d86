"""Claims on how tensors lie in memory."""

import torch

from perfkit.features.tricks.claims.claim import Claim, Finding, holds, outcome, yes


def _contiguous() -> Finding:
    matrix = torch.ones(2, 3)
    transposed = matrix.t()
    copied = transposed.contiguous().data_ptr() != transposed.data_ptr()
    itself = matrix.contiguous() is matrix
    return Finding(
        answer=holds(here=copied, elsewhere=not itself),
        evidence=(
            f"Of a transposed matrix it returned a copy: {yes(copied)}; "
            f"of a contiguous matrix it returned that matrix itself: {yes(itself)}."
        ),
    )


def _after_views() -> Finding:
    cube = torch.ones(2, 3, 4)
    rearranged = cube.permute(2, 0, 1).is_contiguous() or cube.transpose(0, 1).is_contiguous()
    viewed = cube.view(6, 4).is_contiguous()
    return Finding(
        answer=holds(here=not rearranged, elsewhere=not viewed),
        evidence=(
            f"Of a contiguous tensor permute() or transpose() gave a contiguous one: {yes(rearranged)}; "
            f"view() gave one: {yes(viewed)}."
        ),
    )


def _view_of_permuted() -> Finding:
    transposed = torch.ones(2, 3).t()
    viewed = outcome(lambda: transposed.view(6))
    copied = transposed.reshape(6).data_ptr() != transposed.data_ptr()
    return Finding(
        answer="false" if viewed == "worked" else "true",
        evidence=(
            f"view() of a transposed matrix as one row {viewed}; "
            f"reshape() returned a copy instead: {yes(copied)}."
        ),
    )


CLAIMS = (
    Claim(
        name="contiguous_copies",
        statement="contiguous() creates a new tensor.",
        check=_contiguous,
    ),
    Claim(
        name="views_are_not_contiguous",
        statement="After permute(), transpose() and view() a tensor is not contiguous.",
        check=_after_views,
    ),
    Claim(
        name="view_needs_contiguous",
        statement="view() refuses a permuted tensor that was not made contiguous.",
        check=_view_of_permuted,
    ),
)
