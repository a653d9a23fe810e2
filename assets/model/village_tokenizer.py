# SPDX-License-Identifier: MIT
"""Trains the bundled model's SentencePiece BPE and maps corpus documents to token ids.

Needs Debian's python3-sentencepiece. Only this step and train.py use it; the model file carries the
finished vocabulary.
"""

import io
import re

import sentencepiece

VOCAB_SIZE = 1536
UNK_ID, BOS_ID, EOS_ID = 0, 1, 2


def train_tokenizer(texts):
    """texts: iterable of corpus documents (str). Returns the serialised SentencePiece model."""
    lines = []
    for text in texts:
        first, *rest = text.split("\n")
        # A prompt's first word gets a space in front (add_space_prefix); words after a line break
        # do not. Training on lines without a dummy prefix gives both forms a piece.
        lines.append(" " + first)
        lines.append(first)
        lines.extend(rest)
    # Every printable ASCII character has a piece of its own; anything else falls back to bytes.
    lines.append(" ".join(chr(code) for code in range(33, 127)))
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=VOCAB_SIZE,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        split_digits=True,
        byte_fallback=True,
        character_coverage=1.0,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        pad_id=-1,
        num_threads=1,
        minloglevel=1,
    )
    return model.getvalue()


class Tokenizer:
    """Encodes with character offsets. No piece crosses a space or a line break, so the text is
    encoded word by word and each word only once."""

    _chunks = re.compile(r"\n| ?[^ \n]+| ")

    def __init__(self, model_bytes):
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
        self._cache = {}

    def vocabulary(self):
        """[(piece, score, GGUF token type)] by id: 1 normal, 2 unknown, 3 control, 6 byte."""
        entries = []
        for token_id in range(self._processor.get_piece_size()):
            kind = 1
            if self._processor.is_unknown(token_id):
                kind = 2
            elif self._processor.is_control(token_id):
                kind = 3
            elif self._processor.is_byte(token_id):
                kind = 6
            entries.append(
                (self._processor.id_to_piece(token_id), self._processor.get_score(token_id), kind)
            )
        return entries

    def _encode_chunk(self, chunk):
        found = self._cache.get(chunk)
        if found is None:
            ids = self._processor.encode(chunk)
            lengths = [
                1 if self._processor.is_byte(i) else len(self._processor.id_to_piece(i))
                for i in ids
            ]
            found = (ids, lengths)
            self._cache[chunk] = found
        return found

    def encode_with_offsets(self, text):
        """ASCII text -> (ids with the begin token, [(begin, end)] character ranges; the begin token
        has (0, 0)). A range may start with the space in front of its word."""
        ids, ranges = [BOS_ID], [(0, 0)]
        at = -1  # the space put in front of the text is no character of it
        for chunk in self._chunks.findall(" " + text):
            chunk_ids, lengths = self._encode_chunk(chunk)
            for token_id, length in zip(chunk_ids, lengths):
                ids.append(token_id)
                ranges.append((max(at, 0), at + length))
                at += length
        return ids, ranges

    def encode(self, text):
        """Any text -> ids with the begin token, by SentencePiece itself."""
        return [BOS_ID] + self._processor.encode(" " + text)

    def decode(self, ids):
        text = self._processor.decode(list(ids))
        return text[1:] if text.startswith(" ") else text
