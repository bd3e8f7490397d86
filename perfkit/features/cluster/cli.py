"""``perfkit engine``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from perfkit.cli.options import JsonOption, examples
from perfkit.cli.output import log, tell

_engine = typer.Typer(
    no_args_is_help=True,
    help="Look at the machines that `--engine dask://HOST:PORT` measures on.",
    epilog=examples("perfkit engine check dask://127.0.0.1:8786"),
)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.add_typer(_engine, name="engine")


@_engine.command(
    epilog=examples(
        "perfkit engine check dask://127.0.0.1:8786", "perfkit engine check dask://scheduler --json -"
    )
)
def check(
    url: Annotated[str, typer.Argument(metavar="URL", help="dask://HOST:PORT of the scheduler.")],
    *,
    json: JsonOption = None,
) -> None:
    """Prove every worker fit before anything is measured: its software, machine, disk, and a tiny task.

    Exit code: 0 all are fit, 2 no scheduler answers, 4 a worker is not fit, or there is none.
    """
    from perfkit.features.cluster.engines import check_engine, check_exit_code
    from perfkit.features.cluster.report import decision_sentence, workers_view

    workers = check_engine(url, log=lambda text: log(text, to_json=json))
    tell(workers_view(workers), workers, json=json, verdict=decision_sentence(workers))
    sys.exit(check_exit_code(workers))
