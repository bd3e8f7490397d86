"""Static pages of a project's history."""

from perfkit.extensions import Command, Feature

FEATURE = Feature(
    commands=(
        Command(
            name="report",
            module="perfkit.features.site.cli",
            summary="Write static pages of the history.",
        ),
    )
)
