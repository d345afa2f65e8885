"""Forks supervisors for one engine, so that a pod costs a fork and not an interpreter's start.

Everything a supervisor needs is imported here once. Supervisors are this process's children, in
sessions of their own: their end is told to the engine at once, and they go on when the engine and
this process are gone. The engine sends a pod's directory with the descriptor that holds its lock;
it is sent a directory whose supervisor has ended, with a reason where it could not be started.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import traceback

from posttrain.engine import supervisor
from posttrain.engine.isolation import Driver
from posttrain.engine.poddir import PodDirectory

MESSAGE_BYTES = 1 << 16


def main(descriptor: int, driver: Driver) -> None:
    """Serve until the engine closes its end of the socket `descriptor`."""
    engine = socket.socket(fileno=descriptor)
    waker, woken = socket.socketpair()
    for end in (waker, woken):
        end.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.freeze()  # so that a supervisor's collector does not copy every page of ours
    try:
        _serve(engine, woken, driver)
    finally:
        signal.set_wakeup_fd(-1)  # the socket is gone before the last child is


def _serve(engine: socket.socket, woken: socket.socket, driver: Driver) -> None:
    pods: dict[int, str] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(engine, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                woken.recv(4096)
                for directory in _reap(pods):
                    _say(engine, f"{directory}\0")
            if engine in ready:
                try:
                    message, handles, *_ = socket.recv_fds(engine, MESSAGE_BYTES, 1)
                except ConnectionResetError:  # closed with words of ours unread
                    return
                if not message:
                    return
                directory = message.decode()
                try:
                    pods[_fork(directory, driver, handles[0])] = directory
                except OSError as problem:
                    _say(engine, f"{directory}\0cannot start a process: {problem.strerror}")
                os.close(handles[0])


def _say(engine: socket.socket, word: str) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # then the next read ends this process
        engine.send(word.encode())


def _reap(pods: dict[int, str]) -> list[str]:
    ended = []
    while pods:
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            break
        ended.append(pods.pop(pid))
    return ended


def _fork(directory: str, driver: Driver, lock: int) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until the supervisor can heed it
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return pid
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _let_go_of_all_but(lock)
        supervisor.supervise(directory, driver, lock)
        os._exit(0)
    except BaseException:
        PodDirectory(directory).note(traceback.format_exc())
    finally:
        os._exit(1)


def _let_go_of_all_but(lock: int) -> None:
    """Nothing of the engine's stays open: not its terminal, nor a pipe that somebody waits to see closed."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.closerange(3, lock)
    os.closerange(lock + 1, max(int(name) for name in os.listdir("/proc/self/fd")) + 1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])  # type: ignore[arg-type]
