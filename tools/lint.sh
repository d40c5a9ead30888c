#!/usr/bin/env bash
# All static checks; each one fails. usage: tools/lint.sh [--all]
# clang-tidy looks at what changed since INCAST_BASE (default: where this branch left origin/main, or else the last ten
# commits), for at most INCAST_TIDY_SECONDS (it names what it had no time for); --all looks at everything.
set -euo pipefail
# shellcheck source=tools/setup.sh
# shellcheck disable=SC2119
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
. "$INCAST_ROOT/tools/steps.sh"
cd "$INCAST_ROOT"

tidy_scope() {
    local base head
    if [ "${1:-}" = --all ]; then echo --all; return; fi
    if [ -n "${INCAST_BASE:-}" ]; then echo "$INCAST_BASE"; return; fi
    head="$(git rev-parse HEAD)"
    base="$(git merge-base HEAD origin/main 2>/dev/null || true)"
    if [ -n "$base" ] && [ "$base" != "$head" ]; then
        echo "$base"
    else
        git rev-parse -q --verify HEAD~10 || git rev-list --max-parents=0 HEAD | tail -n 1
    fi
}

check_format() {
    local files
    mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.c')
    if [ "${#files[@]}" -eq 0 ]; then echo "no files to check"; return 1; fi
    printf '%s\n' "${files[@]}" | xargs -P "$INCAST_JOBS" -n 16 clang-format-19 --dry-run --Werror
    echo "${#files[@]} files"
}

check_shell() {
    local files
    mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.sh')
    shellcheck -x run test .ci/run tools/guest/run tools/guest/setup "${files[@]}"
}

scope="$(tidy_scope "${1:-}")"
step packages incast_packages run test lint
step python incast_python lint root lab hosts dask tune test
step format check_format
step house "$INCAST_VENV/bin/python" tools/check_house.py
step shellcheck check_shell
step ruff "$INCAST_VENV/bin/ruff" check .
step ruff-format "$INCAST_VENV/bin/ruff" format --check .
step mypy "$INCAST_VENV/bin/mypy"
if ! build_tree_is_ours "$INCAST_BUILD" || ! cache_has release INCAST_TESTS:STRING ON; then
    step configure incast_configure release -DINCAST_TESTS=ON
fi
step clang-tidy "$INCAST_VENV/bin/python" tools/tidy.py "$scope"
