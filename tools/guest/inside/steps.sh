#!/usr/bin/env bash
# In a guest: runs the steps that lie in /out/steps, one after the other, whatever becomes of them.
#   NAME.sh is run for at most the seconds in NAME.limit; it leaves NAME.output and, once it ended, NAME.end: its status
#   and microseconds.
for script in /out/steps/*.sh; do
    step="${script%.sh}"
    begin="$EPOCHREALTIME"
    timeout --kill-after=5 "$(<"$step.limit")" bash "$script" >"$step.output" 2>&1
    status=$?
    ended="$EPOCHREALTIME"
    echo "$status $((${ended/./} - ${begin/./}))" >"$step.end"
done
