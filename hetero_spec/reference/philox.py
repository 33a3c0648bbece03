# SPDX-License-Identifier: Apache-2.0
"""Counter-based random numbers: Philox4x32-10, and one uniform of 53 bits per (seed, position, stream).

Source
------
Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011), section 3.3;
constants of their table 2.
"""

from enum import IntEnum

_MULTIPLIER_0 = 0xD2511F53
_MULTIPLIER_1 = 0xCD9E8D57
_WEYL_0 = 0x9E3779B9  # golden ratio
_WEYL_1 = 0xBB67AE85  # sqrt(3) - 1
_NUM_ROUNDS = 10
_MASK = 0xFFFFFFFF


class Stream(IntEnum):
    """Third word of the counter: what a number is used for. Two uses never share a number."""

    PROPOSE = 0
    ACCEPT = 1
    RESAMPLE = 2
    LEAK = 3
    REDRAW = 4


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four 32-bit words for a counter of four words and a key of two."""
    x0, x1, x2, x3 = counter
    key_0, key_1 = key
    for _ in range(_NUM_ROUNDS):
        product_0 = _MULTIPLIER_0 * x0
        product_1 = _MULTIPLIER_1 * x2
        high_0, low_0 = product_0 >> 32, product_0 & _MASK
        high_1, low_1 = product_1 >> 32, product_1 & _MASK
        x0, x1, x2, x3 = high_1 ^ x1 ^ key_0, low_1, high_0 ^ x3 ^ key_1, low_0
        key_0 = (key_0 + _WEYL_0) & _MASK
        key_1 = (key_1 + _WEYL_1) & _MASK
    return x0, x1, x2, x3


def uniform(seed: int, position: int, stream: int) -> float:
    """Return the number in [0, 1) of (seed, position, stream); seed and position count modulo 2**64."""
    counter = (position & _MASK, (position >> 32) & _MASK, stream, 0)
    key = (seed & _MASK, (seed >> 32) & _MASK)
    x0, x1, _, _ = philox4x32(counter, key)
    return float(((x0 << 32) | x1) >> 11) * 2.0**-53
