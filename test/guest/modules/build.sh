#!/usr/bin/env bash
# Build NVIDIA's open kernel modules nvidia.ko and nvidia-uvm.ko for the guest's kernel, once, from Debian's package
# nvidia-open-kernel-source (`ringup headers fetch nvidia-modules`) and the headers of that kernel, which are fetched
# here. It takes a minute and a half on two cores. Nothing is installed. An interrupted run leaves no partial folder.
set -euo pipefail
[ $# = 3 ] || {
  echo "usage: build.sh FOLDER KERNEL SOURCE" >&2
  exit 2
}
FOLDER=$1 KERNEL=$2 SOURCE=$3
VERSION=$(cat "$KERNEL/version")
# The one change to NVIDIA's source, in nvidia/nv-pci.c: Linux 6.12.117 gave pci_resize_resource() a fourth argument, a
# mask of BARs that it must not release for the new size. The modules have released BAR 1 and BAR 3 themselves before,
# so it is empty. The call is made only for cards with resizable BARs, which the virtual ones lack.
CHANGED=nvidia/nv-pci.c
CHANGE='s/\(pci_resize_resource([^()]*, requested_size\))/\1, 0)/'
# remade when the kernel, the modules' release or the change is another
WANTED="$VERSION $(cat "$SOURCE/.ringup-version") $CHANGE"

fail() {
  echo "guest: $*" >&2
  exit 1
}

made() { [ "$(cat "$FOLDER/.ready" 2>/dev/null)" = "$WANTED" ]; }

made && exit 0
. "$(dirname "$0")/../../../tools/packages.sh"
for pair in gcc:gcc make:make ld:binutils xz:xz-utils; do
  need "command -v ${pair%:*}" "${pair#*:}"
done
install_missing guest
mkdir -p "$(dirname "$FOLDER")"
exec 9>"$FOLDER.lock"
# if another run built the modules meanwhile, there is nothing to do
flock 9
made && exit 0
WORK=$(mktemp -d "$FOLDER.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
FLAVOUR=${VERSION##*-}
BASE=${VERSION%-*}
mkdir "$WORK/headers" "$WORK/debs"
(cd "$WORK/debs" && apt-get -qq -o APT::Sandbox::User=root download \
  "linux-headers-$VERSION" "linux-headers-$BASE-common" "linux-kbuild-$BASE") ||
  fail "the headers of kernel $VERSION cannot be downloaded"
for package in "$WORK"/debs/*.deb; do dpkg-deb -x "$package" "$WORK/headers"; done
# the package's Makefile names the place where the headers would be installed
sed -i "s|^include /usr/src|include $WORK/headers/usr/src|" "$WORK/headers/usr/src/linux-headers-$VERSION/Makefile"
[ "$FLAVOUR" = amd64 ] || fail "the guest's kernel $VERSION is not for amd64"
cp -a "$SOURCE/modules/nvidia-open-kernel" "$WORK/source"
sed "$CHANGE" "$SOURCE/modules/nvidia-open-kernel/$CHANGED" >"$WORK/source/$CHANGED"
[ "$(diff "$SOURCE/modules/nvidia-open-kernel/$CHANGED" "$WORK/source/$CHANGED" | grep -c '^>')" = 1 ] ||
  fail "the change for kernel $VERSION does not fit $CHANGED: it must be one line"
make -s -C "$WORK/source" -j"$(nproc)" KERNEL_UNAME="$VERSION" NV_KERNEL_MODULES="nvidia nvidia-uvm" \
  SYSSRC="$WORK/headers/usr/src/linux-headers-$BASE-common" SYSOUT="$WORK/headers/usr/src/linux-headers-$VERSION" \
  modules >"$WORK/log" 2>&1 || {
  tail -n 20 "$WORK/log" >&2
  fail "NVIDIA's modules do not build for kernel $VERSION"
}
mkdir "$WORK/out"
for name in nvidia nvidia-uvm; do
  strip --strip-debug -o "$WORK/out/$name.ko" "$WORK/source/$name.ko"
done
echo "$WANTED" >"$WORK/out/.ready"
rm -rf "$FOLDER"
mv "$WORK/out" "$FOLDER"
