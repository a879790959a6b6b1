"""Machines on this machine: apart from one another, reached by ssh, and gone afterwards; no Ray is needed.

Alone: .venv/bin/pytest tests/hosts/test_machines.py
"""

import subprocess
from collections.abc import Iterator

import psutil
import pytest

from tests.hosts.machines import Site, started_site, why_no_machines
from tests.waiting import wait_until

pytestmark = [pytest.mark.hosts, pytest.mark.skipif(bool(why_no_machines()), reason=why_no_machines())]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(num_hosts=2) as site:
        yield site


def test_the_control_machine_reaches_hosts_by_ssh_and_name(site: Site) -> None:
    said = [site.control.run(f"ssh {host.address} hostname").strip() for host in site.hosts]
    assert said == ["host1", "host2"]
    assert site.hosts[0].run("ssh-keyscan -t ed25519 host2").startswith("# host2:22")


def test_hosts_share_one_folder_and_nothing_else(site: Site) -> None:
    first, second = site.hosts
    first.run("touch /srv/lab/seen ~/hidden /tmp/hidden /dev/shm/hidden")
    assert second.run("ls /srv/lab") == "seen\n"
    assert "hidden" not in second.run("ls ~ /tmp /dev/shm")
    assert "lab" not in site.control.run("ls /srv")
    assert len(second.run("ps -e --no-headers").splitlines()) < 10, "processes of other machines are seen"


def test_an_environment_finds_the_packages_and_takes_the_project_from_a_checkout(site: Site) -> None:
    (host, _), control = site.hosts, site.control
    assert control.run("python -c 'import orchestrator; print(orchestrator.__file__)'").startswith("/root/lab/")
    assert host.run("~/venv/bin/python -c 'import numpy, sys; print(sys.prefix)'") == "/root/venv\n"
    assert "No module named" in host.run("~/venv/bin/python -c 'import orchestrator'", check=False)
    assert "already satisfied" in host.run('~/venv/bin/pip install "numpy"')


def test_a_disk_stays_and_what_is_to_run_at_boot_runs(site: Site) -> None:
    _, host = site.hosts
    host.run("""sleep 1000 > /dev/null 2>&1 & echo '@reboot echo "$(hostname)" > ~/booted' | crontab -""")
    host.power_off()
    assert site.control.run(f"ssh -o ConnectTimeout=1 {host.address} true", check=False).startswith("ssh:")
    host.power_on()
    wait_until(lambda: host.run("cat ~/booted", check=False) == "host2\n", "nothing ran at boot")
    assert not host.processes("sleep 1000")


def test_a_cut_link_is_silent_until_it_is_healed(site: Site) -> None:
    host, _ = site.hosts
    reach = f"ssh -o ConnectTimeout=1 {host.address} true"
    host.link.cut()
    assert "timed out" in site.control.run(reach, check=False)
    host.link.heal()
    site.control.run(reach)


def test_nothing_is_left_when_the_block_ends_with_an_error() -> None:
    with pytest.raises(ZeroDivisionError) as stopped:
        _fail_on_a_site()
    host, processes = stopped.value.args
    assert processes
    assert not any(map(psutil.Process.is_running, processes))
    assert not host.disk.exists()
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert host.link.namespace not in spaces


def _fail_on_a_site() -> None:
    """Start something on a host and fail. Raises: ZeroDivisionError with the host and its processes."""
    with started_site(num_hosts=1) as site:
        (host,) = site.hosts
        host.start("setsid sleep 1000")
        wait_until(lambda: bool(host.processes("sleep 1000")), "the process is not seen")
        raise ZeroDivisionError(host, host.processes(""))
