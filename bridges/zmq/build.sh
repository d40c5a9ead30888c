#!/usr/bin/env bash
# Makes a libzmq.so.5 that has the transports rio, shm and verbs: gets the source, patches it, builds it.
#
#   bridges/zmq/build.sh OUT [--version 4.3.4|4.3.5] [--incast DIR] [--drafts] [--tests] [--jobs N]
#
# OUT/lib/libzmq.so.5, OUT/include/zmq.h and OUT/bin (libzmq's own benchmarks) are what is to be used. DIR is where
# Incast was installed, or its build tree, which is the default (build/release). 4.3.4 comes as Debian's source package
# zeromq3, through this host's own apt; 4.3.5 from the package zeromq-src of crates, through cargo. --drafts adds the
# functions that libzmq calls drafts; --tests builds its own tests, too, for test.sh.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"

fail() {
    echo "build.sh: $*" >&2
    exit 2
}

out=
version=4.3.4
incast="$root/build/release"
drafts=OFF
tests=OFF
jobs="$(nproc)"
while [ $# -gt 0 ]; do
    case "$1" in
        --version) version="${2:?}" && shift ;;
        --incast) incast="${2:?}" && shift ;;
        --jobs) jobs="${2:?}" && shift ;;
        --drafts) drafts=ON ;;
        --tests) tests=ON drafts=ON ;;
        -*) fail "unknown option $1" ;;
        *) out="$1" ;;
    esac
    shift
done
[ -n "$out" ] || fail "where to? build.sh OUT"
[ -f "$here/libzmq-$version.patch" ] || fail "there is no patch for libzmq $version"
library="$(find "$incast" -name 'libincast-channel.so' -print -quit 2>/dev/null)"
[ -n "$library" ] || fail "no libincast-channel.so in $incast: build Incast first (cmake --build --preset release)"
header="$root/include"
[ -f "$incast/include/incast/channel.h" ] && header="$incast/include"
for tool in cmake ninja patch; do
    command -v "$tool" >/dev/null || fail "$tool is needed"
done
mkdir -p "$out"
out="$(cd "$out" && pwd)"

# The lists of source packages are fetched into OUT: nothing of the host's apt is changed, and no root is needed.
get_4_3_4() {
    local apt="$out/apt" list
    command -v apt-get >/dev/null || fail "apt-get is needed to get the source package zeromq3"
    mkdir -p "$apt/sources" "$apt/lists/partial" "$apt/cache/archives/partial"
    for list in /etc/apt/sources.list.d/*.sources; do
        [ -f "$list" ] && sed 's/^Types:.*/Types: deb-src/' "$list" >"$apt/sources/$(basename "$list")"
    done
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$list" ] && sed 's/^deb /deb-src /' "$list" >"$apt/sources/$(basename "$list")"
    done
    local -a options=(-q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt/sources"
        -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=)
    apt-get "${options[@]}" update >"$out/apt.log" 2>&1 || fail "apt-get update failed: $out/apt.log"
    (cd "$apt" && apt-get "${options[@]}" source --download-only zeromq3) >>"$out/apt.log" 2>&1 ||
        fail "apt-get source zeromq3 failed: $out/apt.log"
    dpkg-source --no-copy -x "$apt"/zeromq3_4.3.4*.dsc "$out/source" >>"$out/apt.log" 2>&1 ||
        fail "this distribution has another version than 4.3.4: $out/apt.log"
}

get_4_3_5() {
    command -v cargo >/dev/null || fail "cargo is needed to get zeromq-src"
    mkdir -p "$out/crate/src"
    printf '[package]\nname = "get"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nzeromq-src = "=0.3.6"\n' \
        >"$out/crate/Cargo.toml"
    : >"$out/crate/src/lib.rs"
    (cd "$out/crate" && cargo vendor -q vendor) >"$out/cargo.log" 2>&1 || fail "cargo vendor failed: $out/cargo.log"
    cp -r "$out/crate/vendor/zeromq-src/vendor" "$out/source"
}

if ! cmp -s "$here/libzmq-$version.patch" "$out/source/.patched"; then
    rm -rf "$out/source"
    "get_${version//./_}"
    patch -s -d "$out/source" -p1 <"$here/libzmq-$version.patch"
    cp "$here/libzmq-$version.patch" "$out/source/.patched"
fi
for file in "$here"/src/*; do
    cmp -s "$file" "$out/source/src/$(basename "$file")" || cp "$file" "$out/source/src/"
done

sodium=OFF
pkg-config --exists libsodium 2>/dev/null && sodium=ON
[ "$sodium" = ON ] || echo "build.sh: without libsodium-dev this libzmq has no CURVE" >&2
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
{
    cmake -S "$out/source" -B "$out/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$out" \
        -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED=ON -DBUILD_STATIC=OFF -DWITH_TLS=OFF -DENABLE_WS=OFF \
        -DWITH_LIBSODIUM="$sodium" -DENABLE_CURVE="$sodium" -DENABLE_DRAFTS="$drafts" -DBUILD_TESTS="$tests" \
        -DWITH_PERF_TOOL=ON -DWITH_DOC=OFF -DWITH_DOCS=OFF "${launcher[@]}" \
        -DCMAKE_INSTALL_RPATH="$(dirname "$library");$out/lib" -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
        -DINCAST_CHANNEL_INCLUDE="$header" -DINCAST_CHANNEL_LIBRARY="$library" &&
        cmake --build "$out/build" -j "$jobs"
} >"$out/build.log" 2>&1 || fail "the build failed: $out/build.log"

mkdir -p "$out/lib" "$out/include" "$out/bin"
cp -P "$out"/build/lib/libzmq.so* "$out/lib/"
cp "$out"/source/include/zmq*.h "$out/include/"
for tool in local_lat remote_lat local_thr remote_thr inproc_lat inproc_thr proxy_thr; do
    [ -f "$out/build/bin/$tool" ] && cp "$out/build/bin/$tool" "$out/bin/"
done
cc -shared -fPIC -O2 -Wall -Wextra -I"$header" -o "$out/lib/turn.so" "$here/turn.c" "$library" \
    -Wl,-rpath,"$(dirname "$library")" -ldl -lpthread
cc -O2 -o "$out/bin/zmq_measure" "$here/measure.c" -I"$out/include" -L"$out/lib" -Wl,-rpath,"$out/lib" -lzmq
echo "$out/lib/libzmq.so.5: libzmq $version with rio, shm and verbs"
