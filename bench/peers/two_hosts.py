# SPDX-License-Identifier: Apache-2.0
# Two hosts of one machine: network namespaces that a pair of virtual interfaces joins, gone when the program ends. Needs
# root and iproute2.
import atexit
import os
import shutil
import subprocess
import sys

PLACES = [("peal-a", "peal-va", "10.77.0.1"), ("peal-b", "peal-vb", "10.77.0.2")]  # namespace, interface, address


def need(program, *words):
    """Ends the program, as skipped, where it is not root's or a word of these is not installed."""
    for word in words:
        if not shutil.which(word) or os.geteuid() != 0:
            print(f"SKIPPED: {program} makes network namespaces: it needs root, and {word} is "
                  f"{'there' if shutil.which(word) else 'not installed'}")
            sys.exit(77)


def call(*words, check=True):
    return subprocess.run([str(word) for word in words], check=check, capture_output=True, text=True)


def remove():
    for space, _, _ in PLACES:
        call("ip", "netns", "del", space, check=False)


def connect():
    remove()
    atexit.register(remove)
    for space, _, _ in PLACES:
        call("ip", "netns", "add", space)
    call("ip", "link", "add", PLACES[0][1], "type", "veth", "peer", "name", PLACES[1][1])
    for space, link, address in PLACES:
        call("ip", "link", "set", link, "netns", space)
        call("ip", "-n", space, "addr", "add", f"{address}/24", "dev", link)
        call("ip", "-n", space, "link", "set", link, "up")
        call("ip", "-n", space, "link", "set", "lo", "up")


def limit(rate):
    """Both directions, to what tc calls a rate: "1gbit"."""
    for space, link, _ in PLACES:
        call("tc", "-n", space, "qdisc", "replace", "dev", link, "root", "tbf", "rate", rate, "burst", "256kb",
             "latency", "20ms")
