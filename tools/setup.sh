# Sourced by ./run, ./test and .ci/run: brings a bare Debian (12 or later) or Ubuntu (24.04 or later) to the point where
# the engine is built and the command line is installed. Every step looks first and does nothing that is already done.
#
#   incast_packages PURPOSE...   install the missing system packages of the purposes: run, test, lint, bench, cluster,
#                                programs, package, web
#   incast_build TARGET...       configure once and build the release preset; no target builds everything
#   incast_python EXTRA...       make .venv with the command line and the given extras of pyproject.toml
# shellcheck shell=bash
# SC2119, SC2120: some functions are called without their optional arguments.
# shellcheck disable=SC2119,SC2120

INCAST_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
INCAST_BUILD="$INCAST_ROOT/build/release"
INCAST_VENV="$INCAST_ROOT/.venv"
INCAST_JOBS="${INCAST_JOBS:-$(nproc)}"
INCAST_LOG="$INCAST_ROOT/build/setup.log"

say() { printf 'incast: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Output of a long step goes to the log; it is shown when the step fails.
logged() {
    mkdir -p "$(dirname "$INCAST_LOG")"
    if ! "$@" >"$INCAST_LOG" 2>&1; then
        tail -n 60 "$INCAST_LOG" >&2
        die "failed: $* (all of its output: build/setup.log)"
    fi
}

# The names are the same in Debian 12 and in Ubuntu 22.04 and later.
packages_for() {
    case "$1" in
        run) echo cmake ninja-build g++ libfmt-dev libspdlog-dev libtomlplusplus-dev nlohmann-json3-dev libcli11-dev \
                  libisal-dev libibverbs-dev librdmacm-dev libfabric-dev libucx-dev ca-certificates \
                  "$(python_packages)" ;;
        test) echo libgtest-dev libgmock-dev iproute2 iputils-ping ethtool nftables lua5.4 openssh-client \
                   openssh-server tcpdump ;;
        # What starts the nodes of many hosts, besides ssh: only for .ci/run --all.
        cluster) echo openmpi-bin libopenmpi-dev mpich libmpich-dev slurmctld slurmd slurm-client munge ;;
        lint) echo clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev llvm-19 shellcheck ccache git ;;
        bench) echo libbenchmark-dev iperf3 openmpi-bin libopenmpi-dev mpich libmpich-dev liburing-dev ucx-utils ;;
        # What runs over network devices, besides ssh, and Maven, which gets Hadoop: only for .ci/run --all.
        programs) echo default-jre-headless maven rsync curl iperf3 ;;
        # What builds and tries packages (docs/install.md): only for make packages and .ci/run --all.
        package) echo dpkg-dev lintian debootstrap buildah ;;
        # What a browser and a Prometheus make of the pages and metrics: large, so that neither ./test nor CI has it.
        web) echo chromium prometheus ;;
        *) die "no such purpose: $1" ;;
    esac
}

# Ubuntu 22.04's own Python is 3.10; it also packages 3.11.
python_packages() {
    if grep -q '^VERSION_ID="22.04"' /etc/os-release 2>/dev/null; then
        echo python3.11 python3.11-venv python3.11-dev
    else
        echo python3 python3-venv python3-dev
    fi
}

python_command() {
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    die "needs Python 3.11 or later; python3 here is $(python3 --version 2>&1)"
}

missing_packages() {
    local package
    for package in "$@"; do
        if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
            echo "$package"
        fi
    done
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a "$@"
    else
        sudo env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a "$@"
    fi
}

apt_get() { as_root apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"; }

# True when apt knows a version of every package; a fresh image has no lists, and old lists lack what was added since.
apt_knows() {
    local package
    for package in "$@"; do
        apt-cache show --no-all-versions "$package" >/dev/null 2>&1 || return 1
    done
}

incast_packages() {
    local purpose wanted=() missing=()
    for purpose in "$@"; do
        read -r -a more <<<"$(packages_for "$purpose")"
        wanted+=("${more[@]}")
    done
    if ! command -v dpkg-query >/dev/null; then
        say "no dpkg here; taking for granted the equivalents of: ${wanted[*]}"
        return
    fi
    mapfile -t missing < <(missing_packages "${wanted[@]}")
    [ "${#missing[@]}" -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        die "needs root or sudo to install: ${missing[*]}"
    fi
    say "installing ${#missing[@]} packages: ${missing[*]}"
    apt_knows "${missing[@]}" || logged apt_get update
    # Lists that are older than the mirror name versions that are gone: refresh them once and try again.
    if ! apt_get install --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
        logged apt_get update
        logged apt_get install --no-install-recommends "${missing[@]}"
    fi
}

# A build tree remembers absolute paths: one that was moved or copied is of no use.
build_tree_is_ours() {
    grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$INCAST_ROOT" "$1/CMakeCache.txt" 2>/dev/null
}

# incast_configure PRESET [CMAKE_ARGUMENT...]
incast_configure() {
    local preset="$1" tree="$INCAST_ROOT/build/$1"
    shift
    build_tree_is_ours "$tree" || rm -rf "$tree"
    if [ ! -f "$tree/build.ninja" ] || [ "$#" -gt 0 ]; then
        say "configuring $preset"
        (cd "$INCAST_ROOT" && logged cmake --preset "$preset" "$@")
    fi
}

cache_has() { grep -q "^$2=$3\$" "$INCAST_ROOT/build/$1/CMakeCache.txt" 2>/dev/null; }

# How many steps a build has left; nothing where that is not known.
steps_left() { cmake --build "$INCAST_BUILD" "$@" -- -n 2>/dev/null | sed -n '$s/^\[[0-9]*\/\([0-9]*\)\].*/\1/p'; }

# On a terminal: how far the log of a build has come, until the step is over or this shell is gone.
show_count() {
    while kill -0 "$$" 2>/dev/null; do
        printf '\rincast: %s ' "$(tail -n 1 "$INCAST_LOG" 2>/dev/null | grep -o '^\[[0-9]*/[0-9]*\]')" >&2
        sleep 1
    done
}

# A long build says how long it may take (some 3 s of a core for each step), and where to look.
incast_build() {
    local targets=() steps minutes counter=""
    [ "$#" -eq 0 ] || targets=(--target "$@")
    say "building ${*:-everything} (build/release)"
    steps="$(steps_left "${targets[@]}" || true)"
    if [ "${steps:-0}" -ge 20 ]; then
        minutes=$(((steps * 3 / INCAST_JOBS + 59) / 60))
        say "$steps steps, about $minutes min on $INCAST_JOBS cores; to look: tail -f build/setup.log"
        if [ -t 2 ]; then show_count & counter=$!; fi
    fi
    logged cmake --build "$INCAST_BUILD" -j "$INCAST_JOBS" "${targets[@]}"
    if [ -n "$counter" ]; then
        kill "$counter" 2>/dev/null || true
        wait "$counter" 2>/dev/null || true
        printf '\n' >&2
    fi
    if grep -q 'no work to do' "$INCAST_LOG"; then say "nothing to rebuild"; fi
}

# The stamp says which pyproject.toml the environment was made from, where, and by which Python. The package is
# installed in place (its sources are used as they are), so a changed source needs no new installation, and the engine
# is the one of build/release, so nothing is compiled a second time.
incast_python() {
    local python stamp extra wanted=()
    python="$(python_command)"
    stamp="$({ cat "$INCAST_ROOT/pyproject.toml"; echo "$INCAST_VENV"; "$python" --version; } | sha256sum | cut -c1-32)"
    if [ ! -x "$INCAST_VENV/bin/python" ] || [ "$(cat "$INCAST_VENV/incast-stamp-run" 2>/dev/null)" != "$stamp" ]; then
        say "making .venv"
        rm -rf "$INCAST_VENV"
        logged "$python" -m venv "$INCAST_VENV"
        pip_install "$INCAST_ROOT"
        echo "$stamp" >"$INCAST_VENV/incast-stamp-run"
    fi
    for extra in "$@"; do
        [ "$(cat "$INCAST_VENV/incast-stamp-$extra" 2>/dev/null)" = "$stamp" ] || wanted+=("$extra")
    done
    [ "${#wanted[@]}" -gt 0 ] || return 0
    say "adding to .venv: ${wanted[*]}"
    pip_install "${INCAST_ROOT}[$(IFS=,; echo "${wanted[*]}")]"
    for extra in "${wanted[@]}"; do
        echo "$stamp" >"$INCAST_VENV/incast-stamp-$extra"
    done
}

pip_install() {
    PIP_DISABLE_PIP_VERSION_CHECK=1 logged "$INCAST_VENV/bin/python" -m pip install --quiet \
        --config-settings=wheel.cmake=false --config-settings=wheel.py-api=py3 \
        --config-settings=editable.mode=inplace --editable "$1"
}
