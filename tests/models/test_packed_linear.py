# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from torch import nn

from hetero_spec.models.packed_linear import PackedLinear, can_pack, pack_linears

pytestmark = pytest.mark.skipif(not can_pack(), reason="this torch has no oneDNN linear with packed weights")


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 9), (1, 40)])
def test_output_equals_linear_when_packed(shape: tuple[int, int], has_bias: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(96, 130, bias=has_bias)
    rows = torch.randn(*shape, 96)
    expected = linear.double()(rows.double())
    with torch.no_grad():
        actual = PackedLinear(linear.float())(rows)
    # 96 products of numbers around 0.06: float32 sums stay far below 1e-5.
    torch.testing.assert_close(actual.double(), expected.detach(), rtol=0, atol=1e-5)


def test_bfloat16_output_is_close_when_packed() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(64, 48).bfloat16()
    rows = torch.randn(3, 64).bfloat16()
    with torch.no_grad():
        actual = PackedLinear(linear)(rows)
        expected = linear.float()(rows.float())
    assert actual.dtype == torch.bfloat16
    torch.testing.assert_close(actual.float(), expected, rtol=2**-7, atol=2**-7)  # one rounding to 8 bits


def test_only_plain_cpu_linears_are_replaced() -> None:
    class OwnLinear(nn.Linear):
        pass

    model = nn.Sequential(
        nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), OwnLinear(4, 4), nn.Linear(4, 4).half()
    )
    model.requires_grad_(False)
    assert pack_linears(model) == 2
    kinds = [type(module) for module in model.modules() if isinstance(module, (nn.Linear, PackedLinear))]
    assert kinds == [PackedLinear, PackedLinear, OwnLinear, nn.Linear]
    assert pack_linears(model) == 0
