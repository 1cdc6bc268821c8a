#!/usr/bin/env bash
# Set up a checkout: install the system packages that it needs, then all else in a virtual environment. It may be run
# again.
set -euo pipefail
PYTHON=${PYTHON:-python3} VENV=${VENV:-.venv}

missing=()
# need TEST PACKAGE...: remember the packages if the test fails
need() {
  local test=$1
  shift
  eval "$test" >/dev/null 2>&1 || missing+=("$@")
}
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

if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    echo "setup: these Debian packages are missing; as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}"
fi

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "setup: ringup needs Python 3.11 or newer, $PYTHON is $("$PYTHON" --version); set PYTHON to another one" >&2
  exit 1
}
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
"$VENV/bin/python" -m pip install -q --disable-pip-version-check -e '.[dev]'
