"""The layers of the transformer (Vaswani and others, 2017), with PyTorch's names of parameters."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from ringup.compiler.tensor.core import DTypeLike
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn import functional as F  # noqa: N812
from ringup.nn import init
from ringup.nn.attention import MultiheadAttention
from ringup.nn.containers import ModuleList
from ringup.nn.dropout import Dropout
from ringup.nn.linear import Linear
from ringup.nn.module import Module
from ringup.nn.norms import LayerNorm

Activation = str | Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


def _activation(value: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(value, str):
        return value
    if value not in ACTIVATIONS:
        raise ValueError(f"activation {value!r}: {' or '.join(ACTIVATIONS)}, or a function")
    return ACTIVATIONS[value]


class _Layer(Module):
    """What layers of both kinds have behind their attention: two matrices, and norms and dropouts."""

    def _setup(
        self,
        width: int,
        hidden: int,
        count: int,
        dropout: float,
        activation: Activation,
        eps: float,
        norm_first: bool,
        bias: bool,
        dtype: DTypeLike | None,
    ) -> None:
        self.linear1 = Linear(width, hidden, bias, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(hidden, width, bias, dtype)
        self.norm_first = norm_first
        for i in range(1, count + 1):
            self.register_module(f"norm{i}", LayerNorm(width, eps, bias=bias, dtype=dtype))
        for i in range(1, count + 1):
            self.register_module(f"dropout{i}", Dropout(dropout))
        self.activation = _activation(activation)

    def _around(self, x: Tensor, place: int, block: Callable[[Tensor], Tensor]) -> Tensor:
        """Return x plus a block of it, with the norm of that place before or after."""
        norm, dropout = vars(self)[f"norm{place}"], vars(self)[f"dropout{place}"]
        made: Tensor = x + dropout(block(norm(x))) if self.norm_first else norm(x + dropout(block(x)))
        return made

    def _forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return made


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, then two matrices."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make a layer; with `norm_first` norms stand before the blocks."""
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)
        self._setup(d_model, dim_feedforward, 2, dropout, activation, layer_norm_eps, norm_first, bias, dtype)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return (L, N, d_model), or (N, L, d_model) with `batch_first`."""

        def attend(x: Tensor) -> Tensor:
            made: Tensor = self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0]
            return made

        return self._around(self._around(src, 1, attend), 2, self._forward)


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself and to a memory, then two matrices."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make a layer; with `norm_first` norms stand before the blocks."""
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)
        self._setup(d_model, dim_feedforward, 3, dropout, activation, layer_norm_eps, norm_first, bias, dtype)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return (L, N, d_model), or (N, L, d_model) with `batch_first`."""

        def attend(x: Tensor) -> Tensor:
            made: Tensor = self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]
            return made

        def look(x: Tensor) -> Tensor:
            made: Tensor = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask, is_causal=memory_is_causal
            )[0]
            return made

        return self._around(self._around(self._around(tgt, 1, attend), 2, look), 3, self._forward)


class TransformerEncoder(Module):
    """Copies of an encoder layer one after the other, then a norm."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        """Take the layer that is copied."""
        self.layers = ModuleList(deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return what the last layer gives."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Copies of a decoder layer one after the other, then a norm."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        """Take the layer that is copied."""
        self.layers = ModuleList(deepcopy(decoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt: Tensor, memory: Tensor, *masks: Any, **options: Any) -> Tensor:
        """Return what the last layer gives; masks are those of `TransformerDecoderLayer`."""
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, **options)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder, and a decoder that looks at what it gives."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make both; matrices are drawn by Glorot and Bengio's rule."""
        options = (dropout, activation, layer_norm_eps, batch_first, norm_first, bias, dtype)
        encoder = TransformerEncoderLayer(d_model, nhead, dim_feedforward, *options)
        decoder = TransformerDecoderLayer(d_model, nhead, dim_feedforward, *options)
        norms = [LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype) for _ in range(2)]
        self.encoder = TransformerEncoder(encoder, num_encoder_layers, norms[0])
        self.decoder = TransformerDecoder(decoder, num_decoder_layers, norms[1])
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for one in self.parameters():
            if one.ndim > 1:
                init.xavier_uniform_(one)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Return what the decoder makes of `tgt` and the encoded `src`."""
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        made: Tensor = self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return made

    @staticmethod
    def generate_square_subsequent_mask(sz: int) -> Tensor:
        """Return the causal mask that is added: minus infinity where a key comes later."""
        seen = Tensor.ones(sz, sz, dtype="bool").tril()
        return seen.where(Tensor.zeros(sz, sz), float("-inf"))
