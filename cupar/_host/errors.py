"""Errors that compiled code raises: it passes numbers, and the message is made when Python shows it."""

from __future__ import annotations

from ctypes import byref, c_char_p

from .._device import driver


class LaunchError(driver.DriverError):
    """The CUDA driver refused a call that compiled code made."""

    __module__ = "cupar"

    def __init__(self, subject: str, calls: str, status: int) -> None:
        self.args: tuple[str, str, int] = (subject, calls, status)

    def __str__(self) -> str:
        subject, calls, status = self.args
        text = c_char_p()
        driver.library().cuGetErrorName(int(status) & 0xFFFFFFFF, byref(text))
        name = text.value.decode() if text.value else "an unknown error"
        call = calls.split(", ")[int(status) >> 32]
        return f"{subject}, from compiled code: {call}: {name} ({int(status) & 0xFFFFFFFF})"
