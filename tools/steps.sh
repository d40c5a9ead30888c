# Sourced: step NAME COMMAND... runs a command under its name, says how long it took, and ends the script if it fails.
# shellcheck shell=bash

step() {
    local name="$1" start="$SECONDS"
    shift
    printf '\n=== %s\n' "$name"
    # In a subshell with errexit of its own: a function called in a condition would lose it.
    local status=0
    set +e
    (set -e; "$@")
    status=$?
    set -e
    if [ "$status" -ne 0 ]; then
        printf '=== %s FAILED after %d s (status %d)\n' "$name" "$((SECONDS - start))" "$status"
        exit 1
    fi
    printf '=== %s passed in %d s\n' "$name" "$((SECONDS - start))"
}
