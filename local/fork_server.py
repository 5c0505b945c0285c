"""The part of the fork server that runs inside a function's process. `local.forking` puts its text there.

It may use nothing but the standard library, and nothing from outside its own body.
"""
# ruff: noqa: PLC0415, D103 - the imports travel with the text


def serve_forks() -> None:
    import json
    import os
    import signal
    import sys
    from pathlib import Path

    # The kernel buries the forks; nobody here waits for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if "boto3" in sys.modules:
        # Parses the service's description once, here, and not again in every fork. Opens no connection.
        sys.modules["boto3"].client("dynamodb")
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid:
            os.write(1, json.dumps({"pid": pid}).encode() + b"\n")
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        folder = Path(json.loads(line)["folder"])
        # The file objects stay, because loggers hold on to them; what changes is where they lead.
        for descriptor, name, mode in ((1, "out", os.O_WRONLY), (2, "err", os.O_WRONLY), (0, "in", os.O_RDONLY)):
            opened = os.open(folder / name, mode)
            os.dup2(opened, descriptor)
            os.close(opened)
        sys.stdin = os.fdopen(0, closefd=False)
        return
    sys.exit(0)
