"""A server for coding agents: perfkit's commands as tools of the Model Context Protocol."""

from perfkit.extensions import Command, Feature

FEATURE = Feature(
    commands=(
        Command(
            name="mcp",
            module="perfkit.features.mcp.cli",
            summary="Serve check, gate, why, bisect and history to a coding agent.",
        ),
    )
)
