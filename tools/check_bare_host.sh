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

# shellcheck source=tools/bare_root.sh
. "$INCAST_ROOT/tools/bare_root.sh"

needs_bare_root
work="$(mktemp -d)"
trap 'rm -rf --one-file-system "$work"' EXIT
bare="${1:-$work/bare}"
root="$work/root"

fill_root() {
    copy_bare_root "$bare" "$root"
    mkdir "$root/incast"
    git -C "$INCAST_ROOT" ls-files -z | tar -C "$INCAST_ROOT" --null -T - -c | tar -C "$root/incast" -x
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

first() { inside "$root" "/incast/$1"; }

# The discovery of tests happens when they first run, so the state to compare with is the one after the first run.
second() {
    fingerprint >"$work/before"
    inside "$root" "/incast/$1"
    fingerprint >"$work/after"
    [ "$(wc -l <"$work/before")" -gt 10 ] || { echo "nothing was built or installed"; return 1; }
    diff "$work/before" "$work/after" >"$work/diff" || { head -n 20 "$work/diff"; return 1; }
}

[ -d "$bare/etc" ] || step debootstrap make_bare_root "$bare"
step copy fill_root
step run first run
step run-again second run
step test first test
step test-again second test
step run-after-test second run
