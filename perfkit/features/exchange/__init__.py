"""Read and write other tools' files of measurements."""

from perfkit.extensions import Command, Document, Feature

FEATURE = Feature(
    commands=(
        Command(name="import", module="perfkit.features.exchange.cli", group="ledger"),
        Command(name="export", module="perfkit.features.exchange.cli", group="ledger"),
    ),
    documents=(
        Document("import", 1, "perfkit.features.exchange.command:ImportReport", "perfkit ledger import"),
    ),
)
