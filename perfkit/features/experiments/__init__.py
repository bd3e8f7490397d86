"""Experiments in randomised complete blocks: every variant in a fresh process, once in every block."""

from perfkit.extensions import Command, Document, Feature

FEATURE = Feature(
    commands=(
        Command(
            name="experiment",
            module="perfkit.features.experiments.cli",
            summary="Compare variants of one training in randomised blocks.",
        ),
    ),
    policies={"experiment": "perfkit.features.experiments.records:ExperimentPolicy"},
    documents=(
        Document(
            "experiment", 1, "perfkit.features.experiments.records:ExperimentRecord", "perfkit experiment"
        ),
    ),
)
