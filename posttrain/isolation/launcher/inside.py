"""What the launcher itself does inside a sandbox, as its user and without any right: files, space, sockets.

A path means what it means to the code in the sandbox, so a link leads where it leads there and never to
the host. Data goes through descriptors: 0 is read, 1 is written, an error is one line of JSON on 2.

Invariant: `act` imports nothing. Everything is loaded before, from the host's files (`warm_up`).
"""

from __future__ import annotations

import io
import json
import os
import posixpath
import socket
import stat
import tarfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

_CHUNK = 1 << 20

Request = dict[str, Any]


class TooLarge(Exception):
    pass


def act(request: Request) -> None:
    """Carry out `request["function"]`; the process ends with 0, or with 1 and the error on stderr."""
    try:
        os.umask(0o022)
        _FUNCTIONS[request["function"]](request)
    except OSError as problem:
        _tell(errno=problem.errno, message=problem.strerror, path=problem.filename)
    except (TooLarge, tarfile.TarError, UnicodeError, ValueError, KeyError, TypeError) as problem:
        _tell(errno=None, message=f"{type(problem).__name__}: {problem}", path=None)
    os._exit(0)


def warm_up() -> None:
    """Go once through what the functions use, so that nothing is left to be loaded; of the launcher alone."""
    tarfile.pwd = tarfile.grp = None  # type: ignore[attr-defined]  # names of owners are looked up with libraries
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("x\u00e9" * 80), io.BytesIO())
    buffer.seek(0)
    with tarfile.open(fileobj=buffer, mode="r:") as archive:
        for member in archive:
            tarfile.tar_filter(member, "/")
    json.dumps({"a": [1, None, "é"]})
    fnmatchcase("a/b", "*/b")
    stat.filemode(0)


def pack(root: str, output: Any, *, patterns: list[str] | None, links: bool, limit: int) -> None:
    """The tree at `root` as a tar: regular files that match (all without patterns), with `links` symbolic links too.

    Nothing is followed or waited for. Raises TooLarge over `limit` bytes.
    """
    written = 0
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name, entry in _walk(root):
            info = tarfile.TarInfo(name)
            kind = os.lstat(entry)
            info.mode, info.mtime = stat.S_IMODE(kind.st_mode), int(kind.st_mtime)
            if stat.S_ISDIR(kind.st_mode) and patterns is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            elif stat.S_ISLNK(kind.st_mode) and links:
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(entry)
                archive.addfile(info)
            elif stat.S_ISREG(kind.st_mode) and (patterns is None or _matches(name, patterns)):
                with os.fdopen(_open_regular(entry), "rb") as source:
                    info.size = os.fstat(source.fileno()).st_size
                    written += info.size
                    if written > limit:
                        raise TooLarge(f"more than {limit} bytes")
                    archive.addfile(info, source)


def _walk(root: str) -> Iterator[tuple[str, str]]:
    """Names below `root` and their paths, directories before what is in them, none through a link."""
    waiting = [""]
    while waiting:
        directory = waiting.pop()
        try:
            entries = sorted(os.scandir(posixpath.join(root, directory)), key=lambda entry: entry.name)
        except (FileNotFoundError, PermissionError):
            continue
        for entry in entries:
            name = posixpath.join(directory, entry.name)
            yield name, entry.path
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)


def _matches(name: str, patterns: list[str]) -> bool:
    """A pattern names a file, files by * ? [], or a directory with all that is below it."""
    return any(fnmatchcase(name, each) or name.startswith(each.rstrip("/") + "/") for each in patterns)


def _open_regular(path: str, *, follow: bool = False) -> int:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(22, "not a regular file", path)
    return handle


def _read(request: Request) -> None:
    left = request["limit"]
    with os.fdopen(_open_regular(request["path"], follow=True), "rb", buffering=0) as source:
        while data := source.read(min(_CHUNK, left + 1)):
            left -= len(data)
            if left < 0:
                raise TooLarge(f"{request['path']} has more than {request['limit']} bytes")
            _write_all(1, data)


def _write(request: Request) -> None:
    path = request["path"]
    os.makedirs(posixpath.dirname(path) or "/", exist_ok=True)
    beside = f"{path}.{request['id']}"
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while data := os.read(0, _CHUNK):
            _write_all(handle, data)
        os.fchmod(handle, request["mode"])
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise


def _pack(request: Request) -> None:
    with os.fdopen(1, "wb", closefd=False) as output:
        pack(request["path"], output, patterns=request["patterns"], links=request["links"], limit=request["limit"])


def _unpack(request: Request) -> None:
    os.makedirs(request["path"], exist_ok=True)
    with (
        os.fdopen(0, "rb", closefd=False) as source,
        tarfile.open(fileobj=source, mode="r|") as archive,
    ):
        archive.extractall(request["path"], filter="tar")


def _space(request: Request) -> None:
    """Which of the paths have no room left."""
    full = [path for path in request["paths"] if os.statvfs(path).f_bavail == 0 or os.statvfs(path).f_favail == 0]
    _write_all(1, json.dumps(full).encode())


def _listen(request: Request) -> None:
    """Listen at a loopback port of the sandbox and hand the socket to whoever holds the other end of 3."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", request["port"]))
    listener.listen(128)
    with socket.socket(fileno=3) as line:
        socket.send_fds(line, [b"x"], [listener.fileno()])


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _tell(**error: Any) -> None:
    os.write(2, json.dumps(error).encode())
    os._exit(1)


_FUNCTIONS = {
    "read": _read,
    "write": _write,
    "pack": _pack,
    "unpack": _unpack,
    "space": _space,
    "listen": _listen,
}
