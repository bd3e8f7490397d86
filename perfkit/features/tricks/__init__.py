"""Speed tricks: the catalogue, the suite that tries them, and the choice."""

from perfkit.extensions import Command, Document, Feature

FEATURE = Feature(
    commands=(
        Command(
            name="tricks",
            module="perfkit.features.tricks.cli",
            summary="Measure which speed tricks pay for a training loop.",
        ),
    ),
    policies={"tricks": "perfkit.features.tricks.trick:TrickPolicy"},
    documents=(Document("tricks", 4, "perfkit.features.tricks.report:TricksReport", "perfkit tricks"),),
)
