// SPDX-License-Identifier: MIT
#include "engine/model/pre_tokenizer.h"

#include <random>
#include <string>

#include <QTest>

#include "engine/model/unicode_class.h"

namespace kvlab {
namespace {

constexpr PreTokenizer kRules[] = {PreTokenizer::kGpt2, PreTokenizer::kLlama3, PreTokenizer::kQwen2,
                                   PreTokenizer::kSmolLm};

// Bytes of each piece.
QList<int> cut(PreTokenizer rule, std::string_view text) {
    QList<int> lengths;
    while (!text.empty()) {
        const size_t num_bytes = firstPieceBytes(rule, text);
        if (num_bytes == 0 || num_bytes > text.size()) return {-1};
        lengths.push_back(static_cast<int>(num_bytes));
        text.remove_prefix(num_bytes);
    }
    return lengths;
}

}  // namespace

class PreTokenizerTest : public QObject {
    Q_OBJECT

  private slots:
    // Pieces that the package tokenizers 0.23.3 (huggingface/tokenizers) cuts, in bytes: ByteLevel
    // for GPT-2; Split with the expression of the model's tokenizer.json for Llama 3 and Qwen 2;
    // Digits(individual_digits) and ByteLevel for SmolLM. Made once; CI has no such package.
    void agreesWithThePublishedExpressions_data() {
        QTest::addColumn<QByteArray>("text");
        QTest::addColumn<QList<QList<int>>>("pieces");  // by kRules
        const auto row = [](const QByteArray& text, const QList<int>& gpt2,
                            const QList<int>& llama3, const QList<int>& qwen2,
                            const QList<int>& smollm) {
            QTest::addRow("%s", text.left(30).toHex().constData())
                << text << QList<QList<int>>{gpt2, llama3, qwen2, smollm};
        };
        row(QByteArray("Hello world! It's 2024, isn't it\?", 33), {5, 6, 1, 3, 2, 5, 1, 4, 2, 3, 1},
            {5, 6, 1, 3, 2, 1, 3, 1, 1, 4, 2, 3, 1}, {5, 6, 1, 3, 2, 1, 1, 1, 1, 1, 1, 4, 2, 3, 1},
            {5, 6, 1, 3, 2, 1, 1, 1, 1, 1, 1, 4, 2, 3, 1});
        row(QByteArray("I'LL we'Re THEY'VE 'Dx x'S don'T '\305\277o", 37),
            {1, 1, 2, 3, 1, 2, 5, 1, 2, 2, 2, 2, 1, 1, 4, 1, 1, 2, 3},
            {1, 3, 3, 3, 5, 3, 2, 2, 2, 2, 4, 2, 2, 3}, {1, 3, 3, 3, 5, 3, 2, 2, 2, 2, 4, 2, 2, 3},
            {1, 1, 2, 3, 1, 2, 5, 1, 2, 2, 2, 2, 1, 1, 4, 1, 1, 2, 3});
        row(QByteArray("''s '' 'llama 'rx 'v 'l '", 25), {2, 1, 3, 2, 5, 2, 2, 2, 1, 2, 1, 2},
            {2, 1, 3, 2, 5, 2, 2, 2, 1, 2, 1, 2}, {2, 1, 3, 2, 5, 2, 2, 2, 1, 2, 1, 2},
            {2, 1, 3, 2, 5, 2, 2, 2, 1, 2, 1, 2});
        row(QByteArray("  two  spaces   three ", 22), {1, 4, 1, 7, 2, 6, 1}, {1, 4, 1, 7, 2, 6, 1},
            {1, 4, 1, 7, 2, 6, 1}, {1, 4, 1, 7, 2, 6, 1});
        row(QByteArray(" leading", 8), {8}, {8}, {8}, {8});
        row(QByteArray("tab\011x\011\011y \011z", 11), {3, 1, 1, 1, 1, 1, 1, 1, 1},
            {3, 2, 1, 2, 1, 2}, {3, 2, 1, 2, 1, 2}, {3, 1, 1, 1, 1, 1, 1, 1, 1});
        row(QByteArray("a\012\012b\015\012c \012 d\012  e", 15), {1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2},
            {1, 2, 1, 2, 1, 2, 2, 1, 1, 2}, {1, 2, 1, 2, 1, 2, 2, 1, 1, 2},
            {1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2});
        row(QByteArray("\012\012\011\015\012", 5), {5}, {5}, {5}, {5});
        row(QByteArray("   \012   x", 8), {6, 2}, {4, 2, 2}, {4, 2, 2}, {6, 2});
        row(QByteArray("x   ", 4), {1, 3}, {1, 3}, {1, 3}, {1, 3});
        row(QByteArray("x \012", 3), {1, 2}, {1, 2}, {1, 2}, {1, 2});
        row(QByteArray("  1  23  456 7890 12345", 23), {1, 2, 1, 3, 1, 4, 5, 6},
            {1, 1, 1, 1, 1, 2, 1, 1, 3, 1, 3, 1, 1, 3, 2},
            {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
            {2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
        row(QByteArray("a1b22c333d4444", 14), {1, 1, 1, 2, 1, 3, 1, 4}, {1, 1, 1, 2, 1, 3, 1, 3, 1},
            {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
        row(QByteArray("3.14159 1,000,000 $5 50%", 24), {1, 1, 5, 2, 1, 3, 1, 3, 2, 1, 3, 1},
            {1, 1, 3, 2, 1, 1, 1, 3, 1, 3, 2, 1, 1, 2, 1},
            {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1},
            {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1});
        row(QByteArray("\302\275 \302\262 \331\243\331\244\331\245\331\246 \342\205\267 "
                       "\344\270\200\344\272\214\344\270\211 \340\271\221\340\271\222",
                       35),
            {2, 3, 9, 4, 10, 7}, {2, 1, 2, 1, 6, 2, 1, 3, 10, 1, 6},
            {2, 1, 2, 1, 2, 2, 2, 2, 1, 3, 10, 1, 3, 3},
            {2, 1, 2, 1, 2, 2, 2, 2, 1, 3, 10, 1, 3, 3});
        row(QByteArray("na\303\257ve caf\303\251 Stra\303\237e \316\251mega e\314\201", 31),
            {6, 6, 8, 7, 2, 2}, {6, 6, 8, 7, 2, 2}, {6, 6, 8, 7, 2, 2}, {6, 6, 8, 7, 2, 2});
        row(QByteArray("\346\227\245\346\234\254\350\252\236\343\201\256\343\203\206\343\202\271"
                       "\343\203\210\343\200\201\343\201\247\343\201\231\343\200\202",
                       33),
            {21, 3, 6, 3}, {21, 9, 3}, {21, 9, 3}, {21, 3, 6, 3});
        row(QByteArray(
                "\320\237\321\200\320\270\320\262\320\265\321\202, \320\274\320\270\321\200! "
                "\327\251\327\234\327\225\327\235 \331\205\330\261\330\255\330\250\330\247",
                41),
            {12, 1, 7, 1, 9, 11}, {12, 1, 7, 1, 9, 11}, {12, 1, 7, 1, 9, 11}, {12, 1, 7, 1, 9, 11});
        row(QByteArray("\360\237\230\200\360\237\221\215\360\237\217\275 "
                       "\360\237\221\250\342\200\215\360\237\221\251\342\200\215\360\237\221\247 "
                       "x\360\237\230\200y",
                       38),
            {12, 19, 2, 4, 1}, {12, 19, 2, 5}, {12, 19, 2, 5}, {12, 19, 2, 4, 1});
        row(QByteArray("_foo_bar->baz(); // ok!!\012\012\012#end", 31),
            {1, 3, 1, 3, 2, 3, 3, 3, 3, 2, 2, 1, 1, 3}, {4, 4, 2, 3, 3, 3, 3, 5, 4},
            {4, 4, 2, 3, 3, 3, 3, 5, 4}, {1, 3, 1, 3, 2, 3, 3, 3, 3, 2, 2, 1, 1, 3});
        row(QByteArray("a\302\240b\342\200\203c\343\200\200\343\200\200d\302\205e\342\200\213f",
                       22),
            {1, 2, 1, 3, 1, 3, 3, 1, 2, 1, 3, 1}, {1, 3, 4, 3, 4, 3, 4}, {1, 3, 4, 3, 4, 3, 4},
            {1, 2, 1, 3, 1, 3, 3, 1, 2, 1, 3, 1});
        row(QByteArray("...\015\012\015\012!\? \012!\?", 13), {3, 3, 1, 2, 1, 1, 2}, {7, 2, 2, 2},
            {7, 2, 2, 2}, {3, 3, 1, 2, 1, 1, 2});
        row(QByteArray("http://a.b/c\?d=1&e=2#f", 22),
            {4, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
            {4, 3, 1, 2, 2, 2, 1, 1, 2, 1, 1, 2}, {4, 3, 1, 2, 2, 2, 1, 1, 2, 1, 1, 2},
            {4, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
        row(QByteArray("\000\001 \034\035\177 a\000b", 10), {2, 4, 2, 1, 1}, {2, 4, 2, 2},
            {2, 4, 2, 2}, {2, 4, 2, 1, 1});
        row(QByteArray("  \302\240'tis", 8), {2, 2, 2, 2}, {2, 2, 2, 2}, {2, 2, 2, 2},
            {2, 2, 2, 2});
        row(QByteArray("\340\244\271\340\244\277\340\244\250\340\245\215\340\244\246\340\245\200 "
                       "\340\244\256\340\245\207\340\244\202 \340\271\204\340\270\227\340\270\242",
                       38),
            {3, 3, 3, 3, 3, 3, 4, 6, 10}, {3, 6, 6, 3, 4, 6, 10}, {3, 6, 6, 3, 4, 6, 10},
            {3, 3, 3, 3, 3, 3, 4, 6, 10});
        row(QByteArray("\360\235\237\230\360\235\237\231 \360\240\200\200x "
                       "\360\262\216\257\360\234\263\260",
                       23),
            {8, 6, 5, 4}, {8, 6, 5, 4}, {4, 4, 6, 5, 4}, {4, 4, 6, 5, 4});
        row(QByteArray("x\357\277\275y \357\277\275", 9), {1, 3, 1, 4}, {1, 4, 4}, {1, 4, 4},
            {1, 3, 1, 4});
    }
    void agreesWithThePublishedExpressions() {
        QFETCH(QByteArray, text);
        QFETCH(QList<QList<int>>, pieces);
        for (size_t i = 0; i < std::size(kRules); ++i) {
            QCOMPARE(cut(kRules[i], text.toStdString()), pieces[static_cast<qsizetype>(i)]);
        }
    }

    // As U+FFFD, which usually takes the place of such bytes, would be cut.
    void malformedBytesAreOther() {
        QCOMPARE(cut(PreTokenizer::kLlama3, "ab\xff\xfe\xc3 \x80"), (QList<int>{2, 3, 2}));
        QCOMPARE(cut(PreTokenizer::kGpt2, "\xf0\x9f\x98"), (QList<int>{3}));
        QCOMPARE(cut(PreTokenizer::kLlama3, "\xc3z"), (QList<int>{2}));  // one other, then letters
    }

    void coversAnyBytes() {
        const std::string parts[] = {"'", "'s", " ",  "\n", "\r",     "a",
                                     "1", "é",  "日", "²",  "\u00a0", "!"};
        std::mt19937 random(5);
        for (int i = 0; i < 3000; ++i) {
            std::string text;
            for (unsigned part = random() % 30; part > 0; --part) {
                text += random() % 3 == 0 ? std::string(1, static_cast<char>(random() % 256))
                                          : parts[random() % std::size(parts)];
            }
            for (const PreTokenizer rule : kRules) {
                size_t total = 0;
                for (const int length : cut(rule, text)) total += static_cast<size_t>(length);
                QCOMPARE(total, text.size());
            }
        }
        QCOMPARE(firstPieceBytes(PreTokenizer::kQwen2, ""), size_t{0});
    }

    // Character counts of Oniguruma's \p{L}, \p{N} and \s in tokenizers 0.23.3 (Unicode 16.0).
    void countsTheClassesOfUnicode() {
        int letters = 0;
        int numbers = 0;
        int spaces = 0;
        for (char32_t code = 0; code < 0x110000; ++code) {
            if (code >= 0xd800 && code < 0xe000) continue;
            const std::string text = QStringView(QChar::fromUcs4(code)).toString().toStdString();
            const CharAt character = firstChar(text + "x");
            QCOMPARE(character.num_bytes, text.size());
            QCOMPARE(character.code, uint32_t{code});
            letters += character.char_class == CharClass::kLetter;
            numbers += character.char_class == CharClass::kNumber;
            spaces += character.char_class == CharClass::kSpace;
        }
        QCOMPARE(letters, 141028);
        QCOMPARE(numbers, 1911);
        QCOMPARE(spaces, 25);
    }

    void knowsItsNames() {
        QVERIFY(preTokenizerByName("llama-bpe") == PreTokenizer::kLlama3);
        QVERIFY(preTokenizerByName("qwen2") == PreTokenizer::kQwen2);
        QVERIFY(preTokenizerByName("smollm") == PreTokenizer::kSmolLm);
        QVERIFY(preTokenizerByName("gpt-2") == PreTokenizer::kGpt2);
        QVERIFY(!preTokenizerByName("tekken"));
        QVERIFY(!preTokenizerByName(""));
    }
};

}  // namespace kvlab

using kvlab::PreTokenizerTest;
QTEST_GUILESS_MAIN(PreTokenizerTest)
#include "pre_tokenizer_test.moc"
