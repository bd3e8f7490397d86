"""Where a training that runs already spends its time, or hangs."""

from perfkit.extensions import Command, Document, Feature

FEATURE = Feature(
    commands=(
        Command(
            name="watch",
            module="perfkit.features.watch.report",
            summary="Show where a running training spends its time, or hangs.",
        ),
    ),
    documents=(Document("watch", 1, "perfkit.features.watch.report:WatchReport", "perfkit watch"),),
)
