"""Static pages of a project's history."""

from perfkit.extensions import Command, Document, Feature

FEATURE = Feature(
    commands=(
        Command(
            name="report", module="perfkit.features.site.cli", summary="Write static pages of the history."
        ),
    ),
    documents=(Document("report", 1, "perfkit.features.site.command:WrittenFiles", "perfkit report"),),
)
