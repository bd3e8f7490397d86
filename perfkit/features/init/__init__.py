"""First steps in a repository: configuration, benchmarks, continuous integration."""

from perfkit.extensions import Command, Document, Feature

FEATURE = Feature(
    commands=(
        Command(
            name="init",
            module="perfkit.features.init.cli",
            summary="Write a configuration and first benchmarks for this repository.",
        ),
    ),
    documents=(Document("init", 1, "perfkit.features.init.files:StartingPlan", "perfkit init"),),
)
