"""Comments on pull and merge requests."""

from perfkit.extensions import Command, Feature

FEATURE = Feature(
    commands=(
        Command(
            name="comment",
            module="perfkit.features.hosting.command",
            summary="Post a gate's result on a pull or merge request.",
        ),
    )
)
