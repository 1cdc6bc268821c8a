#!/usr/bin/env bash
# Build a small kernel with IOMMUFD for the guest from the distribution's source package, once. It takes a quarter of an
# hour on two cores.
set -euo pipefail
# the folder of the image, bzImage
FOLDER=${1:?usage: kernel.sh FOLDER}
SOURCE=linux-source-6.12
CONFIG=$(dirname "$(readlink -f "$0")")/kernel.config

. "$(dirname "$0")/../../tools/packages.sh"
for pair in gcc:gcc make:make flex:flex bison:bison bc:bc xz:xz-utils perl:perl; do
  need "command -v ${pair%:*}" "${pair#*:}"
done
need "test -e /usr/include/libelf.h" libelf-dev
install_missing guest

if [ -e "$FOLDER/bzImage" ] && cmp -s "$CONFIG" "$FOLDER/config"; then exit 0; fi
rm -rf "$FOLDER"
mkdir -p "$FOLDER/work"
cd "$FOLDER/work"
apt-get -qq -o APT::Sandbox::User=root download "$SOURCE"
dpkg-deb -x ./*.deb package
tar -xf package/usr/src/$SOURCE.tar.xz
cd $SOURCE
make -s allnoconfig KCONFIG_ALLCONFIG="$CONFIG"
for option in IOMMUFD VFIO_DEVICE_CDEV VFIO_PCI INTEL_IOMMU 9P_FS OVERLAY_FS; do
  grep -q "^CONFIG_$option=y" .config || {
    echo "guest: the kernel's set-up dropped CONFIG_$option" >&2
    exit 1
  }
done
make -s -j"$(nproc)" bzImage
cp arch/x86/boot/bzImage "$FOLDER/bzImage"
cp "$CONFIG" "$FOLDER/config"
rm -rf "$FOLDER/work"
