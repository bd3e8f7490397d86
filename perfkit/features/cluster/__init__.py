"""Measure tasks on other machines, through Dask."""

from perfkit.extensions import Command, Feature

FEATURE = Feature(
    commands=(
        Command(
            name="engine",
            module="perfkit.features.cluster.cli",
            summary="Look at the machines that --engine dask://HOST:PORT measures on.",
        ),
        Command(name="work", module="perfkit.features.cluster.cli", hidden=True),
    ),
    engines={"dask": "perfkit.features.cluster.engines"},
)
