"""Measure tasks on other machines, through Dask."""

from perfkit.extensions import Command, Document, Feature

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
    documents=(
        Document(
            "workers",
            1,
            "perfkit.features.cluster.worker:CheckedWorker",
            "perfkit engine check",
            is_list=True,
        ),
    ),
)
