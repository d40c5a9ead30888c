# Sourced, after tools/setup.sh: a bare Debian 12 in a folder, to try things where nothing is installed. Needs root.
#
#   make_bare_root FOLDER        a minimal root by debootstrap
#   copy_bare_root FOLDER COPY   with what belongs to this host's network
#   inside ROOT COMMAND...       runs there, in namespaces of its own
# shellcheck shell=bash

needs_bare_root() {
    [ "$(id -u)" -eq 0 ] || die "needs root (debootstrap, chroot)"
    command -v debootstrap >/dev/null || die "needs debootstrap"
}

make_bare_root() {
    # The mirror that this host itself uses.
    local mirror
    # shellcheck disable=SC2016
    mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' | head -n 1)"
    mkdir -p "$1"
    debootstrap --variant=minbase bookworm "$1" "$mirror" >"$1.log" || {
        tail "$1.log"
        return 1
    }
}

# What belongs to this host's network rather than to Debian: names, extra certificates, a proxy or an index for pip.
copy_bare_root() {
    local file
    cp -a "$1" "$2"
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /usr/local/share/ca-certificates; do
        [ ! -e "$file" ] || { mkdir -p "$2${file%/*}"; cp -rL "$file" "$2${file%/*}/"; }
    done
}

# The mounts live in a namespace of their own and go with it.
inside() {
    local root="$1"
    shift
    # shellcheck disable=SC2016
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CI=true \
        unshare --mount --pid --fork --kill-child bash -c '
            mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev/shm" &&
            mount -t devpts -o ptmxmode=666,newinstance devpts "$0/dev/pts" && exec chroot "$0" "$@"' \
        "$root" "$@" </dev/null
}
