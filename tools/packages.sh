# Functions for the set-up scripts, which source this file: they install the Debian packages that a script needs.
# Scripts that run side by side wait for one another.
missing=()

# need TEST PACKAGE...: remember the packages if the test fails
need() {
  local test=$1
  shift
  eval "$test" >/dev/null 2>&1 || missing+=("$@")
}

# system_apt_get ARGUMENT...: run apt-get on the system's own lists and packages. No two of them run at the same time.
system_apt_get() {
  flock /var/lib/apt env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=600 "$@"
}

# install_missing WHO: install what was missing, or say on behalf of WHO what to do and fail
install_missing() {
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    echo "$1: these Debian packages are missing; as root: apt-get install ${missing[*]}" >&2
    return 1
  fi
  { system_apt_get update && system_apt_get install -y --no-install-recommends "${missing[@]}"; } >/dev/null || {
    echo "$1: apt-get cannot install these Debian packages: ${missing[*]}" >&2
    return 1
  }
  missing=()
}
