#!/bin/busybox sh
# Process 1 of the guest until its root is there: this host's root, below the programs of the image, below memory.
# shellcheck shell=sh
box=/bin/busybox
$box mount -t proc proc /proc
$box mount -t sysfs sys /sys
$box mount -t devtmpfs dev /dev
while read -r module; do $box insmod "/modules/$module"; done </modules/order

share="trans=virtio,version=9p2000.L,msize=512000"
$box mount -t 9p -o "$share,cache=loose,ro" host /host
$box mount -t 9p -o "$share,cache=loose,ro" layer /layer
$box mount -t tmpfs -o size=80% writable /writable
$box mkdir /writable/files /writable/work
$box mount -t overlay -o lowerdir=/layer:/host,upperdir=/writable/files,workdir=/writable/work root /new
$box mkdir -p /new/proc /new/sys /new/dev /new/run /new/out
for folder in proc sys dev; do $box mount -o move "/$folder" "/new/$folder"; done
$box mkdir -p /new/dev/shm /new/dev/pts
$box mount -t tmpfs shm /new/dev/shm
$box mount -t devpts pts /new/dev/pts
$box mount -t tmpfs run /new/run
$box mkdir -p /new/run/guest /new/run/lock
$box mount -t 9p -o "$share,cache=none,ro" guest /new/run/guest
# As without a cache, and files may be mapped.
$box mount -t 9p -o "$share,cache=mmap" out /new/out
exec $box switch_root -c /dev/console /new /bin/bash /run/guest/begin.sh
