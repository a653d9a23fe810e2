# SPDX-License-Identifier: MIT
"""A second, slow implementation of the bundled model, to compare the engine with.

Needs NumPy only and takes everything from the GGUF file: configuration, tokenizer and weights. It
shares no code with train.py or export_gguf.py and computes in float64.

    check_gguf.py village.gguf --tokens 1,5,9     {"logits": [...]} of the last position
    check_gguf.py village.gguf --text "Where?"    {"ids": [...], "pieces": [...], "decoded": "..."}
    check_gguf.py village.gguf --text "Where?" --greedy 20
                                                  also {"continuation": [...]} by arg max
    check_gguf.py village.gguf                    {"metadata": {...}, "tensors": {...}}
"""

import argparse
import json
import struct
import sys

import numpy as np


class GgufError(Exception):
    pass


class GgufFile:
    """Metadata and tensors of a GGUF file, version 2 or 3, little endian, F32 and F16 tensors."""

    _SCALARS = {
        0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
        12: "<d",
    }

    def __init__(self, path):
        with open(path, "rb") as file:
            self._data = file.read()
        self._at = 0
        if self._take(4) != b"GGUF":
            raise GgufError(f"{path}: not a GGUF file")
        version = self._scalar(4)
        if version not in (2, 3):
            raise GgufError(f"{path}: GGUF version {version} is not supported")
        num_tensors, num_entries = self._scalar(10), self._scalar(10)
        self.metadata = {}
        for _ in range(num_entries):
            key = self._text()
            self.metadata[key] = self._value(self._scalar(4))
        infos = []
        for _ in range(num_tensors):
            name = self._text()
            dims = [self._scalar(10) for _ in range(self._scalar(4))]
            infos.append((name, dims, self._scalar(4), self._scalar(10)))
        alignment = self.metadata.get("general.alignment", 32)
        start = -(-self._at // alignment) * alignment
        self.tensors, self.types = {}, {}
        for name, dims, kind, offset in infos:
            if kind not in (0, 1):
                raise GgufError(f"{path}: tensor {name} has type {kind}; only F32 and F16 are read")
            dtype = np.dtype("<f4" if kind == 0 else "<f2")
            end = start + offset + int(np.prod(dims)) * dtype.itemsize
            if offset % alignment or end > len(self._data):
                raise GgufError(f"{path}: tensor {name} lies outside the file")
            flat = np.frombuffer(self._data, dtype, int(np.prod(dims)), start + offset)
            # The first dimension varies fastest.
            self.tensors[name] = flat.reshape(dims[::-1]).astype(np.float64)
            self.types[name] = "F32" if kind == 0 else "F16"

    def _take(self, count):
        if self._at + count > len(self._data):
            raise GgufError("the file ends early")
        piece = self._data[self._at : self._at + count]
        self._at += count
        return piece

    def _scalar(self, kind):
        code = self._SCALARS[kind]
        return struct.unpack(code, self._take(struct.calcsize(code)))[0]

    def _text(self):
        return self._take(self._scalar(10)).decode("utf-8")

    def _value(self, kind):
        if kind == 8:
            return self._text()
        if kind == 9:
            item, count = self._scalar(4), self._scalar(10)
            return [self._value(item) for _ in range(count)]
        if kind not in self._SCALARS:
            raise GgufError(f"unknown metadata type {kind}")
        return self._scalar(kind)


class SentencePieceBpe:
    """`tokenizer.ggml.model = llama`: join the neighbours whose joined text has the best score, the
    leftmost of equals, until nothing joins; what is no piece falls back to its UTF-8 bytes."""

    NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

    def __init__(self, metadata):
        self.pieces = metadata["tokenizer.ggml.tokens"]
        self.scores = metadata["tokenizer.ggml.scores"]
        self.kinds = metadata["tokenizer.ggml.token_type"]
        self.bos = metadata.get("tokenizer.ggml.bos_token_id", 1)
        self.unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
        self.add_bos = metadata.get("tokenizer.ggml.add_bos_token", True)
        self.add_space = metadata.get("tokenizer.ggml.add_space_prefix", True)
        joinable = (self.NORMAL, self.USER)
        self._id_of = {p: i for i, p in enumerate(self.pieces) if self.kinds[i] in joinable}
        self._byte_id = {
            int(p[3:5], 16): i for i, p in enumerate(self.pieces) if self.kinds[i] == self.BYTE
        }

    def encode(self, text):
        ids = [self.bos] if self.add_bos else []
        if not text:
            return ids
        symbols = list(((" " if self.add_space else "") + text).replace(" ", "\u2581"))
        while True:
            best, where = None, -1
            for i in range(len(symbols) - 1):
                token_id = self._id_of.get(symbols[i] + symbols[i + 1])
                if token_id is not None and (best is None or self.scores[token_id] > best):
                    best, where = self.scores[token_id], i
            if where < 0:
                break
            symbols[where : where + 2] = [symbols[where] + symbols[where + 1]]
        for symbol in symbols:
            if symbol in self._id_of:
                ids.append(self._id_of[symbol])
            else:
                ids.extend(self._byte_id.get(byte, self.unknown) for byte in symbol.encode("utf-8"))
        return ids

    def decode(self, ids):
        data = b""
        for token_id in ids:
            if self.kinds[token_id] == self.BYTE:
                data += bytes([int(self.pieces[token_id][3:5], 16)])
            elif self.kinds[token_id] in (self.NORMAL, self.USER):
                data += self.pieces[token_id].replace("\u2581", " ").encode("utf-8")
        if self.add_space and data.startswith(b" "):
            data = data[1:]
        return data.decode("utf-8", errors="replace")


class Llama:
    """Dense float64 forward pass of the `llama` architecture."""

    def __init__(self, gguf):
        meta, self._tensors = gguf.metadata, gguf.tensors
        if meta.get("general.architecture") != "llama":
            raise GgufError("the architecture is not llama")
        self.num_layers = meta["llama.block_count"]
        self.num_heads = meta["llama.attention.head_count"]
        self.num_kv_heads = meta.get("llama.attention.head_count_kv", self.num_heads)
        width = meta["llama.embedding_length"]
        self.head_dim = meta.get("llama.attention.key_length", width // self.num_heads)
        self.rope_dim = meta.get("llama.rope.dimension_count", self.head_dim)
        self.rope_base = meta.get("llama.rope.freq_base", 10000.0)
        self.epsilon = meta["llama.attention.layer_norm_rms_epsilon"]
        self.context_length = meta["llama.context_length"]

    def _norm(self, x, name):
        scale = np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.epsilon)
        return x / scale * self._tensors[name]

    def _rotate(self, heads):
        """heads [T, H, D]: the pair (2 i, 2 i + 1) at position t turns by t * base^(-2 i / dim)."""
        num_tokens = heads.shape[0]
        pair = np.arange(self.rope_dim // 2)
        angle = np.arange(num_tokens)[:, None] * self.rope_base ** (-2.0 * pair / self.rope_dim)
        turned = heads.copy()
        as_complex = heads[..., 0 : self.rope_dim : 2] + 1j * heads[..., 1 : self.rope_dim : 2]
        as_complex = as_complex * np.exp(1j * angle)[:, None, :]
        turned[..., 0 : self.rope_dim : 2] = as_complex.real
        turned[..., 1 : self.rope_dim : 2] = as_complex.imag
        return turned

    def logits(self, ids):
        """Logits [T, vocabulary] of every position."""
        get = self._tensors
        num_tokens, group = len(ids), self.num_heads // self.num_kv_heads
        x = get["token_embd.weight"][np.asarray(ids)]
        causal = np.tril(np.ones((num_tokens, num_tokens), dtype=bool))
        for layer in range(self.num_layers):
            at = f"blk.{layer}."
            h = self._norm(x, at + "attn_norm.weight")
            q = (h @ get[at + "attn_q.weight"].T).reshape(num_tokens, self.num_heads, -1)
            k = (h @ get[at + "attn_k.weight"].T).reshape(num_tokens, self.num_kv_heads, -1)
            v = (h @ get[at + "attn_v.weight"].T).reshape(num_tokens, self.num_kv_heads, -1)
            q, k = self._rotate(q), self._rotate(k)
            mixed = np.empty((num_tokens, self.num_heads, v.shape[-1]))
            for head in range(self.num_heads):
                scores = q[:, head] @ k[:, head // group].T / np.sqrt(self.head_dim)
                scores = np.where(causal, scores, -np.inf)
                scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
                scores /= scores.sum(axis=-1, keepdims=True)
                mixed[:, head] = scores @ v[:, head // group]
            x = x + mixed.reshape(num_tokens, -1) @ get[at + "attn_output.weight"].T
            h = self._norm(x, at + "ffn_norm.weight")
            gate = h @ get[at + "ffn_gate.weight"].T
            gate = gate / (1 + np.exp(-gate))
            x = x + (gate * (h @ get[at + "ffn_up.weight"].T)) @ get[at + "ffn_down.weight"].T
        head_weight = get.get("output.weight", get["token_embd.weight"])
        return self._norm(x, "output_norm.weight") @ head_weight.T


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    parser.add_argument("--tokens", help="comma-separated token ids, begin token included")
    parser.add_argument("--text")
    parser.add_argument("--greedy", type=int, default=0, metavar="N")
    args = parser.parse_args()
    gguf = GgufFile(args.file)
    result = {}
    if args.text is None and args.tokens is None:
        short = {k: v for k, v in gguf.metadata.items() if not isinstance(v, list)}
        shapes = {n: [gguf.types[n], list(t.shape)] for n, t in gguf.tensors.items()}
        print(json.dumps(dict(metadata=short, tensors=shapes), indent=1))
        return
    model, tokenizer = Llama(gguf), SentencePieceBpe(gguf.metadata)
    if args.text is not None:
        ids = tokenizer.encode(args.text)
        result["ids"] = ids
        result["pieces"] = [tokenizer.pieces[i] for i in ids]
        result["decoded"] = tokenizer.decode(ids)
    if args.tokens is not None:
        ids = [int(i) for i in args.tokens.split(",")]
        if not ids or min(ids) < 0 or max(ids) >= len(tokenizer.pieces):
            raise GgufError(f"token ids lie in 0 ... {len(tokenizer.pieces) - 1}")
        result["logits"] = model.logits(ids)[-1].tolist()
    if args.greedy > 0:
        row = list(ids)
        for _ in range(args.greedy):
            row.append(int(model.logits(row)[-1].argmax()))
        result["continuation"] = row[len(ids) :]
        result["continuation_text"] = tokenizer.decode(row)
    print(json.dumps(result))


if __name__ == "__main__":
    try:
        main()
    except (GgufError, OSError, ValueError) as error:
        sys.exit(f"check_gguf.py: {error}")
