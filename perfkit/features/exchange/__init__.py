"""Read and write other tools' files of measurements."""

from perfkit.extensions import Command, Feature

FEATURE = Feature(
    commands=(
        Command(name="import", module="perfkit.features.exchange.cli", group="ledger"),
        Command(name="export", module="perfkit.features.exchange.cli", group="ledger"),
    )
)
