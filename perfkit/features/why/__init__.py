"""Why a training loop takes as long as it does, and what to change next."""

from perfkit.extensions import Command, Document, Feature

FEATURE = Feature(
    commands=(
        Command(
            name="why",
            module="perfkit.features.why.cli",
            summary="Name what slows a training loop, and what the next change would give.",
        ),
    ),
    documents=(Document("why", 2, "perfkit.features.why.causes:WhyReport", "perfkit why"),),
)
