# SPDX-License-Identifier: MIT
"""Writes the village model as a GGUF file (version 3, little endian) with NumPy alone."""

import os
import struct

import numpy as np

ALIGNMENT = 32
F32, F16 = 0, 1
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9


def _string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _scalar(kind, value):
    if kind == _STRING:
        return _string(value)
    return struct.pack({_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f", _BOOL: "<?"}[kind], value)


def _entry(key, kind, value):
    return _string(key) + struct.pack("<I", kind) + _scalar(kind, value)


def _array(key, kind, values):
    head = _string(key) + struct.pack("<IIQ", _ARRAY, kind, len(values))
    return head + b"".join(_scalar(kind, value) for value in values)


def interleave_rows(weight, num_heads):
    """[heads * head_dim, d] trained with half-split RoPE pairs (i, i + head_dim / 2) -> rows in the
    order of adjacent pairs (2 i, 2 i + 1), which `llama` files use."""
    rows, columns = weight.shape
    split = weight.reshape(num_heads, 2, rows // num_heads // 2, columns)
    return np.ascontiguousarray(split.transpose(0, 2, 1, 3)).reshape(rows, columns)


def write_gguf(path, config, tensors, vocabulary):
    """config: num_layers, d_model, num_heads, num_kv_heads, head_dim, d_ff, context_length,
    rope_base, norm_epsilon. tensors: {GGUF name: float32 array [out, in] or [n]}; Q and K already
    interleaved. vocabulary: [(piece, score, token type)] by id. Matrices become F16, vectors F32.
    The file appears only when complete."""
    vocab_size = len(vocabulary)
    metadata = [
        _entry("general.architecture", _STRING, "llama"),
        _entry("general.type", _STRING, "model"),
        _entry("general.name", _STRING, "Village 1M"),
        _entry("general.author", _STRING, "the KV Lab contributors"),
        _entry("general.license", _STRING, "MIT"),
        _entry(
            "general.description",
            _STRING,
            "A small teaching model trained from scratch on generated sentences about a village.",
        ),
        _entry("general.alignment", _UINT32, ALIGNMENT),
        _entry("general.file_type", _UINT32, 1),
        _entry("general.quantization_version", _UINT32, 2),
        _entry("llama.context_length", _UINT32, config["context_length"]),
        _entry("llama.embedding_length", _UINT32, config["d_model"]),
        _entry("llama.block_count", _UINT32, config["num_layers"]),
        _entry("llama.feed_forward_length", _UINT32, config["d_ff"]),
        _entry("llama.attention.head_count", _UINT32, config["num_heads"]),
        _entry("llama.attention.head_count_kv", _UINT32, config["num_kv_heads"]),
        _entry("llama.attention.key_length", _UINT32, config["head_dim"]),
        _entry("llama.attention.value_length", _UINT32, config["head_dim"]),
        _entry("llama.attention.layer_norm_rms_epsilon", _FLOAT32, config["norm_epsilon"]),
        _entry("llama.rope.dimension_count", _UINT32, config["head_dim"]),
        _entry("llama.rope.freq_base", _FLOAT32, config["rope_base"]),
        _entry("llama.vocab_size", _UINT32, vocab_size),
        _entry("tokenizer.ggml.model", _STRING, "llama"),
        _array("tokenizer.ggml.tokens", _STRING, [piece for piece, _, _ in vocabulary]),
        _array("tokenizer.ggml.scores", _FLOAT32, [score for _, score, _ in vocabulary]),
        _array("tokenizer.ggml.token_type", _INT32, [kind for _, _, kind in vocabulary]),
        _entry("tokenizer.ggml.bos_token_id", _UINT32, 1),
        _entry("tokenizer.ggml.eos_token_id", _UINT32, 2),
        _entry("tokenizer.ggml.unknown_token_id", _UINT32, 0),
        _entry("tokenizer.ggml.add_bos_token", _BOOL, True),
        _entry("tokenizer.ggml.add_eos_token", _BOOL, False),
        _entry("tokenizer.ggml.add_space_prefix", _BOOL, True),
    ]
    infos, blobs, offset = [], [], 0
    for name, array in tensors.items():
        kind = F32 if array.ndim == 1 else F16
        data = np.ascontiguousarray(array, dtype="<f4" if kind == F32 else "<f2").tobytes()
        # GGUF lists dimensions from the fastest varying one.
        dims = array.shape[::-1]
        infos.append(
            _string(name)
            + struct.pack("<I", len(dims))
            + b"".join(struct.pack("<Q", dim) for dim in dims)
            + struct.pack("<IQ", kind, offset)
        )
        padding = -len(data) % ALIGNMENT
        blobs.append(data + b"\0" * padding)
        offset += len(data) + padding
    head = (
        b"GGUF"
        + struct.pack("<IQQ", 3, len(tensors), len(metadata))
        + b"".join(metadata)
        + b"".join(infos)
    )
    head += b"\0" * (-len(head) % ALIGNMENT)
    partial = path + ".partial"
    with open(partial, "wb") as file:
        file.write(head)
        for blob in blobs:
            file.write(blob)
    os.replace(partial, path)
