"""A ledger in an object store: a local folder mirrors it, and files published there are uploaded.

The files of a ledger never change and no two have one name. So the mirror copies the files that it lacks, and
drops those that are gone from the store. Uploading never replaces an existing object. The mirror's hidden
folder ``.remote`` has the URL of its store, and the names that are known to be in there; a file whose name is
not among them is *pending*: the next command uploads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perfkit.errors import LedgerError, RecordingError, UsageError
from perfkit.ledger.files import COMPACTED_FILES, list_files, listed, only_one
from perfkit.ledger.remote import HIDDEN_FOLDER, STORE_FILE, OnCopied, Put

# Where mirrors are in a cache.
_MIRRORS = Path("perfkit", "ledgers")
_DOWNLOADS = ".*.download"
# Created twice to see whether the store refuses to replace an object.
_SIGN = ".perfkit-ledger"
_SIGN_CONTENT = b"a ledger of perfkit\n"
_FORMS = "s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///FOLDER"
# The environment's variables for the server of each kind of store.
_SERVERS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME"),
    "file": (),
}
# Files of runs are in the ledger itself, annotations in a folder each.
_NAME = re.compile(r"[^/.\n][^/\n]*\.parquet|[^/.\n][^/\n]*/[^/.\n][^/\n]*\.json")
_AT_ONCE = 16
# Stores list at most this many names in one answer; the next answer may miss a change in between.
_NAMES_OF_AN_ANSWER = 1000
_LISTINGS = 6
_CONNECT_S = 5.0
ANSWER_S = 30.0
_SLOWEST_BYTES_PER_S = 100_000
RETRIES = 3
_DIGITS = 12
_NO_CREDENTIALS = "there are no credentials for it in the environment"
# The library's errors print all that they know: parts of them, and the reason that each is a sign of.
_KNOWN_REASONS = {
    "NoSuchBucket": "there is no such bucket",
    "ContainerNotFound": "there is no such container",
    "Missing AccessKeyId": _NO_CREDENTIALS,
    "MissingSecretAccessKey": _NO_CREDENTIALS,
    # Where machines in a cloud ask for them; elsewhere there is no answer.
    "//169.254.169.254": _NO_CREDENTIALS,
    "403 Forbidden": "permission denied",
    "401 Unauthorized": "its credentials are not accepted",
    "kind: Timeout": "it does not answer",
    "dns error": "its host is not known",
    "kind: Connect": "it cannot be reached",
    "error sending request": "the connection broke",
    "without LOCATION": "it is in another region; set AWS_REGION",
}
_EXPLAINED = ("403 Forbidden", "401 Unauthorized")
_SHORTEST_SECRET = 8
_SECRETS = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|SAS", re.IGNORECASE)


class _StoreError(Exception):
    """A store refused or failed; the text is the reason, without secrets."""


class _GoneError(Exception):
    """A listed object is not there any more."""


@dataclass(frozen=True, kw_only=True)
class Store:
    """The objects under a URL, by their names below it."""

    client: Any

    @classmethod
    def at(cls, url: str, *, largest: int = 0) -> Store:
        """Open the store; a request may take as long as ``largest`` bytes take on a slow line."""
        from obstore.store import from_url

        with _reasons():
            if url.startswith("file:"):
                return cls(client=from_url(url, mkdir=True))
            patience = timedelta(seconds=ANSWER_S + largest / _SLOWEST_BYTES_PER_S)
            options: Any = {
                "timeout": patience,
                "connect_timeout": timedelta(seconds=_CONNECT_S),
                # Only an explicit http:// leads to a connection without TLS.
                "allow_http": (_server(url) or "").startswith("http://"),
            }
            retries: Any = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=ANSWER_S)}
            provider = _profile_credentials(url)
            more = {} if provider is None else {"credential_provider": provider}
            return cls(client=from_url(url, client_options=options, retry_config=retries, **more))

    def list(self) -> dict[str, int]:
        """Return the names of all files of the ledger, with their sizes in bytes."""
        with _reasons():
            found = self.client.list().collect()
        return {meta["path"]: meta["size"] for meta in found if _NAME.fullmatch(meta["path"])}

    def get(self, name: str) -> bytes:
        """Download an object."""
        with _reasons():
            try:
                return bytes(self.client.get(name).bytes())
            except FileNotFoundError as error:
                raise _GoneError(f"{name} was removed meanwhile") from error

    def create(self, name: str, content: bytes) -> bool:
        """Upload a new object; return False where one of that name exists, which is left as it is."""
        from obstore.exceptions import AlreadyExistsError

        with _reasons():
            try:
                self.client.put(name, content, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def remove(self, names: Sequence[str]) -> None:
        """Delete objects."""
        with _reasons():
            self.client.delete(list(names))


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A local folder that has what a store has; ``server`` is where that store is, besides its URL."""

    folder: Path
    url: str
    server: str | None
    open_store: Callable[..., Store] = field(default=Store.at, repr=False)

    def refresh(self, on_copied: OnCopied) -> None:
        """Copy what the store has more, and drop what it has no longer."""
        try:
            with self._held():
                self._refresh(on_copied)
        except OSError as error:
            raise LedgerError(
                f"cannot keep a copy of {self.url} in {self.folder} ({error.strerror or error}); "
                "set XDG_CACHE_HOME to a folder that can be written"
            ) from error

    def place_of(self, file: Path) -> str:
        """Return the URL of a file, or its path while it is pending."""
        name = self._name_of(file)
        return f"{self.url}/{name}" if name in self._stored() else f"{file}, not yet in {self.url}"

    def check_writable(self) -> None:
        """Refuse a store that takes no new object, or that would replace an existing one."""
        try:
            store = self._open()
            if store.create(_SIGN, _SIGN_CONTENT) and store.create(_SIGN, _SIGN_CONTENT):
                raise LedgerError(
                    f"{self.url} replaces an object despite If-None-Match, so two "
                    "machines could overwrite each other's runs; choose a store that has conditional puts"
                )
        except _StoreError as error:
            raise LedgerError(
                f"cannot write to the ledger {self.url} ({error}); choose another place with --ledger PATH"
            ) from error

    def put_pending(self) -> Put:
        """Upload what is pending; where the store does not answer, the rest is left for the next time."""
        with self._held():
            return self._put_pending()

    def put(self, file: Path) -> None:
        """Upload a file that has just been published."""
        try:
            done = self.put_pending()
        except OSError as error:
            raise self._pending(file, error.strerror or error) from error
        if self._name_of(file) in done.left:
            raise RecordingError(done.text)

    def put_once(self, file: Path) -> bool:
        """Upload a file unless one of its name is there, which then replaces the local file."""
        name, content = self._name_of(file), file.read_bytes()
        try:
            with self._held():
                store = self._open(largest=len(content))
                stands = content if store.create(name, content) else store.get(name)
                if stands != content:
                    _write(file, stands)
                self._note_stored([name])
        except (_StoreError, _GoneError, OSError) as error:
            raise self._pending(file, error) from error
        return stands == content

    def put_compacted(self) -> None:
        """Upload compacted files, and only then remove from the store what they replace."""
        with self._held():
            done = self._put_pending()
            if done.left:
                raise RecordingError(done.text)
            self._remove_replaced(self._refresh(lambda *_: None))

    def _pending(self, file: Path, why: object) -> RecordingError:
        return RecordingError(
            f"{file} is not yet in {self.url} ({why}); the next perfkit command on that ledger tries again"
        )

    def _open(self, *, largest: int = 0) -> Store:
        if self.server != _server(self.url):
            raise _StoreError(
                f"this copy is of {self.server or 'the default server'}, and the environment names "
                f"{_server(self.url) or 'none'}"
            )
        return self.open_store(self.url, largest=largest)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Keep other processes of this machine from changing the mirror meanwhile."""
        hidden = self.folder / HIDDEN_FOLDER
        hidden.mkdir(parents=True, exist_ok=True)
        with only_one(hidden):
            if not (hidden / STORE_FILE).exists():
                _write(hidden / STORE_FILE, json.dumps({"url": self.url, "server": self.server}).encode())
            yield

    def _name_of(self, file: Path) -> str:
        return file.relative_to(self.folder).as_posix()

    def _stored(self) -> frozenset[str]:
        """Return the names that are known to be in the store; a line that was cut off is none of them."""
        file = self.folder / HIDDEN_FOLDER / "stored"
        if not file.exists():
            return frozenset()
        # A damaged line is the name of nothing: what it was of is put again, and found there.
        return frozenset(file.read_text(encoding="utf-8", errors="replace").split("\n")[:-1])

    def _refresh(self, on_copied: OnCopied) -> Collection[str]:
        """Do as ``refresh``, and return the names that the store has."""
        for leftover in self.folder.rglob(_DOWNLOADS):
            leftover.unlink(missing_ok=True)
        try:
            store = self._open()
            for _ in range(_LISTINGS):
                listed = list_objects(store)
                try:
                    self._copy(listed, on_copied)
                except _GoneError:
                    # Somebody compacts the ledger: what replaces the file that is gone was put before.
                    continue
                self._drop(listed)
                return listed
        except _StoreError as error:
            raise LedgerError(
                f"cannot read the ledger {self.url} ({error}); what it had when it was read last is in "
                f"{self.folder}, which is a ledger, too"
            ) from error
        raise LedgerError(f"{self.url} changes faster than it can be read; try again")

    def _copy(self, listed: Mapping[str, int], on_copied: OnCopied) -> None:
        """Copy compacted files first: what they replace need not be copied."""
        stored = self._stored()
        # No copy is there, or one that may be another.
        lacking = [
            name for name, size in listed.items() if name not in stored or _size(self.folder / name) != size
        ]
        # Noted beforehand: a copy that is cut off must not make its files look pending.
        self._note_stored([name for name in lacking if not (self.folder / name).exists()])
        compacted = [name for name in lacking if Path(name).match(COMPACTED_FILES)]
        store = self._open(largest=max((listed[name] for name in lacking), default=0))
        self._fetch(store, compacted, stored, on_copied)
        replaced = list_files(self.folder).replaced
        rest = [name for name in lacking if name not in replaced and name not in compacted]
        self._fetch(store, rest, stored, on_copied)

    def _fetch(
        self, store: Store, names: Sequence[str], stored: Collection[str], on_copied: OnCopied
    ) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                for done, _ in enumerate(
                    pool.map(lambda name: self._fetch_one(store, name, stored), names), 1
                ):
                    on_copied(done, len(names))
            finally:
                pool.shutdown(cancel_futures=True)

    def _fetch_one(self, store: Store, name: str, stored: Collection[str]) -> None:
        content, file = store.get(name), self.folder / name
        if name not in stored and file.exists():
            if file.read_bytes() != content:
                raise _another_content(file, f"{self.url}/{name}")
            return
        _write(file, content)

    def _drop(self, listed: Collection[str]) -> None:
        """Drop copies of what the store has no longer, or has in a compacted file, and keep what it has."""
        gone = self._stored().difference(listed).union(list_files(self.folder).replaced)
        for name in self._names():
            if name in gone:
                (self.folder / name).unlink(missing_ok=True)
        stored = "".join(f"{name}\n" for name in sorted(listed))
        _write(self.folder / HIDDEN_FOLDER / "stored", stored.encode())

    def _names(self) -> list[str]:
        """Return the names of the files that are here, oldest first."""
        folders = (folder for folder in listed(self.folder, "*") if folder.is_dir())
        annotations = (file for folder in folders for file in listed(folder, "*.json"))
        files = (*listed(self.folder, "*.parquet"), *annotations)
        return sorted(filter(_NAME.fullmatch, map(self._name_of, files)))

    def _put_pending(self) -> Put:
        """Put what is pending; where the store does not answer, the rest is left for the next time."""
        stored, replaced = self._stored(), list_files(self.folder).replaced
        pending = [name for name in self._names() if name not in stored and name not in replaced]
        put: list[str] = []
        left: dict[str, str] = {}
        try:
            store = self._open(largest=max((_size(self.folder / name) for name in pending), default=0))
            for name in pending:
                try:
                    put.append(self._put(store, name))
                except FileNotFoundError:
                    # A compacting on this machine has its rows now, and puts them itself.
                    continue
                except LedgerError as error:
                    left[name] = str(error)
        except (_StoreError, _GoneError, OSError) as error:
            left |= {name: str(error) for name in pending if name not in {*put, *left}}
        problem = "; ".join(dict.fromkeys(left.values()))
        return Put(url=self.url, folder=self.folder, put=tuple(put), left=tuple(left), problem=problem)

    def _put(self, store: Store, name: str) -> str:
        """Put one file and return the name that it had."""
        file = self.folder / name
        content = file.read_bytes()
        if not store.create(name, content) and store.get(name) != content:
            if not file.match(COMPACTED_FILES):
                raise _another_content(file, f"{self.url}/{name}")
            # Two machines have compacted files, each in its own way, and both may stand.
            file = file.rename(file.with_stem(f"{file.stem}-{hashlib.sha256(content).hexdigest()[:_DIGITS]}"))
            self._put(store, self._name_of(file))
        else:
            self._note_stored([name])
        return name

    def _note_stored(self, names: Sequence[str]) -> None:
        with (self.folder / HIDDEN_FOLDER / "stored").open("a", encoding="utf-8") as stream:
            stream.write("".join(f"{name}\n" for name in names))

    def _remove_replaced(self, listed: Collection[str]) -> None:
        """Remove from the store what sound compacted files replace that are in it themselves."""
        from perfkit.ledger.soundness import is_sound

        here = list_files(self.folder)
        replaced: set[str] = set()
        for file in here.present:
            names = here.replaces.get(file.name, frozenset()).intersection(listed)
            if names and file.name in listed and is_sound(file):
                replaced |= names
        if not replaced:
            return
        try:
            self._open().remove(sorted(replaced))
        except _StoreError as error:
            raise RecordingError(
                f"the rows of {len(replaced)} files of {self.url} are in a compacted one now, but the old "
                f"files cannot be removed ({error}); perfkit passes over them"
            ) from error
        self._drop(frozenset(listed).difference(replaced))


def open_url(url: str) -> Mirror:
    """Return the mirror of a URL, whether it is there already or not."""
    url, server = _checked(url), _server(url)
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:
        raise LedgerError(f"there is no home folder for a copy of {url}; set XDG_CACHE_HOME") from error
    return Mirror(folder=cache / _mirror_name(url, server), url=url, server=server)


def _mirror_name(url: str, server: str | None) -> Path:
    """Return where in a cache the mirror of a store is, and nothing else."""
    digest = hashlib.sha256(f"{url}\n{server}".encode()).hexdigest()[:_DIGITS]
    readable = re.sub(r"[^A-Za-z0-9]+", "-", url).strip("-")[-60:]
    return _MIRRORS / f"{readable}-{digest}"


def mirror_in(ledger: Path) -> Mirror | None:
    """Return the mirror that a folder in the cache is; one from elsewhere could name any store."""
    file = ledger / HIDDEN_FOLDER / STORE_FILE
    is_in_cache = ledger.absolute().parent.parts[-len(_MIRRORS.parts) :] == _MIRRORS.parts
    if not file.exists() or not is_in_cache:
        return None
    try:
        marked = json.loads(file.read_bytes())
        url, server = str(marked["url"]), marked["server"]
    except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise _unknown_store(file) from error
    # The folder's name has a hash of both: a URL with one wrong letter would be that of another store.
    if ledger.absolute().name != _mirror_name(url, server).name:
        raise _unknown_store(file)
    return Mirror(folder=ledger, url=url, server=server)


def _unknown_store(file: Path) -> LedgerError:
    return LedgerError(
        f"{file} does not name the store that this folder is a copy of; "
        "remove that file, and give the URL of the ledger: the next command on it writes the file anew"
    )


def _checked(url: str) -> str:
    """Return a URL without trailing slashes; refuse one of another form, or with credentials in it."""
    parts = urlsplit(url)
    shown = re.sub(r"//[^/]*@", "//…@", url.partition("?")[0])
    if parts.scheme not in _SERVERS or bool(parts.netloc) == (parts.scheme == "file"):
        raise UsageError(f"a ledger in a store must read {_FORMS}, found {shown}")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UsageError(
            f"{shown} must name a place and nothing else; credentials come from the environment of the store"
        )
    try:
        import obstore  # noqa: F401 (only whether it is installed)
    except ImportError:
        raise UsageError(
            f"a ledger at {url} needs a library that is not installed; `pip install 'perfkit[cloud]'`"
        ) from None
    return url.rstrip("/")


def _server(url: str) -> str | None:
    """Return the server of the store from the environment."""
    names = _SERVERS[url.partition(":")[0]]
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _profile_credentials(url: str) -> Any:  # noqa: ANN401 (the library's own type)
    """Return what reads the profiles of AWS where these are meant, None where the environment is enough."""
    given = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE")
    if not url.startswith("s3:") or any(os.environ.get(name) for name in given):
        return None
    folder = Path(os.environ.get("HOME") or "/") / ".aws"
    if not (os.environ.get("AWS_PROFILE") or folder.is_dir()):
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise _StoreError("profiles of AWS need boto3; `pip install 'perfkit[cloud]'`") from error
    return Boto3CredentialProvider()


def list_objects(store: Store) -> dict[str, int]:
    """Return what a store has; a list of several answers is asked for until two agree."""
    listed = store.list()
    for _ in range(_LISTINGS):
        if len(listed) < _NAMES_OF_AN_ANSWER:
            return listed
        again = store.list()
        if again == listed:
            return listed
        listed = again
    raise _StoreError("it changes while it is listed; try again")


def _another_content(file: Path, url: str) -> LedgerError:
    return LedgerError(
        f"{file} and {url} have one name and differ, and neither replaces the other; "
        "keep the one that is right: move the local file out of its folder, or remove the object"
    )


def _write(file: Path, content: bytes) -> None:
    """Write to a temporary name, then give the final one: no reader sees half a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.download")
    temporary.write_bytes(content)
    temporary.replace(file)


def _size(file: Path) -> int:
    """Return the size of a file in bytes, -1 of one that is not there."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return -1


@contextmanager
def _reasons() -> Iterator[None]:
    """Raise what the library raises as a reason that a person can read."""
    try:
        yield
    except (_StoreError, _GoneError):
        raise
    except Exception as error:  # noqa: BLE001 (the library's errors and those of credentials are of many trees)
        raise _StoreError(_reason(error)) from None


def _reason(error: Exception) -> str:
    """Return why a store did not do it: short, and without what only machines read."""
    text = str(error)
    for sign, reason in _KNOWN_REASONS.items():
        if sign in text:
            message = re.search(r"<Message>([^<]{1,200})</Message>", text)
            return _without_secrets(f"{reason}: {message[1]}" if message and sign in _EXPLAINED else reason)
    line = text.splitlines()[0] if text else type(error).__name__
    return _without_secrets(line.rpartition(" - ")[2] or line)


def _without_secrets(text: str) -> str:
    """Return a text without the queries of addresses, and without what the environment has of secrets."""
    text = re.sub(r"\?[^\s)]+", "", text)
    for name, value in os.environ.items():
        if _SECRETS.search(name) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "…")
    return text
