# SPDX-License-Identifier: MIT
"""What the village model forgets when its KV cache is cut: a simulation apart from the engine.

    /usr/bin/python3 assets/model/simulate_eviction.py village.gguf|checkpoint.pt
                     [--tokenizer tokenizer.model] [--documents 20] [--tokens 1000] [--json F]
    /usr/bin/python3 assets/model/simulate_eviction.py --self-check

Held-out documents run token by token, their own text forced, several side by side. Positions keep
their original RoPE angles. After each token a plane (layer, KV head) that holds more than its
budget drops one token:

  recent    the oldest
  sink      the oldest but the first four
  h2o       of those that are neither among the first four nor among the last budget / 2 tokens,
            the one with the lowest score: attention probability received so far, not normalised,
            a KV head's score summed over its query heads. Granularity head: each plane decides for
            itself; layer: the scores of a layer's heads are added and its heads drop the same
            token; token: the scores of all planes are added and all drop the same token

A budget is a percentage of the document's length, fixed from its start. The rules are those of H2O
(arXiv:2306.14048, section 4) and StreamingLLM (arXiv:2309.17453, section 3.2). An answer is exact
when every token of its value is the arg max; the mean negative log-likelihood is that of tokens
that are no answer's value, in the second half of each document, where budgets have begun to bite.

Needs the packages of train.py. --self-check compares the simulation with a plain one, written with
loops and lists in float64, on tiny random models.
"""

import argparse
import json
import math
import os
import sys
import time
from collections import namedtuple

if __name__ == "__main__":
    import train  # before torch: it sets what torch reads from the environment when it is loaded

import numpy as np
import torch
import torch.nn.functional as F

NUM_SINKS = 4
DISTANCES = (20, 100, 200, 400, 600, 800, 1500)
BUDGETS = (50.0, 25.0, 12.5)
# Query positions over which attention on position 0 is averaged, as in train.py.
SINK_QUERIES = (450, 900)

# policy: full, recent, sink, h2o or no-first (all but position 0, which goes when the budget is
# reached: what a window loses besides old tokens). granularity: token, layer, head; h2o only.
Setting = namedtuple("Setting", "policy granularity percent")


def settings_of(budgets=BUDGETS):
    plans = [Setting("full", None, 100.0)]
    kinds = [("recent", None), ("sink", None), ("h2o", "token"), ("h2o", "layer"), ("h2o", "head")]
    for policy, granularity in kinds:
        plans += [Setting(policy, granularity, percent) for percent in budgets]
    return plans + [Setting("no-first", None, 25.0)]


def budget_of(num_tokens, percent):
    # At least what leaves h2o a token to drop besides its sinks and recent tokens.
    return max(2 * NUM_SINKS, int(num_tokens * percent / 100))


# ------------------------------------------------------------------------------------ simulation


class Simulated:
    """hidden [B, T, d]: normalised states; num_dropped [B]; first_mass [L, H]: mean attention on
    position 0 over the queries of SINK_QUERIES; kept: per document, a set of positions per plane at
    the document's end, only when asked for."""


def rms_norm(x, weight, epsilon):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


@torch.no_grad()
def simulate(p, config, documents, setting, want_kept=False):
    """p: tensors by GGUF name, Q and K for half-split RoPE pairs. documents: lists of token ids.

    A plane's cache is [budget + 1] slots: a new token takes the slot of the one dropped before it,
    so attention costs no more than the budget. Slots are not in the order of positions; attention
    does not mind, the rotation is already in K."""
    layers, kv_heads = config["num_layers"], config["num_kv_heads"]
    group, dim = config["num_heads"] // kv_heads, config["head_dim"]
    epsilon, dtype = config["norm_epsilon"], p["token_embd.weight"].dtype
    batch, length = len(documents), max(len(d) for d in documents)
    ids = torch.zeros(batch, length, dtype=torch.long)
    for b, document in enumerate(documents):
        ids[b, : len(document)] = torch.tensor(document)
    lengths = torch.tensor([len(d) for d in documents])
    cut = setting.policy not in ("full", "no-first")
    budgets = torch.tensor([budget_of(len(d), setting.percent) for d in documents])
    num_rows = int(budgets.max()) + 1 if cut else length  # of a plane's cache
    if not cut:
        limits = torch.full((batch,), length)
    else:
        limits = budgets

    frequency = config["rope_base"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.arange(length).double()[:, None] * frequency
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)

    def rotate(x, t):
        a, b = x[..., : dim // 2], x[..., dim // 2 :]
        return torch.cat((a * cos[t] - b * sin[t], b * cos[t] + a * sin[t]), -1)

    keys = [torch.zeros(batch, kv_heads, num_rows, dim, dtype=dtype) for _ in range(layers)]
    values = [torch.zeros(batch, kv_heads, num_rows, dim, dtype=dtype) for _ in range(layers)]
    # Of each row of each plane: its position (-1: empty) and the score of the token in it.
    place = torch.full((layers, batch, kv_heads, num_rows), -1, dtype=torch.long)
    score = torch.zeros(layers, batch, kv_heads, num_rows, dtype=torch.float64)
    next_row = torch.zeros(layers, batch, kv_heads, dtype=torch.long)
    hidden = torch.zeros(batch, length, config["d_model"], dtype=dtype)
    first_mass = torch.zeros(layers, config["num_heads"], dtype=torch.float64)
    num_queries = 0
    kept = [None] * batch

    for t in range(length):
        live = t < lengths
        place.scatter_(3, next_row.unsqueeze(3), t)
        score.scatter_(3, next_row.unsqueeze(3), 0.0)
        empty = place < 0
        x = F.embedding(ids[:, t], p["token_embd.weight"])
        used = min(t + 1, num_rows)
        for layer in range(layers):
            name = f"blk.{layer}."
            h = rms_norm(x, p[name + "attn_norm.weight"], epsilon)
            q = F.linear(h, p[name + "attn_q.weight"]).view(batch, kv_heads, group, dim)
            k = F.linear(h, p[name + "attn_k.weight"]).view(batch, kv_heads, 1, dim)
            v = F.linear(h, p[name + "attn_v.weight"]).view(batch, kv_heads, 1, dim)
            at = next_row[layer][:, :, None, None].expand(-1, -1, 1, dim)
            keys[layer].scatter_(2, at, rotate(k, t))
            values[layer].scatter_(2, at, v)
            logits = rotate(q, t) * dim**-0.5 @ keys[layer][:, :, :used].transpose(-1, -2)
            logits.masked_fill_(empty[layer][:, :, None, :used], -math.inf)
            weights = torch.softmax(logits, -1)
            if setting.policy == "h2o":
                score[layer, :, :, :used] += weights.sum(2)
            if setting.policy == "full" and SINK_QUERIES[0] <= t < SINK_QUERIES[1]:
                first_mass[layer] += weights[live, :, :, 0].sum(0).flatten()
            out = (weights @ values[layer][:, :, :used]).reshape(batch, -1)
            x = x + F.linear(out, p[name + "attn_output.weight"])
            h = rms_norm(x, p[name + "ffn_norm.weight"], epsilon)
            gate = F.silu(F.linear(h, p[name + "ffn_gate.weight"]))
            gated = gate * F.linear(h, p[name + "ffn_up.weight"])
            x = x + F.linear(gated, p[name + "ffn_down.weight"])
        hidden[:, t] = rms_norm(x, p["output_norm.weight"], epsilon)
        if SINK_QUERIES[0] <= t < SINK_QUERIES[1]:
            num_queries += int(live.sum())

        if setting.policy == "no-first":
            gone = (budgets == t)[None, :, None]
            place[..., 0] = torch.where(gone, torch.tensor(-1), place[..., 0])
        full = limits <= t  # t + 1 tokens were held
        next_row.fill_(min(t + 1, num_rows - 1))
        if cut and bool(full.any()):
            victim = choose_victims(setting, place, score, t, budgets)
            # Rows of a shorter document's plane that it never uses stay empty: its victim's row is
            # taken again at once.
            next_row = torch.where(full[None, :, None], victim, next_row)
            dropped = place.gather(3, next_row.unsqueeze(3))
            dropped = torch.where(full[None, :, None, None], torch.tensor(-1), dropped)
            place.scatter_(3, next_row.unsqueeze(3), dropped)
        for b in torch.nonzero(lengths == t + 1).flatten().tolist() if want_kept else ():
            kept[b] = [
                {int(at) for at in place[layer, b, head] if at >= 0}
                for layer in range(layers)
                for head in range(kv_heads)
            ]
    result = Simulated()
    result.hidden, result.kept = hidden, kept
    result.first_mass = first_mass / max(1, num_queries)
    return result


def choose_victims(setting, place, score, t, budgets):
    """Row of the token that each plane drops, [L, B, Hkv]. Of equal scores the first row."""
    if setting.policy == "recent":
        allowed, rank = place >= 0, place.double()
    elif setting.policy == "sink":
        allowed, rank = place >= NUM_SINKS, place.double()
    else:
        # The last budget / 2 positions, t among them.
        window = (t - budgets // 2)[None, :, None, None]
        allowed, rank = (place >= NUM_SINKS) & (place <= window), score
        # Planes that decide together have the same position in the same row.
        if setting.granularity == "token":
            rank = score.sum((0, 2), keepdim=True).expand_as(score)
        elif setting.granularity == "layer":
            rank = score.sum(2, keepdim=True).expand_as(score)
    return rank.masked_fill(~allowed, math.inf).argmin(3)


# ---------------------------------------------------------------------------------------- report


def share_interval(documents):
    """95 % interval of the pooled share of [(exact answers, questions)] by document: Wilson's, with
    the number of questions divided by Kish's design effect, as in kvlab-cli eval."""
    z, m = 1.959964, len(documents)
    n = sum(count for _, count in documents)
    p = sum(hits for hits, _ in documents) / n
    if m == 1:
        n = 1
    elif 0 < p < 1:
        scatter = sum((hits - p * count) ** 2 for hits, count in documents)
        n /= max(1.0, m / (m - 1) * scatter / n / (p * (1 - p)))
    scale = 1 / (1 + z * z / n)
    centre = scale * (p + z * z / (2 * n))
    half = scale * z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [round(max(0.0, centre - half), 4), round(min(1.0, centre + half), 4)]


def shares(groups):
    return {str(g): [round(float(np.mean(v)), 4), len(v)] for g, v in sorted(groups.items())}


def judge(p, examples, hidden):
    """Exact answers and likelihood of documents whose states are `hidden` [B, T, d]."""
    buckets, by_document, nll, count = {}, [], 0.0, 0
    for b, example in enumerate(examples):
        hits = []
        n = len(example.ids)
        logits = F.linear(hidden[b, :n], p["token_embd.weight"])
        target = torch.tensor(example.ids[1:])
        each = F.cross_entropy(logits[:-1], target, reduction="none")
        other = torch.arange(1, n) >= n // 2
        other[[token - 1 for token in example.value_tokens]] = False
        nll += each[other].double().sum().item()
        count += int(other.sum())
        best = logits.argmax(-1)
        for value, distance, _ in example.questions:
            if distance is None:
                continue
            exact = all(int(best[token - 1]) == example.ids[token] for token in value)
            hits.append(exact)
            edge = max([e for e in DISTANCES if e <= distance], default=0)
            buckets.setdefault(edge, []).append(exact)
        if hits:
            by_document.append((sum(hits), len(hits)))
    num_questions = sum(n for _, n in by_document)
    return dict(
        exact=round(sum(hits for hits, _ in by_document) / num_questions, 4),
        interval=share_interval(by_document),
        questions=num_questions,
        by_distance=shares(buckets),
        other_nll=round(nll / count, 4),
    )


def eviction_report(p, config, examples_by_layout, settings=None, progress=None):
    """p as the model file rounds it; examples_by_layout: {layout: [train.Example]}. Returns a dict
    of figures, which print_report shows."""
    torch.set_num_threads(1)
    results, first_mass = [], None
    for layout, examples in examples_by_layout.items():
        for setting in settings or settings_of():
            begin = time.time()
            run = simulate(p, config, [e.ids for e in examples], setting)
            figures = judge(p, examples, run.hidden)
            if setting.policy == "full" and layout == "stream":
                first_mass = run.first_mass
            results.append(dict(layout=layout, **setting._asdict(), **figures))
            if progress:
                progress(results[-1], time.time() - begin)
    mass = None
    if first_mass is not None:
        mass = {str(i): [round(m, 3) for m in row.tolist()] for i, row in enumerate(first_mass)}
    return dict(
        num_kv_heads=config["num_kv_heads"],
        documents={layout: len(examples) for layout, examples in examples_by_layout.items()},
        tokens={k: sum(len(e.ids) for e in v) for k, v in examples_by_layout.items()},
        results=results,
        attention_on_position_0=mass,
    )


def print_report(report):
    heads = report["num_kv_heads"]
    print(f"KV heads: {heads}; exact answers in %; NLL of other tokens in the second half")
    for layout, count in report["documents"].items():
        rows = [r for r in report["results"] if r["layout"] == layout]
        edges = sorted({int(e) for r in rows for e in r["by_distance"]})
        names = ["<20" if e == 0 else f"{e}+" for e in edges]
        num_questions, num_tokens = rows[0]["questions"], report["tokens"][layout]
        print(f"\n{layout}: {count} documents, {num_questions} questions, {num_tokens} tokens")
        head = f"{'policy':18} {'exact':>6} {'95 %':>13} {'NLL':>6}  "
        print(head + " ".join(f"{n:>6}" for n in names))
        for r in rows:
            name = r["policy"] if r["granularity"] is None else f"h2o {r['granularity']}"
            name += "" if r["policy"] == "full" else f" {r['percent']:g} %"
            low, high = (100 * x for x in r["interval"])
            cells = [r["by_distance"].get(str(e)) for e in edges]
            cells = [f"{100 * c[0]:6.1f}" if c else "     -" for c in cells]
            between = f"{low:.1f}-{high:.1f}"
            line = f"{name:18} {100 * r['exact']:6.1f} {between:>13} {r['other_nll']:6.3f}  "
            print(line + " ".join(cells))

    def find(layout, policy, granularity=None, percent=25.0):
        for r in report["results"]:
            if (r["layout"], r["policy"], r["granularity"]) == (layout, policy, granularity):
                if policy == "full" or r["percent"] == percent:
                    return r
        return None

    print()
    full = find("facts-first", "full")
    for policy, granularity in (("recent", None), ("h2o", "token")):
        cut = find("facts-first", policy, granularity)
        if full and cut:
            lost = 100 * (full["exact"] - cut["exact"])
            verdict = "at least 30" if lost >= 30 else "LESS THAN 30"
            name = " ".join(filter(None, (policy, granularity)))
            print(f"facts first, 25 %: {name} loses {lost:.1f} points ({verdict})")
    for layout in report["documents"]:
        whole, without = find(layout, "full"), find(layout, "no-first")
        if whole and without:
            print(
                f"{layout}: position 0 dropped at 25 %, all else kept: exact "
                f"{100 * whole['exact']:.1f} -> {100 * without['exact']:.1f} %, NLL "
                f"{whole['other_nll']:.3f} -> {without['other_nll']:.3f}"
            )
    if report["attention_on_position_0"]:
        first, last = SINK_QUERIES
        print(f"attention on position 0, queries {first} to {last}, by query head:")
        for layer, heads in report["attention_on_position_0"].items():
            print(f"  layer {layer}: " + ", ".join(f"{m:.2f}" for m in heads))


# --------------------------------------------------------------------------------------- loading


class VocabularyTokenizer:
    """encode_with_offsets as in village_tokenizer.py, from a model file's own vocabulary."""

    def __init__(self, metadata):
        import village_tokenizer
        from check_gguf import SentencePieceBpe

        self._bpe = SentencePieceBpe({**metadata, "tokenizer.ggml.add_space_prefix": False})
        self._bpe.add_bos = False
        self._chunks = village_tokenizer.Tokenizer._chunks
        self._cache = {}

    def encode_with_offsets(self, text):
        ids, ranges, at = [self._bpe.bos], [(0, 0)], -1
        for chunk in self._chunks.findall(" " + text):
            if chunk not in self._cache:
                self._cache[chunk] = self._bpe.encode(chunk)
            for token_id in self._cache[chunk]:
                is_byte = self._bpe.kinds[token_id] == self._bpe.BYTE
                length = 1 if is_byte else len(self._bpe.pieces[token_id])
                ids.append(token_id)
                ranges.append((max(at, 0), at + length))
                at += length
        return ids, ranges


def split_rows(weight, num_heads):
    """The inverse of export_gguf.interleave_rows: adjacent RoPE pairs -> half-split pairs."""
    rows, columns = weight.shape
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3)).reshape(rows, columns)


def load_model(path, tokenizer_path=None):
    """(parameters rounded as the file stores them, config, tokenizer)."""
    if path.endswith(".pt"):
        from village_tokenizer import Tokenizer

        p = train.rounded(torch.load(path, map_location="cpu")["parameters"])
        config = dict(train.CONFIG)
        config["num_kv_heads"] = len(p["blk.0.attn_k.weight"]) // config["head_dim"]
        folder = os.path.dirname(os.path.abspath(path))
        default = os.path.join(os.path.dirname(folder), "tokenizer.model")
        with open(tokenizer_path or default, "rb") as file:
            return p, config, Tokenizer(file.read())
    from check_gguf import GgufFile

    gguf = GgufFile(path)
    meta = gguf.metadata
    config = dict(
        num_layers=meta["llama.block_count"],
        d_model=meta["llama.embedding_length"],
        num_heads=meta["llama.attention.head_count"],
        num_kv_heads=meta["llama.attention.head_count_kv"],
        head_dim=meta["llama.attention.key_length"],
        rope_base=meta["llama.rope.freq_base"],
        norm_epsilon=meta["llama.attention.layer_norm_rms_epsilon"],
    )
    p = {}
    for name, array in gguf.tensors.items():
        if name.endswith("attn_q.weight"):
            array = split_rows(array, config["num_heads"])
        elif name.endswith("attn_k.weight"):
            array = split_rows(array, config["num_kv_heads"])
        p[name] = torch.tensor(array, dtype=torch.float32)
    return p, config, VocabularyTokenizer(meta)


def held_out_examples(tokenizer, binary, layout, num_documents, length, seed):
    words = int(length / train.TOKENS_PER_WORD * 0.97)
    documents = train.corpus_documents(
        binary, num_documents, words, seed, layout=layout, extra=("--held-out",)
    )
    return [train.Example(tokenizer, document, length) for document in documents]


# ------------------------------------------------------------------------------------ self-check


def plain_simulation(p, config, document, setting):
    """One document with loops, lists and dictionaries in float64. Returns (states [T][d], the
    positions kept per plane)."""
    w = {name: tensor.double().numpy() for name, tensor in p.items()}
    heads, kv_heads, dim = config["num_heads"], config["num_kv_heads"], config["head_dim"]
    planes = [(layer, head) for layer in range(config["num_layers"]) for head in range(kv_heads)]
    cache = {plane: {} for plane in planes}  # position -> (k, v)
    received = {plane: {} for plane in planes}  # position -> score
    budget = budget_of(len(document), setting.percent)

    def norm(x, weight):
        return x / math.sqrt(float(np.mean(x * x)) + config["norm_epsilon"]) * weight

    def rotate(x, position):
        turned = x.copy()
        for i in range(dim // 2):
            angle = position * config["rope_base"] ** (-2 * i / dim)
            a, b = x[i], x[i + dim // 2]
            turned[i] = a * math.cos(angle) - b * math.sin(angle)
            turned[i + dim // 2] = b * math.cos(angle) + a * math.sin(angle)
        return turned

    states = []
    for position, token in enumerate(document):
        x = w["token_embd.weight"][token]
        for layer in range(config["num_layers"]):
            name = f"blk.{layer}."
            h = norm(x, w[name + "attn_norm.weight"])
            q, k, v = (w[name + f"attn_{m}.weight"] @ h for m in "qkv")
            for head in range(kv_heads):
                rows = slice(head * dim, (head + 1) * dim)
                cache[layer, head][position] = (rotate(k[rows], position), v[rows])
                received[layer, head][position] = 0.0
            mixed = []
            for query_head in range(heads):
                plane = (layer, query_head // (heads // kv_heads))
                query = rotate(q[query_head * dim : (query_head + 1) * dim], position)
                raw = {}
                for at, (key, _) in cache[plane].items():
                    raw[at] = math.exp(query @ key / math.sqrt(dim))
                total = sum(raw.values())
                for at, weight in raw.items():
                    received[plane][at] += weight / total
                mixed.append(sum(raw[at] / total * kv[1] for at, kv in cache[plane].items()))
            x = x + w[name + "attn_output.weight"] @ np.concatenate(mixed)
            h = norm(x, w[name + "ffn_norm.weight"])
            gate = w[name + "ffn_gate.weight"] @ h
            gate = gate / (1 + np.exp(-gate))
            x = x + w[name + "ffn_down.weight"] @ (gate * (w[name + "ffn_up.weight"] @ h))
        states.append(norm(x, w["output_norm.weight"]))

        for plane in planes:
            if setting.policy == "no-first" and position == budget:
                del cache[plane][0]
            if setting.policy in ("full", "no-first") or len(cache[plane]) <= budget:
                continue
            held = sorted(cache[plane])
            if setting.policy == "recent":
                victim = held[0]
            elif setting.policy == "sink":
                victim = held[NUM_SINKS]
            else:
                together = {
                    "head": [plane],
                    "layer": [other for other in planes if other[0] == plane[0]],
                    "token": planes,
                }[setting.granularity]
                middle = held[NUM_SINKS : len(held) - budget // 2]
                victim = min(middle, key=lambda at: sum(received[o][at] for o in together))
            del cache[plane][victim]  # its score stays for the planes that decide with this one
    return np.array(states), [set(cache[plane]) for plane in planes]


def self_check():
    """Exits with an error where the two simulations differ."""
    generator = torch.Generator().manual_seed(3)
    worst, num_runs = 0.0, 0
    for kv_heads in (1, 2, 4):
        config = dict(num_layers=2, d_model=12, num_heads=4, num_kv_heads=kv_heads, head_dim=6)
        config.update(rope_base=50.0, norm_epsilon=1e-5)

        def matrix(rows, columns):
            # Large enough for attention that prefers some tokens clearly.
            return torch.randn(rows, columns, generator=generator, dtype=torch.float64) * 0.6

        p = {"token_embd.weight": matrix(17, 12)}
        for layer in range(2):
            name = f"blk.{layer}."
            for norm in ("attn_norm", "ffn_norm"):
                p[name + norm + ".weight"] = 1 + matrix(1, 12)[0] / 4
            p[name + "attn_q.weight"] = matrix(24, 12)
            p[name + "attn_k.weight"] = matrix(6 * kv_heads, 12)
            p[name + "attn_v.weight"] = matrix(6 * kv_heads, 12)
            p[name + "attn_output.weight"] = matrix(12, 24)
            p[name + "ffn_gate.weight"] = matrix(20, 12)
            p[name + "ffn_up.weight"] = matrix(20, 12)
            p[name + "ffn_down.weight"] = matrix(12, 20)
        p["output_norm.weight"] = 1 + matrix(1, 12)[0] / 4
        lengths = (61, 33, 48)
        documents = [torch.randint(17, (n,), generator=generator).tolist() for n in lengths]
        for setting in settings_of():
            run = simulate(p, config, documents, setting, want_kept=True)
            for b, document in enumerate(documents):
                states, kept = plain_simulation(p, config, document, setting)
                error = np.abs(run.hidden[b, : len(document)].numpy() - states).max()
                worst, num_runs = max(worst, error), num_runs + 1
                if error > 1e-9 or kept != run.kept[b]:
                    sys.exit(f"self-check: {kv_heads} KV heads, {setting}: differ by {error}")
                budget = budget_of(len(document), setting.percent)
                want = {"full": len(document), "no-first": len(document) - 1}
                if any(len(plane) != want.get(setting.policy, budget) for plane in kept):
                    sys.exit(f"self-check: {setting}: a plane holds more or less than its budget")
    print(f"self-check: {num_runs} runs agree, states within {worst:.1e}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a .gguf file or a checkpoint (.pt) of train.py")
    parser.add_argument("--tokenizer", help="of a checkpoint (default: beside its folder)")
    parser.add_argument("--kvlab-cli", help="the built kvlab-cli (default: searched under build/)")
    parser.add_argument("--documents", type=int, default=20, metavar="N", help="per layout")
    parser.add_argument("--tokens", type=int, default=1000, metavar="N", help="of each document")
    parser.add_argument("--seed", type=int, default=1234, help="of the documents")
    parser.add_argument("--json", metavar="FILE", help="write the figures here, too")
    parser.add_argument("--self-check", action="store_true")
    args = parser.parse_args()
    if args.self_check:
        self_check()
        return
    if args.model is None:
        parser.error("name a model, or --self-check")
    p, config, tokenizer = load_model(args.model, args.tokenizer)
    binary = train.find_binary(args.kvlab_cli)
    examples = {
        layout: held_out_examples(tokenizer, binary, layout, args.documents, args.tokens, args.seed)
        for layout in ("stream", "facts-first")
    }

    def progress(r, seconds):
        name = " ".join(str(x) for x in (r["layout"], r["policy"], r["granularity"] or ""))
        print(f"{name} {r['percent']:g} %: {r['exact']} in {seconds:.0f} s", file=sys.stderr)

    report = eviction_report(p, config, examples, progress=progress)
    print_report(report)
    if args.json:
        with open(args.json + ".partial", "w") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
        os.replace(args.json + ".partial", args.json)


if __name__ == "__main__":
    main()
