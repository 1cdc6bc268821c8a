#!/usr/bin/env bash
# Set up what the emulated guest needs: install the emulator and small tools from the distribution, and unpack a kernel
# package into a folder. It may be run again.
set -euo pipefail
FOLDER=${1:?usage: setup.sh FOLDER}
# a package of Debian 12's security archive that depends on the kernel itself
KERNEL=linux-image-6.12-amd64

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
mkdir -p "$FOLDER/package"
name=$(apt-cache depends "$KERNEL" 2>/dev/null | sed -n 's/.*Depends: \(linux-image-6[^ ]*\)$/\1/p' | head -n 1)
if [ -z "$name" ]; then
  [ "$(id -u)" = 0 ] && apt-get -qq update
  name=$(apt-cache depends "$KERNEL" | sed -n 's/.*Depends: \(linux-image-6[^ ]*\)$/\1/p' | head -n 1)
fi
[ -n "$name" ] || {
  echo "guest: no archive of this system has $KERNEL; it is in Debian 12's security archive" >&2
  exit 1
}
(cd "$FOLDER/package" && apt-get -qq -o APT::Sandbox::User=root download "$name")
dpkg-deb -x "$FOLDER"/package/*.deb "$FOLDER"
rm -rf "$FOLDER/package"
version=${name#linux-image-}
/sbin/depmod -b "$FOLDER" "$version"
echo "$version" >"$FOLDER/version"
touch "$FOLDER/.ready"
