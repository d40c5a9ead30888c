#!/usr/bin/env bash
# The same seed gives the same bits: builds the packet model's packet-trace-hash with gcc and clang, with and without
# optimisation, and compares what each prints with src/sim/packet/trace_hash.txt.
# usage: tools/check_determinism.sh [COMPILER...]      default: g++ and clang++-19, as far as they are here
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

compilers=("$@")
if [ "${#compilers[@]}" -eq 0 ]; then
    for compiler in g++ clang++-19; do
        if command -v "$compiler" >/dev/null; then
            compilers+=("$compiler")
        else
            printf '%-12s skipped: it is not here\n' "$compiler"
        fi
    done
fi
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
sources=(src/sim/packet/example/trace_hash.cpp)
for source in src/sim/packet/*.cpp; do
    case "$source" in *_test.cpp) ;; *) sources+=("$source") ;; esac
done

status=0
for compiler in "${compilers[@]}"; do
    for flags in '-O0 -g' '-O3 -DNDEBUG'; do
        rm -f "$folder"/*
        # shellcheck disable=SC2016,SC2086
        printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -I '{}' bash -c \
            '"$0" -std=c++20 -ffp-contract=off '"$flags"' -Isrc -Iinclude -c "$1" -o "$2/$(basename "$1").o"' \
            "$compiler" '{}' "$folder"
        "$compiler" "$folder"/*.o -o "$folder/program"
        if "$folder/program" src/sim/packet/trace_hash.txt >"$folder/said"; then
            printf '%-12s %-12s the same\n' "$compiler" "$flags"
        else
            printf '%-12s %-12s DIFFERS\n' "$compiler" "$flags"
            cat "$folder/said"
            status=1
        fi
    done
done
exit "$status"
