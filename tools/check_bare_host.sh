#!/usr/bin/env bash
# Proves the two commands of the README on a bare Debian 12: makes a minimal root with debootstrap, copies the tracked
# files of this checkout into it, runs ./run and ./test there twice each, and fails unless the second run of each
# installed nothing and rebuilt nothing. Needs root and debootstrap. usage: tools/check_bare_host.sh [FOLDER]
# FOLDER is reused when it already holds a bare root (and is not changed); default: a temporary one.
set -euo pipefail
# shellcheck source=tools/setup.sh
# shellcheck disable=SC2119
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=tools/steps.sh
. "$INCAST_ROOT/tools/steps.sh"

[ "$(id -u)" -eq 0 ] || die "needs root (debootstrap, chroot)"
command -v debootstrap >/dev/null || die "needs debootstrap"
work="$(mktemp -d)"
trap 'rm -rf --one-file-system "$work"' EXIT
bare="${1:-$work/bare}"
root="$work/root"

make_bare_root() {
    # The mirror that this host itself uses.
    local mirror
    # shellcheck disable=SC2016
    mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' | head -n 1)"
    debootstrap --variant=minbase bookworm "$bare" "$mirror" >"$work/debootstrap.log" || {
        tail "$work/debootstrap.log"
        return 1
    }
}

# What belongs to this host's network rather than to Debian: names, extra certificates, a proxy or an index for pip.
fill_root() {
    local file
    cp -a "$bare" "$root"
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /usr/local/share/ca-certificates; do
        [ ! -e "$file" ] || { mkdir -p "$root${file%/*}"; cp -rL "$file" "$root${file%/*}/"; }
    done
    mkdir "$root/incast"
    git -C "$INCAST_ROOT" ls-files -z | tar -C "$INCAST_ROOT" --null -T - -c | tar -C "$root/incast" -x
}

# The mounts live in a namespace of their own and go with it.
inside() {
    # shellcheck disable=SC2016
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CI=true \
        unshare --mount --pid --fork --kill-child bash -c '
            mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev/shm" &&
            mount -t devpts -o ptmxmode=666,newinstance devpts "$0/dev/pts" && exec chroot "$0" "$@"' \
        "$root" "$@" </dev/null
}

# Everything an installation or a build would touch, with its time of change.
fingerprint() {
    (
        cd "$root"
        sha256sum var/log/dpkg.log
        find incast/.venv incast/build/release \
            \( -name __pycache__ -o -name test-results -o -name Testing \) -prune -o \
            -type f \( -name '*.o' -o -name '*.a' -o -name '*.py' -o -perm -u+x \) -printf '%p %T@\n' | sort
    )
}

first() { inside "/incast/$1"; }

# The discovery of tests happens when they first run, so the state to compare with is the one after the first run.
second() {
    fingerprint >"$work/before"
    inside "/incast/$1"
    fingerprint >"$work/after"
    [ "$(wc -l <"$work/before")" -gt 10 ] || { echo "nothing was built or installed"; return 1; }
    diff "$work/before" "$work/after" >"$work/diff" || { head -n 20 "$work/diff"; return 1; }
}

[ -d "$bare/etc" ] || step debootstrap make_bare_root
step copy fill_root
step run first run
step run-again second run
step test first test
step test-again second test
step run-after-test second run
