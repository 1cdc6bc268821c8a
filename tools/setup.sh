#!/usr/bin/env bash
# Set up a checkout: install the system packages that it needs, then all else in a virtual environment. It may be run
# again.
set -euo pipefail
PYTHON=${PYTHON:-python3} VENV=${VENV:-.venv}

. "$(dirname "$0")/packages.sh"
need 'command -v "$PYTHON"' python3
need '"$PYTHON" -c "import ensurepip, venv"' python3-venv
need 'printf "#include <stdint.h>\nint main(void){return 0;}" | gcc -x c -o /dev/null -' gcc libc6-dev
need 'command -v xz' xz-utils
need 'command -v make' make
# compiles the test programs of the virtual shader cores, for the cores and for the host
need 'command -v clang-19' clang-19
need 'command -v ld.lld-19' lld-19
# pyusb needs it
need 'ldconfig -p | grep -q libusb-1.0.so.0' libusb-1.0-0
install_missing setup

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "setup: ringup needs Python 3.11 or newer, $PYTHON is $("$PYTHON" --version); set PYTHON to another one" >&2
  exit 1
}
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
"$VENV/bin/python" -m pip install -q --disable-pip-version-check -e '.[dev]'
