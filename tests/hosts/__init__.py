"""Machines on this machine: network namespaces with addresses, process tables, homes and sshd of their own.

`machines.py` makes them, `links.py` their network, which the faults of `tests/chaos` share. Linux, root, iproute2,
openssh-server, rsync and cron are needed; `why_no_machines()` says which of these is missing.
"""
