#!/usr/bin/env bash
# Makes libIncastRoot.so, which lets programs of ROOT use channels of Incast.
#
#   bridges/root/build.sh OUT [--root PREFIX | --python PROGRAM] [--incast DIR] [--jobs N]
#
# OUT/lib has all that is to be used. The ROOT to build against is that of PREFIX, or of a Python that has the package
# `root`, or else the one that `root-config` names. Without any of them, a Python environment with that package is made
# in OUT/venv: 250 MB come through pip, and Python 3.11 is needed. DIR is where Incast was installed, or its build tree,
# which is the default (build/release).
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
wheel=0.1a12

fail() {
    echo "build.sh: $*" >&2
    exit 2
}

out=
prefix=
python=
incast="$root/build/release"
jobs="$(nproc)"
while [ $# -gt 0 ]; do
    case "$1" in
        --root) prefix="${2:?}" && shift ;;
        --python) python="${2:?}" && shift ;;
        --incast) incast="${2:?}" && shift ;;
        --jobs) jobs="${2:?}" && shift ;;
        -*) fail "unknown option $1" ;;
        *) out="$1" ;;
    esac
    shift
done
[ -n "$out" ] || fail "where to? build.sh OUT"
library="$(find "$incast" -name 'libincast-channel.so' -print -quit 2>/dev/null)"
[ -n "$library" ] || fail "no libincast-channel.so in $incast: build Incast first (cmake --build --preset release)"
header="$root/include"
[ -f "$incast/include/incast/channel.h" ] && header="$incast/include"
# CM alone needs SoftRIO's library for programs: an archive, so that what is made needs nothing more.
mport="$(find "$incast" \( -name libmport.a -o -name libmport.so \) -print 2>/dev/null | sort | head -n 1)"
rapidio="$root/src/softrio/include"
[ -f "$incast/include/rapidio_mport_sock.h" ] && rapidio="$incast/include"
[ -n "$mport" ] || rapidio=
for tool in cmake ninja; do
    command -v "$tool" >/dev/null || fail "$tool is needed"
done
mkdir -p "$out"
out="$(cd "$out" && pwd)"

if [ -z "$prefix$python" ]; then
    if command -v root-config >/dev/null; then
        prefix="$(root-config --prefix)"
    else
        python="$out/venv/bin/python"
        if ! "$python" -c 'import ROOT' >/dev/null 2>&1; then
            python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
                fail "no root-config here, and the package 'root' needs Python 3.11: say --root PREFIX"
            {
                python3 -m venv "$out/venv" &&
                    "$python" -m pip --disable-pip-version-check install --quiet "root==$wheel"
            } >"$out/pip.log" 2>&1 || fail "pip could not install root $wheel: $out/pip.log"
        fi
    fi
fi
if [ -n "$python" ]; then
    packages="$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"
    [ -d "$packages/ROOT/cmake" ] || fail "$python has no package root"
    # The targets of the package name a folder of where it was built.
    mkdir -p "$out/cmake/include"
    ln -sfn "$packages" "$out/cmake/mock_site_packages"
    config="$out/cmake/mock_site_packages/ROOT/cmake"
    bin="$packages/ROOT/bin"
else
    config="$prefix/cmake"
    [ -d "$config" ] || config="$(find "$prefix" -name ROOTConfig.cmake -printf '%h\n' -quit 2>/dev/null)"
    [ -n "$config" ] || fail "no ROOTConfig.cmake in $prefix"
    bin="$prefix/bin"
fi
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
{
    cmake -S "$here" -B "$out/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DROOT_DIR="$config" "${launcher[@]}" \
        -DINCAST_CHANNEL_INCLUDE="$header" -DINCAST_CHANNEL_LIBRARY="$library" \
        -DSOFTRIO_INCLUDE="$rapidio" -DSOFTRIO_LIBRARY="$mport" &&
        cmake --build "$out/build" -j "$jobs"
} >"$out/build.log" 2>&1 || fail "the build failed: $out/build.log"

mkdir -p "$out/lib" "$out/bin" "$out/include"
install -m 644 "$here"/src/TRio*.h "$out/include/"
# Not into files that somebody has mapped.
find "$out/build" -maxdepth 2 -name 'libIncastRoot*' -type f -exec install -m 755 {} "$out/lib/" \;
install -m 755 "$out"/build/bin/root_{measure,experiment} "$out/bin/"
for tool in root.exe rootcling hadd; do
    ln -sfn "$bin/$tool" "$out/bin/$tool"
done
echo "$out/lib/libIncastRoot.so: channels of Incast for ROOT $("$bin/root-config" --version 2>/dev/null || true)"
