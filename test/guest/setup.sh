#!/usr/bin/env bash
# Set up what the emulated guest needs: install the emulator and small tools from the distribution, and unpack a kernel
# package into a folder. An interrupted run leaves no partial folder. With SUITE, the kernel is the newest one of that
# suite of Debian.
set -euo pipefail
FOLDER=${1:?usage: setup.sh FOLDER [SUITE]}
SUITE=${2:-}

. "$(dirname "$0")/../../tools/packages.sh"
need 'command -v qemu-system-x86_64' qemu-system-x86
need 'test -x /bin/busybox && ! ldd /bin/busybox' busybox-static
need 'command -v cpio' cpio
need 'command -v modprobe || test -x /sbin/modprobe' kmod
need 'command -v xz' xz-utils
install_missing guest

[ -e "$FOLDER/.ready" ] && exit 0
mkdir -p "$(dirname "$FOLDER")"
exec 9>"$FOLDER.lock"
# if another run made the folder meanwhile, there is nothing to do
flock 9
[ -e "$FOLDER/.ready" ] && exit 0
WORK=$(mktemp -d "$FOLDER.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
OUT=$WORK/out
mkdir -p "$WORK/package" "$OUT/boot"
if [ -z "$SUITE" ]; then
  # a package of Debian 12's security archive that depends on the kernel itself
  KERNEL=linux-image-6.12-amd64 WHERE="Debian 12's security archive"
  apt() { "apt-$1" -qq -o APT::Sandbox::User=root "${@:2}"; }
else
  KERNEL=linux-image-amd64 WHERE="$SUITE"
  # lists of their own: the system's are neither read nor changed
  mkdir -p "$WORK"/package/lists/partial
  archive=$(sed -nE 's/^(URIs: *|deb +(\[[^]]*\] +)?)([^ ]+).*/\3/p' /etc/apt/sources.list.d/debian.sources \
    /etc/apt/sources.list 2>/dev/null | grep -v security | head -n 1) || true
  keys=/usr/share/keyrings/debian-archive-keyring.gpg
  echo "deb [signed-by=$keys] ${archive:-http://deb.debian.org/debian} $SUITE main" >"$WORK/package/list"
  apt() {
    "apt-$1" -qq -o APT::Sandbox::User=root -o Dir::State::lists="$WORK/package/lists" \
      -o Dir::Cache="$WORK/package" -o Dir::State::status=/dev/null \
      -o Dir::Etc::sourcelist="$WORK/package/list" -o Dir::Etc::sourceparts=/dev/null "${@:2}"
  }
fi
find_kernel() {
  apt cache depends "$KERNEL" 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1 || true
}
name=$(find_kernel)
if [ -z "$name" ]; then
  if [ -n "$SUITE" ]; then apt get update; elif [ "$(id -u)" = 0 ]; then system_apt_get update; fi
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
(cd "$WORK/package" && apt get download "${packages[@]}")
for package in "$WORK"/package/*.deb; do dpkg-deb -x "$package" "$OUT"; done
if [ -n "$SUITE" ]; then
  mv "$OUT/usr/lib" "$OUT/lib"
  mv "$OUT/lib/modules/$version/vmlinuz" "$OUT/boot/vmlinuz-$version"
fi
/sbin/depmod -b "$OUT" "$version"
echo "$version" >"$OUT/version"
touch "$OUT/.ready"
rm -rf "$FOLDER"
mv "$OUT" "$FOLDER"
