#!/usr/bin/env bash
# Process 1 of the guest once its root is there: runs the command and says on both streams how it ended. The host then
# has all output and ends the machine.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8
# Each stream can be opened once: as a descriptor, which the command inherits.
exec </dev/null 3>"$(echo /dev/vport*p1)" 4>"$(echo /dev/vport*p2)"
ln -sfn /proc/self/fd /dev/fd
# INCAST_GUEST_END, _FOLDER, _SCRIPTS and, for the command, _SIDE: which of two guests this one is.
# shellcheck source=/dev/null
. /run/guest/settings
export PATH="$INCAST_GUEST_SCRIPTS:$PATH" INCAST_GUEST_SIDE
echo guest >/proc/sys/kernel/hostname
ip link set lo up
ulimit -l unlimited
cd "$INCAST_GUEST_FOLDER" 2>/dev/null || cd /
setsid --wait bash /run/guest/command >&3 2>&4 3>&- 4>&-
status=$?
printf '\0%s %s\n' "$INCAST_GUEST_END" "$status" >&3
printf '\0%s %s\n' "$INCAST_GUEST_END" "$status" >&4
while :; do sleep 60; done
