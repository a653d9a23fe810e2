// SPDX-License-Identifier: MIT
#include "engine/sha256.h"

#include <QCryptographicHash>
#include <QTest>

using namespace kvlab;

class Sha256Test : public QObject {
    Q_OBJECT

  private slots:
    // FIPS 180-4's example, as NIST publishes it.
    void theStandardsExample() {
        const std::string expected =
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        QCOMPARE(sha256Hex("abc"), expected);
        QCOMPARE(sha256HexPortable("abc"), expected);
    }

    // Around the lengths where the padding takes another block; Qt's own code is the witness.
    void everyLength() {
        std::string text;
        for (int length = 0; length < 300; ++length) {
            const QByteArray bytes(text.data(), static_cast<qsizetype>(text.size()));
            const std::string expected =
                QCryptographicHash::hash(bytes, QCryptographicHash::Sha256).toHex().toStdString();
            QCOMPARE(sha256HexPortable(text), expected);
            QCOMPARE(sha256Hex(text), expected);
            text += static_cast<char>(37 * length + 11);
        }
    }
};

QTEST_GUILESS_MAIN(Sha256Test)
#include "sha256_test.moc"
