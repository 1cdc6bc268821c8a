"""Sockets in the file system that a server takes connections at: stale ones make way, others are left alone, all for
their owner only.
"""

from __future__ import annotations

import os
import socket
import stat

from ringup.errors import CardBusy, PermissionNeeded, TransportError

MAX_PATH_BYTES = 107  # of a socket's path (unix(7), sun_path, less its end)


def listen(path: str) -> socket.socket:
    """Return a listening stream socket at `path`, which only this user may connect to; one that nobody listens at any
    more is replaced.

    Raises `CardBusy` where somebody listens, `PermissionNeeded`, `TransportError` for a path that cannot be.
    """
    doing = f"taking connections at {path or 'a path without a name'}"
    if not 0 < len(os.fsencode(path)) <= MAX_PATH_BYTES:
        raise TransportError(f"{doing}: a socket's path has 1 to {MAX_PATH_BYTES} bytes; name another one")
    sock = socket.socket(socket.AF_UNIX)
    try:
        _make_way(path, doing)
        os.fchmod(sock.fileno(), 0o600)  # what `bind` makes takes these permissions: unix(7)
        sock.bind(path)
        sock.listen()
    except PermissionError as error:
        sock.close()
        raise PermissionNeeded(f"{doing}: {error.strerror}; name a path in a folder that you may write to") from error
    except OSError as error:
        sock.close()
        raise TransportError(f"{doing}: {error.strerror}; name a path in a folder that is there") from error
    except BaseException:
        sock.close()
        raise
    return sock


def _make_way(path: str, doing: str) -> None:
    """Take away a socket that nobody listens at. Raises `CardBusy` for one that is in use, `TransportError` for
    anything else that is there.
    """
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        raise TransportError(f"{doing}: something else is there already; name a path that is free")
    if _answers(path):
        raise CardBusy(f"{doing}: another server does already; end it, or name another path")
    os.unlink(path)


def _answers(path: str) -> bool:
    """Whether somebody listens; who is too busy to take a connection does, too, and is not waited for."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        except BlockingIOError:
            return True
    return True
