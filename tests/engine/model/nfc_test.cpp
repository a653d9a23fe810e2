// SPDX-License-Identifier: MIT
#include "engine/model/nfc.h"

#include <random>
#include <string>
#include <vector>

#include <QString>
#include <QTest>

using namespace kvlab;

namespace {

using Codes = std::vector<char32_t>;

std::string utf8(const Codes& codes) {
    return QString::fromUcs4(codes.data(), static_cast<qsizetype>(codes.size()))
        .toUtf8()
        .toStdString();
}

}  // namespace

class NfcTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase() {
        if (!canNormalise()) QSKIP("this build has no libutf8proc");
    }

    // Columns 1 and 2 of lines of the Unicode Character Database's NormalizationTest.txt
    // (www.unicode.org/Public/UCD), and the examples of Unicode Standard Annex #15.
    void publishedExamples() {
        const std::vector<std::pair<Codes, Codes>> examples = {
            // Part 0, specific cases
            {{0x1E0A}, {0x1E0A}},
            {{0x1E0A, 0x0323}, {0x1E0C, 0x0307}},
            {{0x1E0C, 0x0307}, {0x1E0C, 0x0307}},
            {{0x0044, 0x0307, 0x0323}, {0x1E0C, 0x0307}},
            {{0x1E14, 0x0304}, {0x1E14, 0x0304}},
            {{0x0112, 0x0300}, {0x1E14}},
            {{0x0112, 0x0300, 0x0304}, {0x1E14, 0x0304}},
            {{0x05B8, 0x05B9, 0x05B1, 0x0591, 0x05C3, 0x05B0, 0x05AC, 0x059F},
             {0x05B1, 0x05B8, 0x05B9, 0x0591, 0x05C3, 0x05B0, 0x05AC, 0x059F}},
            {{0x1100, 0xAC00, 0x11A8}, {0x1100, 0xAC01}},
            {{0x1100, 0xAC00, 0x11A8, 0x11A8}, {0x1100, 0xAC01, 0x11A8}},
            // Part 1, one character: singletons, compositions that are excluded, compatibility
            {{0x00A0}, {0x00A0}},
            {{0x0340}, {0x0300}},
            {{0x0344}, {0x0308, 0x0301}},
            {{0x037E}, {0x003B}},
            {{0x0958}, {0x0915, 0x093C}},
            {{0x2126}, {0x03A9}},
            {{0x212B}, {0x00C5}},
            {{0xD4DB}, {0xD4DB}},
            {{0xF900}, {0x8C48}},
            {{0xFB01}, {0xFB01}},
            {{0xFB1D}, {0x05D9, 0x05B4}},
            {{0x1D15E}, {0x1D157, 0x1D165}},
            {{0x2F868}, {0x36FC}},
            // Part 3, what stands between blocks
            {{0x09C7, 0x0334, 0x09BE}, {0x09C7, 0x0334, 0x09BE}},
            {{0x1100, 0x0300, 0x1161}, {0x1100, 0x0300, 0x1161}},
            {{0x0B47, 0x0300, 0x0B3E}, {0x0B47, 0x0300, 0x0B3E}},
            // Annex #15
            {{0x1111, 0x1171, 0x11B6}, {0xD4DB}},
            {{0x1E69}, {0x1E69}},
            {{0x0073, 0x0307, 0x0323}, {0x1E69}},
            {{0x1E0B, 0x0323}, {0x1E0D, 0x0307}},
            {{0x0071, 0x0307, 0x0323}, {0x0071, 0x0323, 0x0307}},
            {{0x1E9B, 0x0323}, {0x1E9B, 0x0323}},
        };
        for (const auto& [source, expected] : examples) {
            QCOMPARE(toNfc(utf8(source)), utf8(expected));
            QCOMPARE(toNfc(utf8(expected)), utf8(expected));
        }
        QCOMPARE(toNfc(""), std::string());
        QCOMPARE(toNfc("plain ASCII\n"), std::string("plain ASCII\n"));
    }

    // Qt's own normaliser is the witness: random texts of letters, marks, jamo and what else
    // composes.
    void agreesWithQt() {
        std::mt19937_64 random(3);
        const std::pair<char32_t, char32_t> ranges[] = {
            {0x20, 0x7e},     {0xa0, 0x17f},    {0x300, 0x345},    {0x391, 0x3a1},
            {0x5b0, 0x5bd},   {0x9c7, 0x9c8},   {0x9be, 0x9be},    {0x1100, 0x1112},
            {0x1161, 0x1175}, {0x11a8, 0x11c2}, {0xac00, 0xac40},  {0x1e00, 0x1eff},
            {0x304b, 0x3062}, {0x3099, 0x3099}, {0x1d157, 0x1d164}};
        for (int round = 0; round < 5'000; ++round) {
            Codes codes;
            // Some are longer than a segment, with ASCII in it.
            const int count = round % 1'000 == 0 ? 20'000 : static_cast<int>(random() % 24);
            for (int i = 0; i < count; ++i) {
                const auto& [low, high] = ranges[random() % std::size(ranges)];
                codes.push_back(low + static_cast<char32_t>(random() % (high - low + 1)));
            }
            const std::string text = utf8(codes);
            const std::string expected =
                QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()))
                    .normalized(QString::NormalizationForm_C)
                    .toUtf8()
                    .toStdString();
            QCOMPARE(toNfc(text), expected);
        }
    }

    // Bytes that are no UTF-8 stay where they are and part the text; nothing crashes.
    void hostileBytesStay() {
        QCOMPARE(toNfc("e\xff\u0301"), std::string("e\xff\u0301"));
        QCOMPARE(toNfc("e\u0301\xcc"), std::string("\u00e9\xcc"));
        QCOMPARE(toNfc("\xed\xa0\x80 e\u0301"), std::string("\xed\xa0\x80 \u00e9"));
        QCOMPARE(toNfc("\xf4\x90\x80\x80"), std::string("\xf4\x90\x80\x80"));
        QCOMPARE(toNfc(std::string("e\0\u0301", 4)), std::string("e\0\u0301", 4));
        std::mt19937_64 random(9);
        for (int round = 0; round < 20'000; ++round) {
            std::string text;
            for (int i = static_cast<int>(random() % 40); i > 0; --i) {
                text += static_cast<char>(random() % 3 == 0 ? 0xcc : random());
            }
            const std::string once = toNfc(text);
            QCOMPARE(toNfc(once), once);
        }
    }

    // A run of marks that stand in the wrong order: sorted by exchanging neighbours this would take
    // hours.
    void manyMarksTakeNoLonger() {
        const int count = 1'000'000;
        Codes codes = {'a'};
        for (int i = 0; i < count; ++i) codes.push_back(i % 2 == 0 ? 0x0302 : 0x0323);
        const std::string normal = toNfc(utf8(codes));
        Codes expected = {0x1EAD};  // a with both
        for (int i = 1; i < count / 2; ++i) expected.push_back(0x0323);
        for (int i = 1; i < count / 2; ++i) expected.push_back(0x0302);
        QVERIFY(normal == utf8(expected));
    }
};

QTEST_GUILESS_MAIN(NfcTest)
#include "nfc_test.moc"
