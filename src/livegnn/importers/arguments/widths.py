"""Finds the widths of a module's inputs, if neither data nor the caller gives them, by calling the module.

Each unknown width is set to a large prime. The call fails at the first operation that combines such a width
with a parameter of another width, and the failure shows the right width. This finds widths also behind
activations, dropout and concatenations, from the first layer that depends on them.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import product
from math import prod

import torch
from torch.overrides import TorchFunctionMode

from livegnn.errors import ModelError

_PRIMES = (
    *(100_003, 110_017, 120_011, 130_003, 140_009, 150_001, 160_001, 170_003, 180_001, 190_027),
    *(210_011, 230_003, 250_007, 270_001),
)
"""Far enough apart to identify a width in a sum of copies of it and a rest of other channels."""
_REST = 5000
_PRODUCTS = frozenset({"matmul", "mm", "addmm", "__matmul__", "bmm"})


class _FoundWidth(Exception):
    """A width: the prime that was used for it, and its value. alone: whether it is not a part of a row."""

    def __init__(self, prime: int, width: int, *, alone: bool = True) -> None:
        self.prime, self.width, self.alone = prime, width, alone


class Undiscovered(Exception):
    """A module fails with any widths. unsure: the keys of widths that no layer shows, or only a layer that
    reads them beside others."""

    def __init__(self, unsure: Collection[Hashable]) -> None:
        super().__init__()
        self.unsure = frozenset(unsure)


class _Watch(TorchFunctionMode):
    """Raises `_FoundWidth` if an operation fails because a prime was combined with a known width."""

    def __init__(self, primes: Sequence[int]) -> None:
        super().__init__()
        self.primes = primes

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        try:
            return func(*args, **(kwargs or {}))
        except RuntimeError:
            is_product = getattr(func, "__name__", "") in _PRODUCTS
            given = [*args, *(kwargs or {}).values()]
            tensors = [one for one in given if isinstance(one, torch.Tensor) and one.dim()]
            for row in tensors:
                for prime in self.primes:
                    for other in tensors:
                        place = -2 if is_product and other.dim() > 1 else -1
                        width = _solve(row.shape[-1], other.shape[place], prime)
                        if other is not row and width is not None:
                            raise _FoundWidth(prime, width, alone=row.shape[-1] == prime) from None
            self._look_at_view(func, given)
            raise

    def _look_at_view(self, func: object, given: Sequence[object]) -> None:
        """Raises `_FoundWidth` if a parameter is viewed in the shape of an input, which gives the width."""
        if getattr(func, "__name__", "") not in ("view", "reshape") or not isinstance(given[0], torch.Tensor):
            return
        sizes = [size for one in given[1:] for size in (one if isinstance(one, tuple | list) else (one,))]
        for prime in self.primes:
            if sizes.count(prime) == 1 and -1 not in sizes:
                others = prod(int(size) for size in sizes if size != prime)
                if others and given[0].numel() % others == 0:
                    raise _FoundWidth(prime, given[0].numel() // others) from None


def _solve(size: int, expected: int, prime: int) -> int | None:
    """The width w, if ``size = copies * prime + rest`` and ``expected = copies * w + rest``; or None."""
    copies, rest = divmod(size, prime)
    if copies == 0 or rest >= _REST or expected >= _PRIMES[0] or (expected - rest) % copies:
        return None
    width = (expected - rest) // copies
    return width if width > 0 else None


def discover(
    unknown: Sequence[Hashable],
    call: Callable[[Mapping[Hashable, int]], object],
    candidates: Collection[int] = (),
) -> dict[Hashable, int]:
    """The unknown widths by their keys. call: calls the module, given a width for each key.

    candidates: widths in the module; if a module checks widths by itself, the smallest candidates with which
    it works are used. Raises `ModelError` if there are too many unknown widths, and `Undiscovered` if the
    module fails.
    """
    primes = dict(zip(unknown, _PRIMES, strict=False))
    if len(primes) < len(unknown):
        raise ModelError(f"the widths of {len(unknown)} inputs are unknown: give data, or in_channels")
    widths: dict[Hashable, int] = {}
    unsure: set[Hashable] = set()
    while True:
        left = {key: prime for key, prime in primes.items() if key not in widths}
        try:
            with _Watch(list(left.values())):
                call({**left, **widths})
        except _FoundWidth as found:
            key = next(key for key, prime in left.items() if prime == found.prime)
            widths[key] = found.width
            unsure |= set() if found.alone else {key}
            continue
        except Exception as error:
            tried = _try(list(left), call, widths, candidates)
            if tried is None:
                raise Undiscovered({*left, *unsure}) from error
            return tried
        return widths


_TRIALS = 400


def _try(
    left: Sequence[Hashable],
    call: Callable[[Mapping[Hashable, int]], object],
    widths: Mapping[Hashable, int],
    candidates: Collection[int],
) -> dict[Hashable, int] | None:
    """The first candidates with which the module works; 1 is tried last, since it broadcasts to any width."""
    if not left or len(candidates) ** len(left) > _TRIALS:
        return None
    for chosen in product(sorted(candidates, key=lambda width: (width == 1, width)), repeat=len(left)):
        trial = {**widths, **dict(zip(left, chosen, strict=True))}
        try:
            call(trial)
        except Exception:
            continue
        return trial
    return None
