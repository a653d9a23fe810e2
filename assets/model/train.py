# SPDX-License-Identifier: MIT
"""Trains the bundled model from scratch on one CPU thread and writes village.gguf.

    /usr/bin/python3 assets/model/train.py                    train (or resume), evaluate, export
    /usr/bin/python3 assets/model/train.py --export-only F    export the newest checkpoint to F

Run from the repository root after building kvlab-cli. Checkpoints go to build/model and are picked
up again by the same command; delete the folder to start over. README.md here explains the recipe.
"""

import argparse
import csv
import json
import math
import os
import shutil
import subprocess
import sys
import time

# Both must be set before torch is loaded. Debian's build chooses AVX2 by default, and more than one
# OpenMP thread was slower than one on small matrices and shared cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# OpenBLAS falls back to a kernel of 2004 on virtual machines whose CPU model it does not know
# (seen: a quarter of the speed), so the kernel is named here by what the CPU can do.
_FLAGS = open("/proc/cpuinfo").read() if os.path.exists("/proc/cpuinfo") else ""
if "avx512f" in _FLAGS:
    os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx512")
    core = "Cooperlake" if "avx512_bf16" in _FLAGS else "SkylakeX"
    os.environ.setdefault("OPENBLAS_CORETYPE", core)
elif "avx2" in _FLAGS:
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")

import numpy as np
import torch
import torch.nn.functional as F

from export_gguf import interleave_rows, write_gguf
from village_tokenizer import EOS_ID, Tokenizer, train_tokenizer

CONFIG = dict(
    num_layers=4,
    d_model=128,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    d_ff=320,
    context_length=2304,
    rope_base=1e6,
    norm_epsilon=1e-5,
)
TOKENS_PER_WORD = 1.26

# (tokens per document, documents per step, steps, helper losses on?)
# The last third of the work is plain next-token training: no helper loss, every token counts the
# same. A step of several shapes takes them in turn.
STAGES = [
    dict(name="short", shapes=[(96, 16)], steps=1000, plain=False),
    dict(name="medium", shapes=[(512, 3)], steps=1000, plain=False),
    dict(name="long", shapes=[(1024, 2), (1024, 2), (2304, 1), (512, 3)], steps=1300, plain=False),
    dict(name="plain", shapes=[(1024, 2), (2304, 1), (512, 3)], steps=1100, plain=True),
]
PEAK_LR = 1.2e-3
# The guided query heads, whatever number of K/V heads they share: layer, query heads.
GATHER = (1, (0, 1))
RETRIEVAL = (2, (2, 3))
SINK_LAYERS = (1, 2, 3)


# ---------------------------------------------------------------------------------------- corpus


def corpus_documents(binary, num_documents, words, seed, first=0, layout="mixed", extra=()):
    """Yields corpus documents (dicts of text and spans) from kvlab-cli corpus."""
    command = [
        binary,
        "corpus",
        "--documents",
        str(num_documents),
        "--doc-words",
        str(words),
        "--doc-layout",
        layout,
        "--seed",
        str(seed),
        "--first",
        str(first),
        *extra,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            yield json.loads(line)
    finally:
        process.stdout.close()
        process.terminate()
        process.wait()


TRAINING_MIX = ("--updates", "30", "--unanswerable", "20")


class Example:
    """A tokenised document: ids, which tokens are answer values, and where the helper losses want
    attention. Token t predicts token t + 1."""

    def __init__(self, tokenizer, document, length):
        ids, ranges = tokenizer.encode_with_offsets(document["text"])
        ids.append(EOS_ID)
        self.ids = ids[:length]
        begins = np.array([r[0] for r in ranges])
        ends = np.array([r[1] for r in ranges])
        # A piece holds the space in front of its word, which belongs to no span.
        starts_with_space = np.array([document["text"][b : b + 1] == " " for b in begins])
        word_begins = begins + starts_with_space

        def tokens_in(char_range):
            begin, end = char_range
            if begin == end:
                return []
            hit = np.nonzero((word_begins < end) & (ends > begin) & (word_begins < ends))[0]
            return [int(t) for t in hit if 0 < t < len(self.ids)]

        def question_mark_before(token):
            while token > 0 and not document["text"][begins[token] : ends[token]].endswith("?"):
                token -= 1
            return token

        self.value_tokens = set()
        self.refusal_tokens = set()
        self.gather = []  # (token, tokens it should look at)
        self.retrieve = []
        self.questions = []  # (value tokens, distance to the fact, span)
        spans = document["spans"]
        tokens = [(tokens_in(s["key"]), tokens_in(s["value"])) for s in spans]
        occurrences = {}  # fact index -> token lists of its value so far
        for span, (key, value) in zip(spans, tokens):
            complete = value and word_begins[value[0]] == span["value"][0]
            complete = complete and ends[value[-1]] >= span["value"][1]
            if span["kind"] == "fact":
                occurrences[span["fact"]] = [value]
                for token in value:
                    self.gather.append((token, key))
            elif span["kind"] == "answer" and value and complete:
                self.value_tokens.update(value)
                known = occurrences.get(span["fact"])
                # The first word of the answer says whether there is one, so the look-up happens at
                # the question mark: to the value if it was told, to the first token if not. Without
                # this two seeds of three never learned to refuse.
                ask = question_mark_before(value[0] - 1)
                self.gather.append((ask, key))
                self.retrieve.append((ask, [t for v in known for t in v] if known else [0]))
                if known:
                    for i, token in enumerate(value):
                        targets = [v[i] for v in known if i < len(v)]
                        self.gather.append((token - 1, key))
                        self.retrieve.append((token - 1, targets))
                    self.questions.append((value, value[0] - known[0][0], span))
                    known.append(value)
                else:
                    self.refusal_tokens.update(value)
                    self.questions.append((value, None, span))
        # Sentence ends, where positions may jump.
        text = document["text"]
        self.breaks = [
            t + 1
            for t in range(1, min(len(ranges), len(self.ids)) - 1)
            if text[ends[t] - 1 : ends[t]] in ".?"
        ]


class Batch:
    """Tensors of one step. ids and weights are [B, T]; padding has weight 0."""

    def __init__(self, examples, length, rng, skip_share):
        size = len(examples)
        self.ids = torch.full((size, length), EOS_ID, dtype=torch.long)
        self.is_value = torch.zeros(size, length, dtype=torch.bool)
        self.is_refusal = torch.zeros(size, length, dtype=torch.bool)
        self.is_real = torch.zeros(size, length, dtype=torch.bool)
        positions = np.tile(np.arange(length), (size, 1))
        for b, example in enumerate(examples):
            n = len(example.ids)
            self.ids[b, :n] = torch.tensor(example.ids)
            self.is_real[b, :n] = True
            self.is_value[b, list(example.value_tokens)] = True
            self.is_refusal[b, list(example.refusal_tokens)] = True
            room = CONFIG["context_length"] - length
            if room > 0 and example.breaks and rng.random() < skip_share:
                jumps = np.zeros(length, dtype=np.int64)
                count = int(rng.integers(1, 4))
                where = rng.choice(example.breaks, size=count)
                sizes = rng.multinomial(int(rng.integers(0, room)), np.ones(count) / count)
                np.add.at(jumps, where, sizes)
                positions[b] += np.cumsum(jumps)
        self.positions = torch.tensor(positions)
        self.gather = [self._pairs(e.gather, length) for e in examples]
        self.retrieve = [self._pairs(e.retrieve, length) for e in examples]

    @staticmethod
    def _pairs(pairs, length):
        pairs = [(q, [t for t in ts if t <= q]) for q, ts in pairs if q < length]
        pairs = [(q, ts) for q, ts in pairs if ts]
        rows = torch.tensor([q for q, _ in pairs], dtype=torch.long)
        mask = torch.zeros(len(pairs), length, dtype=torch.bool)
        for i, (_, targets) in enumerate(pairs):
            mask[i, targets] = True
        return rows, mask


# ----------------------------------------------------------------------------------------- model


def init_parameters(seed):
    generator = torch.Generator().manual_seed(seed)
    c = CONFIG

    def normal(rows, columns, scale):
        return (torch.randn(rows, columns, generator=generator) * scale).requires_grad_()

    d = c["d_model"]
    width, kv_width = c["num_heads"] * c["head_dim"], c["num_kv_heads"] * c["head_dim"]
    p = {"token_embd.weight": normal(VOCAB["size"], d, 0.1)}
    # Small, so that at first the residual stream is the token itself and copying is easy to find.
    residual = 0.02
    for layer in range(c["num_layers"]):
        name = f"blk.{layer}."
        p[name + "attn_norm.weight"] = torch.ones(d, requires_grad=True)
        p[name + "attn_q.weight"] = normal(width, d, d**-0.5)
        p[name + "attn_k.weight"] = normal(kv_width, d, d**-0.5)
        p[name + "attn_v.weight"] = normal(kv_width, d, d**-0.5)
        p[name + "attn_output.weight"] = normal(d, width, width**-0.5 * residual)
        p[name + "ffn_norm.weight"] = torch.ones(d, requires_grad=True)
        p[name + "ffn_gate.weight"] = normal(c["d_ff"], d, d**-0.5)
        p[name + "ffn_up.weight"] = normal(c["d_ff"], d, d**-0.5)
        p[name + "ffn_down.weight"] = normal(d, c["d_ff"], c["d_ff"] ** -0.5 * residual)
    p["output_norm.weight"] = torch.ones(d, requires_grad=True)
    return p


VOCAB = {"size": 1536}


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + CONFIG["norm_epsilon"]) * weight


def rope(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


_CAUSAL = torch.full((512, 512), float("-inf")).triu(1)


def attend(q, k, v):
    """q [B, Hkv, G, T, D], k and v [B, Hkv, T, D] -> [B, Hkv, G, T, D]. Query chunks see only the
    keys up to their end, which halves the work of long documents."""
    batch, kv_heads, group, length, dim = q.shape
    chunk = 256 if length > 256 else length
    outputs = []
    for begin in range(0, length, chunk):
        end = min(begin + chunk, length)
        rows = q[:, :, :, begin:end].reshape(batch, kv_heads, group * (end - begin), dim)
        scores = rows @ k[:, :, :end].transpose(-1, -2)
        scores = scores.view(batch, kv_heads, group, end - begin, end)
        mask = _CAUSAL[: end - begin, : end - begin]
        if begin > 0:
            mask = F.pad(mask, (begin, 0))
        weights = torch.softmax(scores + mask, -1)
        out = weights.view(batch, kv_heads, group * (end - begin), end) @ v[:, :, :end]
        outputs.append(out.view(batch, kv_heads, group, end - begin, dim))
    return torch.cat(outputs, 3) if len(outputs) > 1 else outputs[0]


def forward(p, ids, positions, keep=None):
    """ids, positions [B, T] -> normalised hidden states [B, T, d]. keep: dict that receives (q, k)
    of each layer, q already divided by sqrt(head_dim)."""
    c = CONFIG
    batch, length = ids.shape
    kv_heads, dim = c["num_kv_heads"], c["head_dim"]
    group = c["num_heads"] // kv_heads
    frequency = c["rope_base"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = positions.double().unsqueeze(-1) * frequency
    cos, sin = angle.cos().float().unsqueeze(1), angle.sin().float().unsqueeze(1)
    x = F.embedding(ids, p["token_embd.weight"])
    for layer in range(c["num_layers"]):
        name = f"blk.{layer}."
        h = rms_norm(x, p[name + "attn_norm.weight"])
        q = F.linear(h, p[name + "attn_q.weight"]).view(batch, length, -1, dim).transpose(1, 2)
        k = F.linear(h, p[name + "attn_k.weight"]).view(batch, length, -1, dim).transpose(1, 2)
        v = F.linear(h, p[name + "attn_v.weight"]).view(batch, length, -1, dim).transpose(1, 2)
        q = rope(q, cos, sin) * dim**-0.5
        k = rope(k, cos, sin)
        if keep is not None:
            keep[layer] = (q, k)
        out = attend(q.reshape(batch, kv_heads, group, length, dim), k, v.contiguous())
        out = out.reshape(batch, kv_heads * group, length, dim).transpose(1, 2)
        x = x + F.linear(out.reshape(batch, length, -1), p[name + "attn_output.weight"])
        h = rms_norm(x, p[name + "ffn_norm.weight"])
        gate = F.silu(F.linear(h, p[name + "ffn_gate.weight"]))
        x = x + F.linear(gate * F.linear(h, p[name + "ffn_up.weight"]), p[name + "ffn_down.weight"])
    return rms_norm(x, p["output_norm.weight"])


# ---------------------------------------------------------------------------------------- losses


def guided_attention(kept, pairs_per_document, guided, every_token):
    """Pulls two query heads of a layer to the wanted tokens: mean -log(mass on all of them), or with
    every_token the mean of -log(mass) per wanted token, which rewards an even split. Without it a
    key of two words was often represented by one of them and confused with its neighbours."""
    layer, heads = guided
    q, k = kept[layer]
    group = CONFIG["num_heads"] // CONFIG["num_kv_heads"]
    kv_heads = [head // group for head in heads]
    length = k.shape[2]
    terms = []
    for b, (rows, wanted) in enumerate(pairs_per_document):
        if len(rows) == 0:
            continue
        queries = q[b, heads[0] : heads[-1] + 1, rows]  # [G, R, D]
        scores = queries @ k[b, kv_heads].transpose(-1, -2)
        future = torch.arange(length)[None, :] > rows[:, None]
        scores = scores.masked_fill(future, float("-inf"))
        total = torch.logsumexp(scores, -1)
        if every_token:
            mass = scores.masked_fill(~wanted, 0.0).sum(-1) / wanted.sum(-1)
        else:
            mass = torch.logsumexp(scores.masked_fill(~wanted, float("-inf")), -1)
        terms.append((total - mass).reshape(-1))
    return torch.cat(terms).mean() if terms else torch.zeros(())


def sink_loss(kept, rng):
    """Mean -log(p(position 0) + 0.01) over some query positions of layers 1 to 3, all heads."""
    total = 0.0
    for layer in SINK_LAYERS:
        q, k = kept[layer]
        length = k.shape[2]
        group = q.shape[1] // k.shape[1]
        count = min(40, length - 8)
        rows = torch.tensor(rng.choice(np.arange(8, length), size=count, replace=False))
        future = torch.arange(length)[None, :] > rows[:, None]
        queries = q[:, :, rows]
        queries = queries.reshape(q.shape[0], k.shape[1], group * len(rows), -1)
        scores = (queries @ k.transpose(-1, -2)).view(q.shape[0], -1, len(rows), length)
        scores = scores.masked_fill(future, float("-inf"))
        first = torch.softmax(scores, -1)[..., 0]
        total = total - torch.log(first + 0.01).mean()
    return total / len(SINK_LAYERS)


def training_loss(p, batch, guide, sink, other_weight, rng):
    kept = {} if guide > 0 or sink > 0 else None
    hidden = forward(p, batch.ids, batch.positions, kept)
    logits = F.linear(hidden[:, :-1].reshape(-1, hidden.shape[-1]), p["token_embd.weight"])
    nll = F.cross_entropy(logits, batch.ids[:, 1:].reshape(-1), reduction="none")
    value = batch.is_value[:, 1:].reshape(-1)
    real = batch.is_real[:, 1:].reshape(-1)
    weight = real.float() * torch.where(value, torch.tensor(1.0), torch.tensor(other_weight))
    loss = (nll * weight).sum() / weight.sum()
    with torch.no_grad():
        other = real & ~value
        hit = (logits.argmax(-1) == batch.ids[:, 1:].reshape(-1)).float()
        refusal = batch.is_refusal[:, 1:].reshape(-1)
        figures = dict(
            answer_nll=nll[value].mean().item() if value.any() else float("nan"),
            answer_accuracy=hit[value].mean().item() if value.any() else float("nan"),
            refusal_accuracy=hit[refusal].mean().item() if refusal.any() else float("nan"),
            other_nll=nll[other].mean().item(),
        )
    if guide > 0:
        retrieve = guided_attention(kept, batch.retrieve, RETRIEVAL, False)
        gather = guided_attention(kept, batch.gather, GATHER, True)
        figures.update(retrieve=retrieve.item(), gather=gather.item())
        loss = loss + guide * (retrieve + gather)
    if sink > 0:
        term = sink_loss(kept, rng)
        figures.update(sink=term.item())
        loss = loss + sink * term
    return loss, figures


# -------------------------------------------------------------------------------------- schedule


def step_plan():
    """[(stage name, length, batch, plain, progress in 0 ... 1 at the step's start)], progress by
    work rather than by steps because long documents cost more."""
    plan = []
    for stage in STAGES:
        for i in range(stage["steps"]):
            length, size = stage["shapes"][i % len(stage["shapes"])]
            plan.append((stage["name"], length, size, stage["plain"]))
    work = np.cumsum([length * size * (1 + length / 1000) for _, length, size, _ in plan])
    progress = np.concatenate(([0.0], work[:-1])) / work[-1]
    return [entry + (share,) for entry, share in zip(plan, progress)]


def settings_at(plan, step):
    """Learning rate and loss weights of a step."""
    _, _, _, plain, progress = plan[step]
    lr = PEAK_LR * min(1.0, (step + 1) / 100)
    if progress > 0.4:
        lr *= 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (progress - 0.4) / 0.6))
    plain_from = next(e[4] for e in plan if e[3])
    if plain:
        return dict(lr=lr, guide=0.0, sink=0.0, other_weight=1.0)
    remaining = 1 - progress / plain_from
    # Full strength at first, then linearly to zero where plain training begins.
    guide = 0.5 * min(1.0, remaining / 0.6)
    sink = 0.03 * min(1.0, remaining / 0.3)
    return dict(lr=lr, guide=guide, sink=sink if step % 2 == 0 else 0.0, other_weight=0.2)


# ------------------------------------------------------------------------------------ evaluation


def rounded(p):
    """The weights as the file stores them: matrices rounded to f16."""
    return {n: (w.half().float() if w.ndim == 2 else w).detach() for n, w in p.items()}


DISTANCES = [20, 100, 200, 400, 600, 800, 1500]


def evaluate(p, tokenizer, binary, layout, num_documents, length, extra=(), held_out=True):
    """Teacher-forced recall on held-out documents; exact = every value token is the arg max."""
    words = int(length / TOKENS_PER_WORD * 0.97)
    weights = rounded(p)
    buckets, kinds, nll_other, count_other = {}, {}, 0.0, 0
    flags = ("--held-out",) if held_out else ()
    documents = corpus_documents(
        binary, num_documents, words, seed=1234, layout=layout, extra=(*flags, *extra)
    )
    for document in documents:
        example = Example(tokenizer, document, length)
        ids = torch.tensor([example.ids])
        with torch.no_grad():
            hidden = forward(weights, ids, torch.arange(ids.shape[1])[None])
            logits = F.linear(hidden[0], weights["token_embd.weight"])
            nll = F.cross_entropy(logits[:-1], ids[0, 1:], reduction="none")
        best = logits.argmax(-1)
        is_other = torch.ones(ids.shape[1] - 1, dtype=torch.bool)
        is_other[[t - 1 for t in example.value_tokens]] = False
        nll_other += nll[is_other].sum().item()
        count_other += int(is_other.sum())
        for value, distance, span in example.questions:
            exact = all(best[t - 1] == ids[0, t] for t in value)
            kind = "updated" if span["updated"] else "stated"
            if distance is None:
                kind = "unanswerable"
            kinds.setdefault(kind, []).append(exact)
            kinds.setdefault(span["fact_kind"], []).append(exact)
            if distance is not None:
                edge = max([e for e in DISTANCES if e <= distance], default=0)
                buckets.setdefault(edge, []).append(exact)

    def shares(groups):
        return {str(g): [round(float(np.mean(v)), 4), len(v)] for g, v in sorted(groups.items())}

    every = [hit for hits in buckets.values() for hit in hits]
    return dict(
        layout=layout,
        tokens=length,
        exact=round(float(np.mean(every)), 4) if every else None,
        questions=len(every),
        by_distance=shares(buckets),
        by_kind=shares(kinds),
        other_nll=round(nll_other / max(1, count_other), 4),
    )


def sink_mass(p, tokenizer, binary, num_documents=4, length=1000):
    """Mean attention on position 0 from query positions 450 to 900: {layer: [per query head]}."""
    weights, sums = rounded(p), {}
    words = int(length / TOKENS_PER_WORD * 0.97)
    for document in corpus_documents(binary, num_documents, words, 99, extra=("--held-out",)):
        ids = torch.tensor([Example(tokenizer, document, length).ids])
        kept = {}
        with torch.no_grad():
            forward(weights, ids, torch.arange(ids.shape[1])[None], kept)
        rows = torch.arange(450, min(900, ids.shape[1]))
        for layer, (q, k) in kept.items():
            group = q.shape[1] // k.shape[1]
            scores = q[0][:, rows] @ k[0].repeat_interleave(group, 0).transpose(-1, -2)
            future = torch.arange(k.shape[2])[None, :] > rows[:, None]
            first = torch.softmax(scores.masked_fill(future, float("-inf")), -1)[..., 0].mean(-1)
            sums[layer] = sums.get(layer, 0) + first / num_documents
    return {layer: [round(x, 3) for x in mass.tolist()] for layer, mass in sums.items()}


def sample(p, tokenizer, prompt, num_tokens, temperature, seed):
    weights = rounded(p)
    generator = torch.Generator().manual_seed(seed)
    ids = tokenizer.encode(prompt)
    with torch.no_grad():
        for _ in range(num_tokens):
            row = torch.tensor([ids])
            hidden = forward(weights, row, torch.arange(len(ids))[None])[0, -1]
            logits = F.linear(hidden, weights["token_embd.weight"])
            chance = torch.softmax(logits / temperature, -1)
            ids.append(int(torch.multinomial(chance, 1, generator=generator)))
            if ids[-1] == EOS_ID:
                break
    return tokenizer.decode([i for i in ids[1:] if i != EOS_ID])


# ---------------------------------------------------------------------------------------- export


def export(p, tokenizer, path):
    tensors = {}
    for name, weight in p.items():
        array = weight.detach().numpy()
        if name.endswith("attn_q.weight"):
            array = interleave_rows(array, CONFIG["num_heads"])
        elif name.endswith("attn_k.weight"):
            array = interleave_rows(array, CONFIG["num_kv_heads"])
        tensors[name] = array
    write_gguf(path, CONFIG, tensors, tokenizer.vocabulary())


# ------------------------------------------------------------------------------------------ main


def save_checkpoint(path, state):
    torch.save(state, path + ".partial")
    os.replace(path + ".partial", path)


def load_tokenizer(work_dir, binary):
    path = os.path.join(work_dir, "tokenizer.model")
    if not os.path.exists(path):
        documents = corpus_documents(binary, 3000, 300, seed=7, extra=TRAINING_MIX)
        model = train_tokenizer(document["text"] for document in documents)
        with open(path + ".partial", "wb") as file:
            file.write(model)
        os.replace(path + ".partial", path)
    with open(path, "rb") as file:
        tokenizer = Tokenizer(file.read())
    VOCAB["size"] = len(tokenizer.vocabulary())
    return tokenizer


def find_binary(name):
    found = name or next(
        (
            os.path.join(folder, "kvlab-cli")
            for folder, _, files in os.walk("build")
            if "kvlab-cli" in files
        ),
        None,
    )
    if found is None or not (os.path.exists(found) or shutil.which(found)):
        sys.exit("train.py: kvlab-cli not found under build/; build it or pass --kvlab-cli PATH")
    return found


def document_streams(binary, tokenizer, plan, step, seed):
    """One endless stream of examples per document length; a resumed run skips what it has used."""
    used = {}
    for _, length, size, _, _ in plan[:step]:
        used[length] = used.get(length, 0) + size

    def stream(length):
        words = max(30, int(length / TOKENS_PER_WORD * 0.93))
        documents = corpus_documents(
            binary,
            10_000_000,
            words,
            seed=seed * 10_000 + length,
            first=used.get(length, 0),
            extra=TRAINING_MIX,
        )
        for document in documents:
            yield Example(tokenizer, document, length)

    return {length: stream(length) for length in {entry[1] for entry in plan}}


def report(p, tokenizer, binary, num_documents):
    results = []
    for layout in ("stream", "facts-first"):
        results.append(evaluate(p, tokenizer, binary, layout, num_documents, 1000))
    results.append(evaluate(p, tokenizer, binary, "facts-first", max(2, num_documents // 4), 2304))
    extra = ("--updates", "100", "--unanswerable", "100")
    results.append(evaluate(p, tokenizer, binary, "stream", num_documents, 1000, extra))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kvlab-cli", help="the built kvlab-cli (default: searched under build/)")
    parser.add_argument("--seed", type=int, default=20, help="of weights and training text")
    parser.add_argument("--kv-heads", type=int, default=2, choices=(1, 2, 4))
    parser.add_argument("--work-dir", default="build/model", help="a folder a run, and the tokenizer")
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--log-dir", default=os.path.join(here, "runs"), help="CSV and figures")
    parser.add_argument("--output", help="the finished model (default: in the run's folder)")
    parser.add_argument("--export-only", metavar="FILE", help="export the newest checkpoint")
    parser.add_argument("--evaluate-only", type=int, metavar="N", help="N documents per layout")
    parser.add_argument("--max-steps", type=int, default=10**9, help="stop early, for trials")
    args = parser.parse_args()
    CONFIG["num_kv_heads"] = args.kv_heads
    run = f"kv{args.kv_heads}-seed{args.seed}"
    run_dir = os.path.join(args.work_dir, run)
    output = args.output or os.path.join(run_dir, "village.gguf")

    torch.set_num_threads(1)
    os.makedirs(run_dir, exist_ok=True)
    os.makedirs(args.log_dir, exist_ok=True)
    binary = find_binary(args.kvlab_cli)
    tokenizer = load_tokenizer(args.work_dir, binary)
    p = init_parameters(args.seed)
    matrices = [w for w in p.values() if w.ndim == 2]
    vectors = [w for w in p.values() if w.ndim == 1]
    optimizer = torch.optim.AdamW(
        [dict(params=matrices, weight_decay=0.05), dict(params=vectors, weight_decay=0.0)],
        lr=PEAK_LR,
        betas=(0.9, 0.98),
    )
    plan = step_plan()
    step, seconds, rows = 0, 0.0, []
    checkpoint = os.path.join(run_dir, "checkpoint.pt")
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        with torch.no_grad():
            for name, weight in p.items():
                weight.copy_(state["parameters"][name])
        optimizer.load_state_dict(state["optimizer"])
        step, seconds, rows = state["step"], state["seconds"], state["rows"]
        print(f"resumed at step {step} after {seconds:.0f} s", flush=True)
    if args.export_only:
        export(p, tokenizer, args.export_only)
        return
    if args.evaluate_only:
        for result in report(p, tokenizer, binary, args.evaluate_only):
            print(json.dumps(result))
        return

    print(f"{sum(w.numel() for w in p.values())} parameters, {len(plan)} steps", flush=True)
    streams = document_streams(binary, tokenizer, plan, step, args.seed)
    recent, last_save, tokens_since, begin_since = [], time.time(), 0, time.time()
    fields = ["step", "stage", "length", "seconds", "tokens_per_s", "lr", "guide", "answer_nll"]
    fields += ["answer_accuracy", "refusal_accuracy", "other_nll", "retrieve", "gather", "sink"]
    started = time.time()
    while step < min(len(plan), args.max_steps):
        stage, length, size, plain, _ = plan[step]
        settings = settings_at(plan, step)
        rng = np.random.default_rng([args.seed, step])
        skip_share = 0.0 if plain else 0.4
        batch = Batch([next(streams[length]) for _ in range(size)], length, rng, skip_share)
        for group in optimizer.param_groups:
            group["lr"] = settings["lr"]
        loss, figures = training_loss(
            p, batch, settings["guide"], settings["sink"], settings["other_weight"], rng
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0)
        optimizer.step()
        step += 1
        recent.append(figures)
        tokens_since += length * size
        now = time.time()
        if step % 25 == 0 or step == len(plan):
            mean = {}
            for key in fields[7:]:
                values = [f[key] for f in recent if key in f and not math.isnan(f[key])]
                mean[key] = f"{np.mean(values):.4f}" if values else ""
            row = dict(
                step=step,
                stage=stage,
                length=length,
                seconds=f"{seconds + now - started:.0f}",
                tokens_per_s=f"{tokens_since / (now - begin_since):.0f}",
                lr=f"{settings['lr']:.2e}",
                guide=f"{settings['guide']:.3f}",
                **mean,
            )
            rows.append(row)
            print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)
            recent, tokens_since, begin_since = [], 0, now
        last_of_stage = step == len(plan) or plan[step][0] != stage
        if last_of_stage or now - last_save > 60:
            state = dict(
                parameters={n: w.detach() for n, w in p.items()},
                optimizer=optimizer.state_dict(),
                step=step,
                seconds=seconds + now - started,
                rows=rows,
            )
            save_checkpoint(checkpoint, state)
            if last_of_stage:
                shutil.copyfile(checkpoint, os.path.join(run_dir, f"after-{stage}.pt"))
            with open(os.path.join(args.log_dir, run + ".csv"), "w", newline="") as file:
                writer = csv.DictWriter(file, fields, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            last_save = now
    if step < len(plan):
        return
    for result in report(p, tokenizer, binary, 40):
        print(json.dumps(result), flush=True)
    print("attention on position 0:", sink_mass(p, tokenizer, binary), flush=True)
    for seed in range(4):
        print(repr(sample(p, tokenizer, "A day in the village.\n", 60, 0.8, seed)), flush=True)
    export(p, tokenizer, output)


if __name__ == "__main__":
    main()
