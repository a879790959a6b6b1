#!/bin/bash -l
# Keeps this host's Ray node up: takes the options of `ray start`, and ends when a process of the node has ended, to be
# started again by systemd (ray-node.service) or by cron, which also starts it at boot. A node that runs is left alone.
#
#     * * * * * flock -on ~/.ray-node.lock ~/lab/deploy/systemd/ray-node.sh --address=192.0.2.10:6379 > ~/.ray-node.log 2>&1
#
# `ray start --block` alone would not do: it goes on with nothing below it after a raylet that ended by itself, as one
# does that counts as dead or has lost the head. The login shell has PATH and variables from ~/.profile.

num_wanted=1
[[ " $* " == *" --head "* ]] && num_wanted=2

is_up() {
    [ "$(pgrep -c -u "$(id -u)" -x 'raylet|gcs_server')" = "$num_wanted" ]
}

ulimit -Sn "$(ulimit -Hn)"  # Ray wants many open files
is_up || { ray stop; ray start --disable-usage-stats "$@"; }
while is_up; do
    sleep 2
done
exit 1
