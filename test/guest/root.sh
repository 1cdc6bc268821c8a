#!/usr/bin/env bash
# Make a root directory of Debian 13, from packages that are unpacked and not installed: an emulator that knows
# vfio-user, and user-space drivers to run in the guest. An interrupted run leaves no partial directory. Nothing is done
# if the directory exists. The system's own package lists are neither read nor changed.
set -euo pipefail
FOLDER=${1:?usage: root.sh FOLDER}
SUITE=trixie
NEWER=$SUITE-backports
# from $NEWER, whose QEMU is the first with vfio-user
EMULATOR=(qemu-system-x86 qemu-system-common qemu-system-data seabios)
PACKAGES=(
  libc-bin bash coreutils findutils grep sed kmod pciutils
  mesa-vulkan-drivers libvulkan1 libvulkan-dev vulkan-tools glslang-tools spirv-tools
  libhsa-runtime64-1 libhsa-runtime-dev libhsakmt1 rocminfo libdrm-amdgpu1 libdrm-tests nvtop radeontop
)
WANTED="$SUITE: ${EMULATOR[*]/%//$NEWER} ${PACKAGES[*]}"

fail() {
  echo "guest: $*" >&2
  exit 1
}

[ "$(cat "$FOLDER/.ready" 2>/dev/null)" = "$WANTED" ] && exit 0
[ "$(id -u)" = 0 ] || fail "making $FOLDER needs root: sudo bash $0 $FOLDER"
. "$(dirname "$0")/../../tools/packages.sh"
need "command -v mmdebstrap" mmdebstrap
install_missing guest

mkdir -p "$(dirname "$FOLDER")"
exec 9>"$FOLDER.lock"
# if another run made the directory meanwhile, there is nothing to do
flock 9
[ "$(cat "$FOLDER/.ready" 2>/dev/null)" = "$WANTED" ] && exit 0
WORK=$(mktemp -d "$FOLDER.XXXXXX")
trap 'rm -rf "$WORK"' EXIT

# Use the archive of this system, from either format of apt's sources, with the suites and components that are needed.
if [ -e /etc/apt/sources.list.d/debian.sources ]; then
  archive=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/debian.sources | grep -v security | head -n 1)
  keys=$(sed -n 's/^Signed-By: *//p' /etc/apt/sources.list.d/debian.sources | head -n 1)
else
  archive=$(sed -nE 's/^deb +(\[[^]]*\] +)?([^ ]+) .*/\2/p' /etc/apt/sources.list | grep -v security | head -n 1) || true
fi
[ -n "${archive:-}" ] ||
  fail "no Debian archive is named in /etc/apt/sources.list.d/debian.sources or /etc/apt/sources.list"
cat >"$WORK/only.sources" <<SOURCES
Types: deb
URIs: $archive
Suites: $SUITE $NEWER
Components: main contrib non-free non-free-firmware
Signed-By: ${keys:-/usr/share/keyrings/debian-archive-keyring.gpg}
SOURCES

include=$(printf '%s,' "${EMULATOR[@]/%//$NEWER}" "${PACKAGES[@]}")
mmdebstrap --variant=extract --mode=root --aptopt='Acquire::Retries "3"' --include="${include%,}" \
  "$SUITE" "$WORK/root" "$WORK/only.sources" >"$WORK/log" 2>&1 ||
  fail "mmdebstrap: $(grep -E '^E: ' "$WORK/log" | head -n 1 || tail -n 1 "$WORK/log")"
rm -rf "$WORK"/root/var/lib/apt/lists "$WORK"/root/var/cache/apt "$WORK"/root/usr/share/{doc,man,locale,info}
# normally, the packages' own scripts do this
ldconfig -r "$WORK/root"
chmod 755 "$WORK/root"
rm -rf "$FOLDER"
echo "$WANTED" >"$WORK/root/.ready"
mv "$WORK/root" "$FOLDER"
