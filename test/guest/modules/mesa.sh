#!/usr/bin/env bash
# Fetch the NVK of a later Debian suite, once: the driver of its package mesa-vulkan-drivers, and the library that it
# needs beside those of root.sh's root. Nothing is installed. An interrupted run leaves no partial folder.
set -euo pipefail
[ $# = 3 ] || {
  echo "usage: mesa.sh FOLDER SUITE ROOT" >&2
  exit 2
}
FOLDER=$1 SUITE=$2 ROOT=$3
# where the suite has no package, that of the suite below it
BASE=${SUITE%-backports}
MORE=libdisplay-info2
LIBRARIES=usr/lib/x86_64-linux-gnu
WANTED="$SUITE: mesa-vulkan-drivers $MORE"

fail() {
  echo "guest: $*" >&2
  exit 1
}

made() { [ "$(head -n 1 "$FOLDER/.ready" 2>/dev/null)" = "$WANTED" ]; }

made && exit 0
mkdir -p "$(dirname "$FOLDER")"
exec 9>"$FOLDER.lock"
# if another run made the folder meanwhile, there is nothing to do
flock 9
made && exit 0
WORK=$(mktemp -d "$FOLDER.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
# lists of their own: the system's are neither read nor changed
mkdir -p "$WORK"/lists/partial "$WORK/out"
archive=$(sed -nE 's/^(URIs: *|deb +(\[[^]]*\] +)?)([^ ]+).*/\3/p' /etc/apt/sources.list.d/debian.sources \
  /etc/apt/sources.list 2>/dev/null | grep -v security | head -n 1) || true
for suite in "$BASE" "$SUITE"; do
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${archive:-http://deb.debian.org/debian} $suite main"
done >"$WORK/list"
apt() {
  "apt-$1" -qq -o APT::Sandbox::User=root -o Dir::State::lists="$WORK/lists" -o Dir::Cache="$WORK" \
    -o Dir::State::status=/dev/null -o Dir::Etc::sourcelist="$WORK/list" -o Dir::Etc::sourceparts=/dev/null "${@:2}"
}
{ apt get update && (cd "$WORK" && apt get download "mesa-vulkan-drivers/$SUITE" "$MORE"); } >"$WORK/log" 2>&1 ||
  fail "mesa-vulkan-drivers of $SUITE cannot be fetched: $(tail -n 1 "$WORK/log")"
for package in "$WORK"/*.deb; do dpkg-deb -x "$package" "$WORK/root"; done
version=$(cd "$WORK" && ls mesa-vulkan-drivers_*.deb)
mkdir -p "$WORK/out/$LIBRARIES"
cp -a "$WORK/root/$LIBRARIES"/libvulkan_nouveau.so "$WORK/root/$LIBRARIES"/libdisplay-info.so.* "$WORK/out/$LIBRARIES/"
cp "$WORK"/root/usr/share/vulkan/icd.d/nouveau_icd*.json "$WORK/out/nouveau_icd.json"
for name in $(objdump -p "$WORK/out/$LIBRARIES"/*.so* | sed -n 's/^ *NEEDED *//p'); do
  [ -e "$ROOT/$LIBRARIES/$name" ] || [ -e "$WORK/out/$LIBRARIES/$name" ] || fail "NVK of $SUITE needs $name"
done
printf '%s\n' "$WANTED" "$version" >"$WORK/out/.ready"
rm -rf "$FOLDER"
mv "$WORK/out" "$FOLDER"
