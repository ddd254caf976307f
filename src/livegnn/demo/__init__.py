"""The demo: a real trust network changes, and every member's risk stays equal to a full recomputation."""


def run(
    *,
    headless: bool = False,
    speed: float = 40.0,
    host: str = "127.0.0.1",
    port: int = 8080,
    browser: bool = True,
) -> int:
    """Replay the ratings after the cut-off and verify every prediction at the end; returns the exit status.

    `speed` is in ratings a second; the page at `host`:`port` (or at a free port, if that is taken) can change
    it. After the replay the page stays up until Ctrl-C; `browser` opens it. `headless` replays as fast as
    possible, at a free port, shows only the result, and ends. The status is 0 if every prediction is within
    the promised bound, otherwise 1; 130 if a headless run was interrupted.
    Raises InputError for a speed that is not above 0.
    """
    from livegnn.demo.show import show

    return show(headless=headless, speed=speed, host=host, port=port, browser=browser)
