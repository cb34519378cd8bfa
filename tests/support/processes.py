"""Ranks that tests start as processes, and what these print."""

import json
import socket
import subprocess


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def said(processes, statuses):
    """Return what processes printed as JSON, one line each."""
    lines = []
    for process, status in zip(processes, statuses, strict=True):
        out, error = process.communicate(timeout=900)
        assert process.returncode == status, error[-3000:]
        lines += [json.loads(each) for each in out.splitlines() if each.startswith("{")]
    return lines


def start(*command):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
