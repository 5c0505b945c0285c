"""What a program needs of its own process before it starts a local cloud or a race."""

import resource
import signal


def allow_open_files(wanted: int) -> None:
    """Raise this process's limit of open files to `wanted`, or as near as the system lets it."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    # Never to "infinity": macOS grants that and then refuses it.
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def stop_on_signals() -> None:
    """Make SIGTERM stop this program the way Ctrl-C does, with everything cleaned up.

    Set for SIGINT too: a shell starts what runs in its background with SIGINT ignored.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
