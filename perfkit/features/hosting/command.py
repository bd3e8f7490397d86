"""``perfkit comment``: a gate's result, from its JSON, to one comment on a pull or merge request."""

from __future__ import annotations

import errno
import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from perfkit.bounded import read_bytes
from perfkit.cli.options import examples
from perfkit.errors import PerfkitError, UsageError
from perfkit.model.comparisons import GateReport

MARKER = "<!-- perfkit gate -->"
_LIMIT_S = 30.0
_PER_PAGE, _MOST_PAGES = 100, 20
# GitHub refuses a comment of 65,536 characters.
_MOST_CHARACTERS = 65_000
_CUT = "\n\n… cut here: the whole of it is in the run's artifact, perfkit-gate.md.\n"
_DENIED = (401, 403, 404)
_GITHUB_API = "https://api.github.com"
_GITLAB_TOKEN = "PERFKIT_GITLAB_TOKEN"  # noqa: S105 (the name of a variable)


class HostError(PerfkitError):
    """A service did not take a comment; ``status`` is that of its answer, None where there was none."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a change's comments are: their list, and the address and method that change one of ``{id}``."""

    service: Literal["GitHub", "GitLab"]
    comments: str
    one: str
    method: Literal["PATCH", "PUT"]
    headers: Mapping[str, str]


def post(place: Place, text: str) -> Literal["updated", "made"]:
    """Change the comment that has the marker, or make it where there is none that may be changed."""
    body = {"body": _shortened(f"{MARKER}\n{text}")}
    known = _marked(place)
    if known is not None:
        try:
            request(place.one.format(id=known), place.headers, method=place.method, body=body)
        except HostError as error:
            # Someone else may have copied the marker with the text.
            if error.status not in _DENIED:
                raise
        else:
            return "updated"
    request(place.comments, place.headers, method="POST", body=body)
    return "made"


def _github_headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}


def open_pull_request(*, api: str, repository: str, head: str, token: str) -> int | None:
    """Return the number of the open pull request of a branch, "owner:branch"; None where there is none."""
    query = urllib.parse.urlencode({"state": "open", "head": head})
    found = request(f"{api}/repos/{repository}/pulls?{query}", _github_headers(token))
    numbers = [one.get("number") for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return next((number for number in numbers if isinstance(number, int)), None)


def request(
    address: str, headers: Mapping[str, str], *, method: str = "GET", body: Mapping[str, str] | None = None
) -> object:
    """Return what a service answered, read as JSON."""
    data = None if body is None else json.dumps(body).encode()
    try:
        host = urllib.parse.urlsplit(address).netloc
        sent = urllib.request.Request(  # noqa: S310 (the service's own address, from the environment of its jobs)
            address, data=data, method=method, headers={"Content-Type": "application/json", **headers}
        )
    except ValueError as error:
        raise HostError(f"{address} is no address of a service: {error}") from error
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        # The library's own words would have the token in them.
        raise HostError(f"nothing was sent to {host}: the token holds a character that no header may have")
    try:
        with urllib.request.urlopen(sent, timeout=_LIMIT_S) as answer:  # noqa: S310 (likewise)
            found = answer.read() or b"null"
    except urllib.error.HTTPError as error:
        raise HostError(_refused(host, error), error.code) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise HostError(f"{host} cannot be reached: {reason}") from error
    try:
        return json.loads(found)
    except ValueError as error:
        raise HostError(f"{host} answered no JSON: {error}") from error


def _refused(host: str, error: urllib.error.HTTPError) -> str:
    try:
        message = json.loads(error.read()).get("message")
    except (ValueError, AttributeError, OSError):
        message = None
    return f"{host} answered {error.code} ({message or error.reason})"


def _marked(place: Place) -> int | None:
    """Return the id of the newest comment that begins with the marker."""
    newest = None
    for page in range(1, _MOST_PAGES + 1):
        found = request(f"{place.comments}?per_page={_PER_PAGE}&page={page}", place.headers)
        if not isinstance(found, list):
            break
        for one in found:
            if isinstance(one, dict) and str(one.get("body", "")).lstrip().startswith(MARKER):
                newest = max(newest or 0, int(one["id"]))
        if len(found) < _PER_PAGE:
            break
    return newest


def _shortened(text: str) -> str:
    """Cut a text at the end of a line, and close the fold that is open there."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    kept = text[:_MOST_CHARACTERS].rpartition("\n")[0]
    is_open = kept.count("<details>") > kept.count("</details>")
    return kept + ("\n\n</details>" if is_open else "") + _CUT


@dataclass(frozen=True, kw_only=True)
class ReadReport:
    """A gate's report, or a sentence on why there is none."""

    report: GateReport | None
    problem: str = ""


def read_report(file: Path) -> ReadReport:
    """Return the report in a file that ``perfkit gate --json`` wrote, which may come from anyone."""
    try:
        document = json.loads(read_bytes(file))
        return ReadReport(report=msgspec.convert(_with_limits(document), GateReport))
    except FileNotFoundError:
        return ReadReport(report=None, problem="the gate ended before it had a result")
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.EFBIG}:
            raise UsageError(
                f"--from {file}: {error.strerror}; name what `perfkit gate --json` wrote"
            ) from error
        return ReadReport(report=None, problem=f"{file.name} cannot be read: {error.strerror or error}")
    except (ValueError, RecursionError):
        # The message of the error would repeat what is in the file.
        return ReadReport(report=None, problem=f"{file.name} is no result of `perfkit gate --json`")


def _with_limits(document: Any) -> Any:  # noqa: ANN401 (any JSON)
    """Return a document whose intervals without a limit, which JSON has as null, have infinite ones."""
    if isinstance(document, list):
        return [_with_limits(one) for one in document]
    if not isinstance(document, dict):
        return document
    found = {key: _with_limits(value) for key, value in document.items()}
    if {"ratio", "low", "high", "confidence"} <= found.keys():
        found["low"] = 0.0 if found["low"] is None else found["low"]
        found["high"] = float("inf") if found["high"] is None else found["high"]
    return found


def comment_on_github(text: str, environment: Mapping[str, str]) -> str:
    """Comment on the pull request of a GitHub workflow; a refusal is returned as a sentence, no failure."""
    repository, event_file = environment.get("GITHUB_REPOSITORY"), environment.get("GITHUB_EVENT_PATH")
    if not repository or not event_file:
        raise UsageError(
            "GITHUB_REPOSITORY and GITHUB_EVENT_PATH are not set, so this is no workflow of GitHub's; read"
            " the comment with `perfkit gate --markdown FILE`"
        )
    token = environment.get("GITHUB_TOKEN", "").strip()
    if not token:
        return (
            "no comment: GITHUB_TOKEN is not set; add `env: {GITHUB_TOKEN: ${{ github.token }}}` to the step"
        )
    api = environment.get("GITHUB_API_URL") or _GITHUB_API
    try:
        number = _pull_request(_event(event_file), api=api, repository=repository, token=token)
        if number is None:
            return "no comment: this run belongs to no open pull request"
        issues = f"{api}/repos/{repository}/issues"
        place = Place(
            service="GitHub",
            comments=f"{issues}/{number}/comments",
            one=f"{issues}/comments/{{id}}",
            method="PATCH",
            headers=_github_headers(token),
        )
        return _posted(place, text, number)
    except HostError as error:
        advice = (
            "; the job needs `permissions: pull-requests: write`, which pull requests from forks only get in"
            " the workflow perfkit-comment.yml"
            if error.status in _DENIED
            else ""
        )
        return f"no comment: {error}{advice}"


def comment_on_gitlab(text: str, environment: Mapping[str, str]) -> str:
    """Comment on the merge request that a GitLab job runs for, and return what became of it."""
    api, project = environment.get("CI_API_V4_URL"), environment.get("CI_PROJECT_ID")
    if not api or not project:
        raise UsageError(
            "CI_API_V4_URL and CI_PROJECT_ID are not set, so this is no job of GitLab's; read the comment"
            " with `perfkit gate --markdown FILE`"
        )
    number = environment.get("CI_MERGE_REQUEST_IID", "")
    if not number.isdigit():
        return "no note: this job belongs to no merge request"
    token = environment.get(_GITLAB_TOKEN, "").strip()
    if not token:
        return f"no note: {_GITLAB_TOKEN} is not set; forks never have it, and the artifact has the result"
    notes = f"{api}/projects/{urllib.parse.quote(project, safe='')}/merge_requests/{number}/notes"
    headers = {"PRIVATE-TOKEN": token}
    place = Place(service="GitLab", comments=notes, one=f"{notes}/{{id}}", method="PUT", headers=headers)
    try:
        return _posted(place, text, int(number))
    except HostError as error:
        advice = f"; {_GITLAB_TOKEN} needs the scope api" if error.status in _DENIED else ""
        return f"no note: {error}{advice}"


def run_address(environment: Mapping[str, str]) -> str | None:
    """Return the address of the run that has the gate's output, None where that is not known."""
    try:
        event = _event(environment["GITHUB_EVENT_PATH"])
        server, repository = environment["GITHUB_SERVER_URL"], environment["GITHUB_REPOSITORY"]
        run = _table(event, "workflow_run").get("id") or environment["GITHUB_RUN_ID"]
    except (KeyError, UsageError):
        return environment.get("CI_JOB_URL")
    return f"{server}/{repository}/actions/runs/{run}"


def _posted(place: Place, text: str, number: int) -> str:
    what = "the comment on pull request" if place.service == "GitHub" else "the note on merge request"
    return f"{post(place, text)} {what} {number}"


def _pull_request(event: Mapping[str, Any], *, api: str, repository: str, token: str) -> int | None:
    """Return the number of the pull request of an event; a run for a fork's names only its branch."""
    run = _table(event, "workflow_run")
    listed = run.get("pull_requests") or []
    for found in (_table(event, "pull_request"), *(one for one in listed if isinstance(one, dict))):
        if isinstance(found.get("number"), int):
            return int(found["number"])
    owner = _table(_table(run, "head_repository"), "owner").get("login")
    if not owner or not run.get("head_branch"):
        return None
    head = f"{owner}:{run['head_branch']}"
    return open_pull_request(api=api, repository=repository, head=head, token=token)


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def _event(file: str) -> Mapping[str, Any]:
    try:
        event = json.loads(read_bytes(Path(file)))
    except (OSError, ValueError) as error:
        raise UsageError(f"GITHUB_EVENT_PATH: {file} cannot be read as JSON: {error}") from error
    return event if isinstance(event, dict) else {}


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=examples(
            "perfkit comment --from gate.json --github",
            "perfkit comment --from gate.json --github-summary",
            "perfkit comment --from gate.json --gitlab",
        )
    )(comment)


def comment(
    *,
    from_: Annotated[
        Path, typer.Option("--from", metavar="FILE", help="What `perfkit gate --json FILE` wrote.")
    ],
    github: Annotated[
        bool, typer.Option("--github", help="As a comment on the pull request, updated in place.")
    ] = False,
    github_summary: Annotated[
        bool,
        typer.Option("--github-summary", help="As the summary of a job, with annotations at lines of code."),
    ] = False,
    gitlab: Annotated[
        bool, typer.Option("--gitlab", help="As a note on the merge request, updated in place.")
    ] = False,
) -> None:
    """Post a gate's result where the change is read: in a pull request, a job's summary, a merge request.

    If the service refuses it, it prints one line and ends with exit code 0: the gate's own exit code counts.
    """
    from perfkit.commands.text_files import add_text
    from perfkit.report.gate.markdown import annotation_lines, render_comment, render_without_report

    if not (github or github_summary or gitlab):
        raise UsageError("choose where to: --github, --github-summary or --gitlab")
    read = read_report(from_)
    if read.report is None:
        text = render_without_report(read.problem, run_address(os.environ))
    else:
        text = render_comment(read.report)
    if github_summary:
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if not summary:
            raise UsageError("GITHUB_STEP_SUMMARY is not set: --github-summary is for GitHub's workflows")
        add_text(Path(summary), text, option="GITHUB_STEP_SUMMARY")
        for line in annotation_lines(read.report) if read.report else ():
            typer.echo(line)
    if github:
        typer.echo(comment_on_github(text, os.environ))
    if gitlab:
        typer.echo(comment_on_gitlab(text, os.environ))
