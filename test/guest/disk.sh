#!/usr/bin/env bash
# Make a disk for the guest from root.sh's root directory, setup.sh's kernel modules and the amdgpu firmware. An
# interrupted run leaves no partial disk. Nothing is done if the disk is up to date.
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
# if another run made the disk meanwhile, there is nothing to do
flock 9
made && exit 0
WORK=$(mktemp -d "$IMAGE.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
{
  # hard links if possible, else copies
  cp -al "$ROOT" "$WORK/tree" 2>/dev/null || { rm -rf "$WORK/tree" && cp -a "$ROOT" "$WORK/tree"; }
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
