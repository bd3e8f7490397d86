"""First steps in a repository: configuration, benchmarks, continuous integration."""

from perfkit.extensions import Command, Feature

FEATURE = Feature(
    commands=(
        Command(
            name="init",
            module="perfkit.features.init.cli",
            summary="Write a configuration and first benchmarks for this repository.",
        ),
    )
)
