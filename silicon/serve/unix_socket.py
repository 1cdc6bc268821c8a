"""Listening sockets in the file system: stale ones are replaced, other files are left alone, and only the owner may
connect.
"""

from __future__ import annotations

import os
import socket
import stat

from ringup.errors import CardBusy, PermissionNeeded, TransportError

# of a socket's path (unix(7), sun_path, without the final zero)
MAX_PATH_BYTES = 107


def listen(path: str) -> socket.socket:
    """Return a listening stream socket at `path`, to which only this user may connect. A stale socket there is
    replaced.

    Raises `CardBusy` if another process listens there, `PermissionNeeded`, or `TransportError` for an unusable path.
    """
    doing = f"listening at {path or 'a path without a name'}"
    if not 0 < len(os.fsencode(path)) <= MAX_PATH_BYTES:
        raise TransportError(f"{doing}: a socket's path has 1 to {MAX_PATH_BYTES} bytes; choose another one")
    sock = socket.socket(socket.AF_UNIX)
    try:
        _remove_stale(path, doing)
        # `bind` creates the file with these permissions: unix(7)
        os.fchmod(sock.fileno(), 0o600)
        sock.bind(path)
        sock.listen()
    except PermissionError as error:
        sock.close()
        raise PermissionNeeded(f"{doing}: {error.strerror}; choose a path in a folder that you may write to") from error
    except OSError as error:
        sock.close()
        raise TransportError(f"{doing}: {error.strerror}; choose a path in an existing folder") from error
    except BaseException:
        sock.close()
        raise
    return sock


def _remove_stale(path: str, doing: str) -> None:
    """Remove a socket at which no process listens. Raises `CardBusy` if one does, `TransportError` if anything else
    exists there.
    """
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        raise TransportError(f"{doing}: the path already exists and is no socket; choose another path")
    if _answers(path):
        raise CardBusy(f"{doing}: another server already does; stop it, or choose another path")
    os.unlink(path)


def _answers(path: str) -> bool:
    """Whether a process listens; one too busy to accept counts too, and is not waited for."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        except BlockingIOError:
            return True
    return True
