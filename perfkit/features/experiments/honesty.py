"""Whether a variant did what its name says, judged by its operators and torch's flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfkit.features.experiments.records import Experiment, Fingerprint, Level, Variant

# The half-precision type that each level of a factor of precision promises to compute in, "" for none.
_PROMISES: Mapping[str, str] = {
    "default": "",
    "fp32": "",
    "float32": "",
    "full": "",
    "false": "",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "amp": "any",
    "mixed": "any",
    "true": "any",
}
_PRECISION_FACTORS = ("precision", "amp", "mixed_precision", "autocast", "dtype")
# The settings of torch that a factor with a name may change.
_SETTINGS_OF = {
    "threads": "threads",
    "cudnn_benchmark": "cudnn_benchmark",
    "matmul_precision": "matmul_precision",
    "deterministic": "deterministic",
}


def promised_half(variant: Variant) -> str | None:
    """Return the half-precision type that a variant's name promises: "" for none, "any" for either.

    None where no factor says anything of it.
    """
    for name in _PRECISION_FACTORS:
        level = variant.levels.get(name)
        if level is not None:
            return _PROMISES.get(_text(level))
    return None


def broken_promises(experiment: Experiment, found: Mapping[str, Fingerprint]) -> Iterator[str]:
    """Yield what makes the experiment's names wrong: no half precision, swapped labels, leaked flags."""
    looked_at = [variant for variant in experiment.variants if variant.name in found]
    wrong = [variant for variant in looked_at if not _keeps(variant, found[variant.name])]
    if _are_swapped(wrong):
        yield (
            f"the labels are swapped: {_what_ran(wrong[0], found)}, {_what_ran(wrong[1], found)};"
            " give each level the name of what it does"
        )
    else:
        for variant in wrong:
            yield (
                f"{_what_ran(variant, found)}; a variant must do what its name says: mend the target's use"
                f" of {_precision_factor(variant)}"
            )
    yield from leaked_flags(experiment, {name: one.settings for name, one in found.items()})


def broken_cast(variant: Variant, casts: Sequence[str]) -> str | None:
    """Return what is wrong with a timed trial, by the automatic casting that was on; None if nothing.

    Casting by hand cannot be seen this way, so no casting is wrong only where the check had seen some.
    """
    promised = promised_half(variant)
    if promised is None or not casts:
        return None
    if promised == "":
        return f'"{variant.name}" ran under automatic casting to {", ".join(casts)}'
    if promised != "any" and promised not in casts:
        return f'"{variant.name}" ran under automatic casting to {", ".join(casts)}, not {promised}'
    return None


def leaked_flags(experiment: Experiment, settings: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the flags of torch that differ between variants though no factor is about them."""
    allowed = {_SETTINGS_OF.get(factor.name, factor.name) for factor in experiment.factors}
    flags = dict.fromkeys(flag for one in settings.values() for flag in one)
    for flag in flags:
        by_value: dict[str, str] = {}
        for variant, one in settings.items():
            by_value.setdefault(one.get(flag, "unknown"), variant)
        if flag not in allowed and len(by_value) > 1:
            (first, here), (second, there), *_ = by_value.items()
            yield (
                f'a flag has leaked: {flag} is {first} in "{here}" and {second} in "{there}", and no factor'
                " is about it; set it the same in both, or make it a factor"
            )


def _keeps(variant: Variant, found: Fingerprint) -> bool:
    promised = promised_half(variant)
    if promised is None:
        return True
    if promised == "":
        return not found.half
    return bool(found.half) if promised == "any" else promised in found.half


def _are_swapped(wrong: Sequence[Variant]) -> bool:
    promises = {promised_half(variant) == "" for variant in wrong}
    return promises == {True, False}


def _what_ran(variant: Variant, found: Mapping[str, Fingerprint]) -> str:
    half = found[variant.name].half
    ran = ", ".join(f"{count} operators in {kind}" for kind, count in half.items())
    return f'"{variant.name}" ran {ran or "no operator in half precision"}'


def _precision_factor(variant: Variant) -> str:
    return next(name for name in _PRECISION_FACTORS if name in variant.levels)


def _text(level: Level) -> str:
    return str(level).lower()
