"""What every test may rely on."""

import signal


def pytest_configure() -> None:
    """Ctrl-C means Ctrl-C, here and in every child: a run in the background of a shell begins with it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
