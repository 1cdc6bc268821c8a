#!/usr/bin/env bash
# A disk for the guest, of root.sh's root, setup.sh's modules and the amdgpu firmware. Whole or not at all, and left alone while nothing changed.
set -euo pipefail
[ $# = 4 ] || {
  echo "usage: disk.sh IMAGE ROOT KERNEL FIRMWARE" >&2
  exit 2
}
IMAGE=$1 ROOT=$2 KERNEL=$3 FIRMWARE=$4
WANTED=$(cat "$ROOT/.ready" "$KERNEL/version" "$FIRMWARE/.ringup-version")

made() { [ -e "$IMAGE" ] && [ "$(cat "$IMAGE.of" 2>/dev/null)" = "$WANTED" ]; }

made && exit 0
exec 9>"$IMAGE.lock"
flock 9 # two makers at once: the second finds what the first made
made && exit 0
WORK=$(mktemp -d "$IMAGE.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
{
  cp -al "$ROOT" "$WORK/tree" 2>/dev/null || { rm -rf "$WORK/tree" && cp -a "$ROOT" "$WORK/tree"; } # of names, or of files
  mkdir -p "$WORK/tree/usr/lib/firmware" "$WORK/tree/run/guest"
  cp -a "$KERNEL/lib/modules" "$WORK/tree/usr/lib/modules"
  cp -a "$FIRMWARE/lib/firmware/amdgpu" "$WORK/tree/usr/lib/firmware/amdgpu"
  size_mib=$(($(du -sm --apparent-size "$WORK/tree" | cut -f 1) * 5 / 4))
  mke2fs -q -t ext4 -O ^has_journal -m 0 -d "$WORK/tree" "$WORK/image" "${size_mib}M" >/dev/null
} 2>"$WORK/log" || {
  echo "guest: making $IMAGE: $(tail -n 1 "$WORK/log")" >&2
  exit 1
}
rm -f "$IMAGE.of"
mv "$WORK/image" "$IMAGE"
echo "$WANTED" >"$IMAGE.of"
