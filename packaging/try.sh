#!/usr/bin/env bash
# Tries the packages of build/packages where nothing is installed: the wheel and the .deb in bare Debian 12 roots, and
# an image that is built from a bare root. Needs root, and lintian, debootstrap and buildah (tools/setup.sh).
# usage: packaging/try.sh [--bare FOLDER] [wheel] [deb] [image]     default: all three
#   --bare FOLDER   a bare root to copy in place of a new one; made if it is not there
set -euo pipefail
# shellcheck source=tools/setup.sh
# shellcheck disable=SC2119
. "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"
# shellcheck source=tools/steps.sh
. "$INCAST_ROOT/tools/steps.sh"
# shellcheck source=tools/bare_root.sh
. "$INCAST_ROOT/tools/bare_root.sh"

needs_bare_root
work="$(mktemp -d)"
trap 'rm -rf --one-file-system "$work"' EXIT
bare="$work/bare"
if [ "${1:-}" = --bare ]; then
    bare="${2:?--bare needs a folder}"
    shift 2
fi
wanted=("$@")
[ "${#wanted[@]}" -gt 0 ] || wanted=(wheel deb image)
packages="$INCAST_ROOT/build/packages"

# A root of that name, with packages of Debian and the files that are tried.
root_with() {
    local name="$1" file="$2"
    shift 2
    copy_bare_root "$bare" "$work/$name"
    mkdir -p "$work/$name/try"
    cp "$file" "$work/$name/try/"
    cp "$INCAST_ROOT/packaging/tried.sh" "$work/$name/try/"
    inside "$work/$name" apt-get -q update >"$work/apt.log"
    [ "$#" -eq 0 ] || inside "$work/$name" env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y install --no-install-recommends "$@" >>"$work/apt.log" || { tail "$work/apt.log"; return 1; }
}

try_wheel() {
    local page
    root_with wheel "$(echo "$packages"/incast-*.whl)" python3 python3-venv ca-certificates
    inside "$work/wheel" update-ca-certificates >/dev/null 2>&1
    inside "$work/wheel" sh -c 'python3 -m venv /venv && /venv/bin/pip install --quiet /try/incast-*.whl'
    inside "$work/wheel" env PATH=/venv/bin:/usr/bin:/bin sh -e /try/tried.sh python
    # What the pages say, as in a checkout: pasted where no compiler is.
    # shellcheck disable=SC2016
    inside "$work/wheel" sh -c '/venv/bin/pip install --quiet "$(echo /try/incast-*.whl)[root,lab,tune]"'
    mkdir -p "$work/wheel/paste"
    git -C "$INCAST_ROOT" ls-files -z README.md docs fabrics tools/paste.py |
        tar -C "$INCAST_ROOT" --null -T - -c | tar -C "$work/wheel/paste" -x
    for page in README.md docs/running.md; do
        mkdir -p "$work/wheel/here/$page"
        ln -s /venv "$work/wheel/here/$page/.venv"
        ln -s /paste/fabrics "$work/wheel/here/$page/fabrics"
        inside "$work/wheel" /venv/bin/python /paste/tools/paste.py "/here/$page" "$page"
    done
}

# A warning is an error, too.
check_deb() { lintian --fail-on error,warning "$packages"/incast_*.deb; }

try_deb() {
    local left
    root_with deb "$(echo "$packages"/incast_*.deb)"
    inside "$work/deb" env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends \
        "/try/$(basename "$packages"/incast_*.deb)" >"$work/apt.log" || { tail "$work/apt.log"; return 1; }
    inside "$work/deb" dpkg --verify incast
    inside "$work/deb" sh -e /try/tried.sh /usr/lib/incast/python/bin/python
    # shellcheck disable=SC2016
    inside "$work/deb" sh -ec 'export RIO_FABRIC=shm:tried; softrio --destid 7 serve & served=$!
        tries=0; until softrio list 2>/dev/null | grep -qw 7; do tries=$((tries + 1)); [ "$tries" -lt 600 ]; done
        softrio list; kill "$served"'
    inside "$work/deb" apt-get -q -y purge incast >"$work/apt.log"
    left="$(cd "$work/deb" && find usr lib etc -path '*incast*')"
    [ -z "$left" ] || { echo "left after the package was purged: $left"; return 1; }
}

# There is no runtime but chroot where namespaces of processes cannot be made; the network is the host's with it.
try_image() {
    local folder="$work/image" storage=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs) container
    copy_bare_root "$bare" "$work/root"
    mkdir "$folder"
    tar -C "$work/root" -cf "$folder/root.tar" .
    cp "$packages"/incast_*.deb "$folder/"
    buildah "${storage[@]}" bud --isolation chroot --tag incast --file "$INCAST_ROOT/packaging/Containerfile" \
        "$folder" >"$work/image.log" 2>&1 || { tail "$work/image.log"; return 1; }
    buildah "${storage[@]}" images --format '{{.Name}} {{.Size}}'
    container="$(buildah "${storage[@]}" from localhost/incast)"
    buildah "${storage[@]}" run --isolation chroot --network host "$container" -- \
        incast run --nodes 2 --transport tcp --duration 500ms --warm-up 100ms
    buildah "${storage[@]}" rm "$container" >/dev/null
}

[ -d "$bare/etc" ] || step debootstrap make_bare_root "$bare"
for one in "${wanted[@]}"; do
    case "$one" in
        wheel) step wheel try_wheel ;;
        deb)
            step lintian check_deb
            step deb try_deb
            ;;
        image) step image try_image ;;
        *) die "packaging/try.sh: '$one' is no package; there are wheel, deb and image" ;;
    esac
done
