#!/usr/bin/env bash
# Set up what the emulated guest needs: install the emulator and small tools from the distribution, and unpack a kernel
# package into a folder. It may be run again. With SUITE, the kernel is the newest one of that suite of Debian.
set -euo pipefail
FOLDER=${1:?usage: setup.sh FOLDER [SUITE]}
SUITE=${2:-}

missing=()
# need TEST PACKAGE...: remember the packages if the test fails
need() {
  local test=$1
  shift
  eval "$test" >/dev/null 2>&1 || missing+=("$@")
}
need 'command -v qemu-system-x86_64' qemu-system-x86
need 'test -x /bin/busybox && ! ldd /bin/busybox' busybox-static
need 'command -v cpio' cpio
need 'command -v modprobe || test -x /sbin/modprobe' kmod
need 'command -v xz' xz-utils
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    echo "guest: these Debian packages are missing; as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}"
fi

[ -e "$FOLDER/.ready" ] && exit 0
rm -rf "$FOLDER"
mkdir -p "$FOLDER/package" "$FOLDER/boot"
if [ -z "$SUITE" ]; then
  # a package of Debian 12's security archive that depends on the kernel itself
  KERNEL=linux-image-6.12-amd64 WHERE="Debian 12's security archive"
  apt() { "apt-$1" -qq -o APT::Sandbox::User=root "${@:2}"; }
else
  KERNEL=linux-image-amd64 WHERE="$SUITE"
  # lists of their own: the system's are neither read nor changed
  mkdir -p "$FOLDER"/package/lists/partial
  archive=$(sed -nE 's/^(URIs: *|deb +(\[[^]]*\] +)?)([^ ]+).*/\3/p' /etc/apt/sources.list.d/debian.sources \
    /etc/apt/sources.list 2>/dev/null | grep -v security | head -n 1) || true
  keys=/usr/share/keyrings/debian-archive-keyring.gpg
  echo "deb [signed-by=$keys] ${archive:-http://deb.debian.org/debian} $SUITE main" >"$FOLDER/package/list"
  apt() {
    "apt-$1" -qq -o APT::Sandbox::User=root -o Dir::State::lists="$FOLDER/package/lists" \
      -o Dir::Cache="$FOLDER/package" -o Dir::State::status=/dev/null \
      -o Dir::Etc::sourcelist="$FOLDER/package/list" -o Dir::Etc::sourceparts=/dev/null "${@:2}"
  }
fi
find_kernel() {
  apt cache depends "$KERNEL" 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1 || true
}
name=$(find_kernel)
if [ -z "$name" ]; then
  [ "$(id -u)" = 0 ] && apt get update
  name=$(find_kernel)
fi
[ -n "$name" ] || {
  echo "guest: no archive of this system has $KERNEL; it is in $WHERE" >&2
  exit 1
}
version=${name#linux-image-}
packages=("$name")
# since Linux 7.1 the image and its modules are packages of their own
if [ -n "$SUITE" ]; then packages=("linux-binary-$version" "linux-modules-$version" "linux-base-$version"); fi
(cd "$FOLDER/package" && apt get download "${packages[@]}")
for package in "$FOLDER"/package/*.deb; do dpkg-deb -x "$package" "$FOLDER"; done
rm -rf "$FOLDER/package"
if [ -n "$SUITE" ]; then
  mv "$FOLDER/usr/lib" "$FOLDER/lib"
  mv "$FOLDER/lib/modules/$version/vmlinuz" "$FOLDER/boot/vmlinuz-$version"
fi
/sbin/depmod -b "$FOLDER" "$version"
echo "$version" >"$FOLDER/version"
touch "$FOLDER/.ready"
