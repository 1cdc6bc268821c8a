#!/usr/bin/env bash
# Run commands as on a newcomer's computer: in a minimal Debian 12 with make, git and certificates, in a clean clone of
# the last commit. Proxies, certificates and package mirrors are those of this computer. Nothing else of it is visible,
# no terminal and no cache.
set -euo pipefail
FOLDER=${1:?usage: fresh.sh FOLDER COMMANDS [kept]}
COMMANDS=${2:?usage: fresh.sh FOLDER COMMANDS [kept]}
KEPT=${3:-}
SUITE=bookworm
PACKAGES=make,git,ca-certificates
CHECKOUT=$(cd "$(dirname "$0")/.." && pwd)
ROOT=$FOLDER/root BASE=$FOLDER/base

fail() {
  echo "fresh: $*" >&2
  exit 1
}

[ "$(id -u)" = 0 ] || fail "it changes the root directory, which needs root: sudo make fresh"
. "$CHECKOUT/tools/packages.sh"
need "command -v mmdebstrap" mmdebstrap
install_missing fresh
mkdir -p "$FOLDER"
exec 9>"$FOLDER/lock"
flock -n 9 || fail "another run has $FOLDER; wait for it, or name another cache with RINGUP_CACHE"

# Make the minimal system once.
if [ ! -e "$BASE/etc/debian_version" ]; then
  rm -rf "$BASE" "$FOLDER/making"
  sources=(/etc/apt/sources.list.d/debian.sources)
  [ -e "${sources[0]}" ] || sources=(/etc/apt/sources.list)
  mmdebstrap --variant=minbase --mode=root --aptopt='Acquire::Retries "3"' --include="$PACKAGES" \
    "$SUITE" "$FOLDER/making" "${sources[@]}" >"$FOLDER/log" 2>&1 ||
    fail "mmdebstrap: $(grep -E '^E: ' "$FOLDER/log" | head -n 1 || tail -n 1 "$FOLDER/log")"
  mv "$FOLDER/making" "$BASE"
fi

if [ -z "$KEPT" ] || [ ! -d "$ROOT" ]; then
  rm -rf --one-file-system "$ROOT"
  cp -a --reflink=auto "$BASE" "$ROOT"
fi

# Copy how this computer reaches the package registries: name servers, certificates, proxies, pip's settings.
cp -L /etc/resolv.conf /etc/hosts "$ROOT/etc/"
cp -L /etc/ssl/certs/ca-certificates.crt "$ROOT/etc/ssl/certs/"
grep -hiE '^ *acquire::[a-z]+::(proxy|ca)' /etc/apt/apt.conf /etc/apt/apt.conf.d/* >"$ROOT/etc/apt/apt.conf.d/99proxy" 2>/dev/null || true
for file in /etc/pip.conf /root/.config/pip/pip.conf; do
  [ ! -e "$file" ] || { mkdir -p "$(dirname "$ROOT$file")" && grep -vE '^ *find-links|file:' "$file" >"$ROOT$file" || true; }
done
environment=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
while IFS='=' read -r -d '' name value; do
  case ${name,,} in
    http_proxy | https_proxy | no_proxy | all_proxy | pip_index_url | pip_cert | pip_trusted_host | ssl_cert_file | requests_ca_bundle | curl_ca_bundle)
      environment+=("$name=$value")
      ;;
  esac
done < <(env -0)

rm -rf "$ROOT/root/ringup"
git clone --quiet --no-hardlinks "$CHECKOUT" "$ROOT/root/ringup"
echo "fresh: $(git -C "$CHECKOUT" log -1 --format='%h %s'), in $ROOT"

# The inner shell expands the variables.
# shellcheck disable=SC2016
unshare --mount --pid --fork --kill-child --propagation private bash -c '
  set -euo pipefail
  root=$1 commands=$2
  shift 2
  mount -t proc proc "$root/proc"
  mount --rbind -o ro /sys "$root/sys"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  for node in null zero full random urandom tty; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
  done
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  for number in 0 1 2; do ln -s "/proc/self/fd/$number" "$root/dev/$(echo stdin stdout stderr | cut -d " " -f $((number + 1)))"; done
  exec chroot "$root" env -i "$@" bash -c "cd /root/ringup && { $commands; }"
' fresh "$ROOT" "$COMMANDS" "${environment[@]}" </dev/null
