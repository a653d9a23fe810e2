// SPDX-License-Identifier: MIT
#include "engine/model/gguf.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <malloc.h>
#include <new>
#include <random>
#include <sys/stat.h>

#include <QCryptographicHash>
#include <QDir>
#include <QFile>
#include <QTemporaryDir>
#include <QTest>

#include "engine/error.h"
#include "engine/model/gguf_writer.h"
#include "tests/support/expect_error.h"

// Counts what the code under test allocates: a hostile file must not make the reader ask for much
// more than the file's size.
namespace {

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};

void countAllocation(void* pointer) {
    const int64_t now = live_bytes.fetch_add(static_cast<int64_t>(malloc_usable_size(pointer))) +
                        static_cast<int64_t>(malloc_usable_size(pointer));
    int64_t peak = peak_bytes.load();
    while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
    }
}

void releaseCounted(void* pointer) {
    if (pointer == nullptr) return;
    live_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(pointer)));
    std::free(pointer);
}

}  // namespace

void* operator new(size_t num_bytes) {
    void* pointer = std::malloc(num_bytes);
    if (pointer == nullptr) throw std::bad_alloc();
    countAllocation(pointer);
    return pointer;
}
void* operator new[](size_t num_bytes) { return operator new(num_bytes); }
void operator delete(void* pointer) noexcept { releaseCounted(pointer); }
void operator delete(void* pointer, size_t) noexcept { releaseCounted(pointer); }
void operator delete[](void* pointer) noexcept { releaseCounted(pointer); }
void operator delete[](void* pointer, size_t) noexcept { releaseCounted(pointer); }

namespace kvlab {
namespace {

// Raw bytes of a GGUF file, piece by piece.
class Bytes {
  public:
    template <class T>
    Bytes& number(T value) {
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
        return *this;
    }
    Bytes& u32(uint32_t value) { return number(value); }
    Bytes& u64(uint64_t value) { return number(value); }
    Bytes& text(std::string_view value) {
        u64(value.size());
        bytes_.append(value.data(), static_cast<qsizetype>(value.size()));
        return *this;
    }
    Bytes& header(uint64_t num_tensors, uint64_t num_keys, uint32_t version = 3) {
        bytes_.append("GGUF");
        return u32(version).u64(num_tensors).u64(num_keys);
    }
    Bytes& tensor(std::string_view name,
                  const std::vector<uint64_t>& dimensions,
                  uint32_t type,
                  uint64_t offset) {
        text(name).u32(static_cast<uint32_t>(dimensions.size()));
        for (const uint64_t dimension : dimensions) u64(dimension);
        return u32(type).u64(offset);
    }
    Bytes& data(int num_bytes) {
        bytes_.append(QByteArray((32 - bytes_.size() % 32) % 32, '\0'));
        bytes_.append(QByteArray(num_bytes, '\1'));
        return *this;
    }
    const QByteArray& get() const { return bytes_; }

  private:
    QByteArray bytes_;
};

// Reads everything a caller could read.
uint64_t readAll(const GgufFile& file) {
    uint64_t sum = 0;
    for (const GgufTensor& tensor : file.tensors()) {
        const auto num_bytes = static_cast<size_t>(tensor.numBytes());
        for (size_t i = 0; i < num_bytes; ++i) sum += static_cast<uint64_t>(tensor.data[i]);
        if (reinterpret_cast<uintptr_t>(tensor.data) % 4 != 0) qFatal("misaligned tensor");
    }
    return sum + file.sha256().size();
}

}  // namespace

class GgufTest : public QObject {
    Q_OBJECT

  private:
    QTemporaryDir dir_;

    std::string pathOf(const char* name) const { return dir_.filePath(name).toStdString(); }
    std::string save(const QByteArray& bytes, const char* name = "case.gguf") const {
        QFile file(dir_.filePath(name));
        // In place: some file systems flush a file that was truncated and written again.
        if (!file.open(QIODevice::ReadWrite)) qFatal("cannot write");
        file.write(bytes);
        if (file.size() != bytes.size()) file.resize(bytes.size());
        file.close();
        return pathOf(name);
    }

    // A small file with every kind of value that the writer knows and each tensor type.
    QByteArray smallFile() const {
        static const float kFloats[] = {1.f, -2.f, 3.5f, 0.f, 1e-9f, 65504.f};
        static const uint16_t kHalves[] = {0x3c00, 0xc000, 0x7bff, 0x0001};
        static const uint16_t kBfloats[] = {0x3f80, 0xc000, 0x4049};
        static const uint8_t kBlocks[2 * 18] = {0x00, 0x3c, 0x12};
        GgufWriter writer;
        writer.setString("general.architecture", "llama");
        writer.setUint32("llama.block_count", 4);
        writer.setFloat32("llama.rope.freq_base", 1e6f);
        writer.setBool("tokenizer.ggml.add_bos_token", true);
        writer.setStrings("tokenizer.ggml.tokens", {"<unk>", "▁key", ""});
        writer.setFloats("tokenizer.ggml.scores", {0.f, -1.f, -2.5f});
        writer.setInts("tokenizer.ggml.token_type", {2, 1, -5});
        writer.addTensor("a.weight", {2, 3}, TensorType::kF32, kFloats);
        writer.addTensor("b.weight", {4}, TensorType::kF16, kHalves);
        writer.addTensor("c.weight", {3, 1, 1}, TensorType::kBF16, kBfloats);
        writer.addTensor("d.weight", {2, 32}, TensorType::kQ4_0, kBlocks);
        const std::string path = pathOf("small.gguf");
        writer.write(path);
        QFile file(QString::fromStdString(path));
        if (!file.open(QIODevice::ReadOnly)) qFatal("cannot read back");
        return file.readAll();
    }

  private slots:
    void readsBackWhatTheWriterWrote() {
        const QByteArray bytes = smallFile();
        const auto file = GgufFile::open(pathOf("small.gguf"));
        QCOMPARE(file->version(), 3u);
        QCOMPARE(file->metadata().size(), size_t{7});
        QCOMPARE(file->getString("general.architecture", ""), std::string("llama"));
        QCOMPARE(file->getInt("llama.block_count", 0), int64_t{4});
        QCOMPARE(file->getFloat("llama.rope.freq_base", 0), 1e6);
        QCOMPARE(file->getBool("tokenizer.ggml.add_bos_token", false), true);
        QCOMPARE(std::get<std::vector<std::string>>(file->metadata().at("tokenizer.ggml.tokens")),
                 (std::vector<std::string>{"<unk>", "▁key", ""}));
        QCOMPARE(std::get<std::vector<double>>(file->metadata().at("tokenizer.ggml.scores")),
                 (std::vector<double>{0, -1, -2.5}));
        QCOMPARE(std::get<std::vector<int64_t>>(file->metadata().at("tokenizer.ggml.token_type")),
                 (std::vector<int64_t>{2, 1, -5}));
        QCOMPARE(file->tensors().size(), size_t{4});
        const GgufTensor* a = file->find("a.weight");
        QVERIFY(a != nullptr);
        QCOMPARE(a->shape, (std::vector<int64_t>{2, 3}));
        QCOMPARE(a->numElements(), int64_t{6});
        float values[6];
        std::memcpy(values, a->data, sizeof(values));
        QCOMPARE(values[2], 3.5f);
        QCOMPARE(file->find("b.weight")->type, TensorType::kF16);
        QCOMPARE(file->find("c.weight")->type, TensorType::kBF16);
        QCOMPARE(file->find("c.weight")->shape, (std::vector<int64_t>{3, 1, 1}));
        QCOMPARE(file->find("missing"), nullptr);
        QCOMPARE(file->sha256(),
                 QCryptographicHash::hash(bytes, QCryptographicHash::Sha256).toHex().toStdString());
    }

    void readsEveryScalarAndArrayKind() {
        Bytes bytes;
        bytes.header(0, 17);
        bytes.text("u8").u32(0).number(uint8_t{255});
        bytes.text("i8").u32(1).number(int8_t{-128});
        bytes.text("u16").u32(2).number(uint16_t{65535});
        bytes.text("i16").u32(3).number(int16_t{-32768});
        bytes.text("u32").u32(4).number(uint32_t{4294967295u});
        bytes.text("i32").u32(5).number(int32_t{-7});
        bytes.text("f32").u32(6).number(0.5f);
        bytes.text("bool").u32(7).number(uint8_t{1});
        bytes.text("u64").u32(10).u64(uint64_t{1} << 40);
        bytes.text("i64").u32(11).number(int64_t{-9});
        bytes.text("f64").u32(12).number(0.25);
        bytes.text("huge").u32(10).u64(~uint64_t{0});
        bytes.text("a.u8").u32(9).u32(0).u64(2).number(uint8_t{1}).number(uint8_t{200});
        bytes.text("a.f64").u32(9).u32(12).u64(1).number(2.5);
        bytes.text("a.bool").u32(9).u32(7).u64(2).number(uint8_t{1}).number(uint8_t{0});
        bytes.text("a.i64").u32(9).u32(11).u64(1).number(int64_t{-1});
        bytes.text("a.u64").u32(9).u32(10).u64(1).u64(5);
        const auto file = GgufFile::open(save(bytes.get()));
        QCOMPARE(file->getInt("u8", 0), int64_t{255});
        QCOMPARE(file->getInt("i8", 0), int64_t{-128});
        QCOMPARE(file->getInt("u16", 0), int64_t{65535});
        QCOMPARE(file->getInt("i16", 0), int64_t{-32768});
        QCOMPARE(file->getInt("u32", 0), int64_t{4294967295});
        QCOMPARE(file->getInt("i32", 0), int64_t{-7});
        QCOMPARE(file->getFloat("f32", 0), 0.5);
        QCOMPARE(file->getBool("bool", false), true);
        QCOMPARE(file->getInt("u64", 0), int64_t{1} << 40);
        QCOMPARE(file->getInt("i64", 0), int64_t{-9});
        QCOMPARE(file->getFloat("f64", 0), 0.25);
        QCOMPARE(std::get<std::vector<int64_t>>(file->metadata().at("a.u8")),
                 (std::vector<int64_t>{1, 200}));
        QCOMPARE(std::get<std::vector<double>>(file->metadata().at("a.f64")),
                 std::vector<double>{2.5});
        QCOMPARE(std::get<std::vector<bool>>(file->metadata().at("a.bool")),
                 (std::vector<bool>{true, false}));
        QCOMPARE(std::get<std::vector<int64_t>>(file->metadata().at("a.i64")),
                 std::vector<int64_t>{-1});
        QCOMPARE(std::get<std::vector<int64_t>>(file->metadata().at("a.u64")),
                 std::vector<int64_t>{5});
        expectError(ErrorKind::kBadFile, "huge", [&] { file->getInt("huge", 0); });
    }

    void typedAccessNamesTheKindItFound() {
        smallFile();
        const auto file = GgufFile::open(pathOf("small.gguf"));
        QCOMPARE(file->getInt("missing", 17), int64_t{17});
        QCOMPARE(file->getString("missing", "x"), std::string("x"));
        expectError(ErrorKind::kBadFile, "is a string where an integer",
                    [&] { file->getInt("general.architecture", 0); });
        expectError(ErrorKind::kBadFile, "an integer where a string",
                    [&] { file->getString("llama.block_count", ""); });
        expectError(ErrorKind::kBadFile, "a floating-point number where a boolean",
                    [&] { file->getBool("llama.rope.freq_base", false); });
        expectError(ErrorKind::kBadFile, "a string array where a floating-point number",
                    [&] { file->getFloat("tokenizer.ggml.tokens", 0); });
    }

    void readsVersion2AndRefusesOthers() {
        QByteArray bytes = smallFile();
        bytes[4] = 2;
        QCOMPARE(GgufFile::open(save(bytes))->version(), 2u);
        for (const char version : {'\0', '\1', '\4'}) {
            bytes[4] = version;
            expectError(ErrorKind::kUnsupported, "version", [&] { GgufFile::open(save(bytes)); });
        }
        bytes.replace(4, 4, QByteArray("\0\0\0\3", 4));
        expectError(ErrorKind::kUnsupported, "big-endian", [&] { GgufFile::open(save(bytes)); });
    }

    void refusesWhatIsNoFile() {
        expectError(ErrorKind::kBadFile, "does not exist; give the path",
                    [&] { GgufFile::open(pathOf("none")); });
        expectError(ErrorKind::kBadFile, "is a folder; give the path",
                    [&] { GgufFile::open(dir_.path().toStdString()); });
        QVERIFY(::mkfifo(pathOf("pipe").c_str(), 0600) == 0);
        expectError(ErrorKind::kBadFile, "is a pipe, not a file",
                    [&] { GgufFile::open(pathOf("pipe")); });
        expectError(ErrorKind::kBadFile, "0 bytes", [&] { GgufFile::open(save("")); });
        expectError(ErrorKind::kBadFile, "letters GGUF",
                    [&] { GgufFile::open(save("PK\3\4 an archive")); });
    }

    void refusesDamage_data() {
        QTest::addColumn<QByteArray>("bytes");
        QTest::addColumn<QString>("part");
        const auto row = [](const char* name, const Bytes& bytes, const char* part) {
            QTest::newRow(name) << bytes.get() << QString(part);
        };
        const uint64_t huge = uint64_t{1} << 60;
        row("tensor count", Bytes().header(huge, 0), "claims");
        row("key count", Bytes().header(0, huge), "claims");
        row("key count beyond the end", Bytes().header(0, 3), "ends inside a key");
        row("endless key", Bytes().header(0, 1).u64(~uint64_t{0}), "length of a key");
        row("endless string", Bytes().header(0, 1).text("k").u32(8).u64(huge), "length of a value");
        row("empty key", Bytes().header(0, 1).text("").u32(4).u32(1), "empty or not printable");
        row("control character", Bytes().header(0, 1).text("a\nb").u32(4).u32(1), "not printable");
        row("not UTF-8", Bytes().header(0, 1).text("\xff\xfe").u32(4).u32(1), "not valid UTF-8");
        row("unknown value type", Bytes().header(0, 1).text("k").u32(13).u64(0), "unknown type 13");
        row("unknown element type", Bytes().header(0, 1).text("k").u32(9).u32(77).u64(0),
            "unknown element type 77");
        row("nested array", Bytes().header(0, 1).text("k").u32(9).u32(9).u64(1).u32(4).u64(0),
            "holds arrays");
        row("endless array", Bytes().header(0, 1).text("k").u32(9).u32(0).u64(huge),
            "more than fit");
        row("endless string array", Bytes().header(0, 1).text("k").u32(9).u32(8).u64(huge),
            "more than fit");
        row("array of 2^63 bytes", Bytes().header(0, 1).text("k").u32(9).u32(4).u64(huge * 2),
            "more than fit");
        row("boolean 2", Bytes().header(0, 1).text("k").u32(7).number(uint8_t{2}),
            "neither 0 nor 1");
        row("same key twice", Bytes().header(0, 2).text("k").u32(4).u32(1).text("k").u32(4).u32(2),
            "appears twice");
        for (const uint32_t alignment : {0u, 1u, 4u, 24u, 1u << 30}) {
            row(qPrintable(QString("alignment %1").arg(alignment)),
                Bytes().header(0, 1).text("general.alignment").u32(4).u32(alignment), "alignment");
        }
        row("alignment of another kind",
            Bytes().header(0, 1).text("general.alignment").u32(8).text("32"), "an integer");
        row("no dimension", Bytes().header(1, 0).tensor("t", {}, 0, 0).data(64), "0 dimensions");
        row("five dimensions", Bytes().header(1, 0).tensor("t", {1, 1, 1, 1, 1}, 0, 0).data(64),
            "5 dimensions");
        row("empty dimension", Bytes().header(1, 0).tensor("t", {4, 0}, 0, 0).data(64),
            "dimension of 0");
        row("huge dimension", Bytes().header(1, 0).tensor("t", {huge}, 0, 0).data(64),
            "cannot hold");
        row("product of 2^64",
            Bytes()
                .header(1, 0)
                .tensor("t", {1u << 16, 1u << 16, 1u << 16, 1u << 16}, 0, 0)
                .data(64),
            "cannot hold");
        row("beyond the end", Bytes().header(1, 0).tensor("t", {17}, 0, 0).data(64), "beyond");
        row("offset beyond the end", Bytes().header(1, 0).tensor("t", {1}, 0, huge).data(64),
            "beyond");
        row("no data at all", Bytes().header(1, 0).tensor("t", {1}, 0, 0), "beyond");
        row("misaligned", Bytes().header(1, 0).tensor("t", {1}, 0, 4).data(64), "multiple of 32");
        row("overlap",
            Bytes().header(2, 0).tensor("t", {16}, 0, 0).tensor("u", {1}, 0, 32).data(96),
            "overlaps");
        row("same tensor twice",
            Bytes().header(2, 0).tensor("t", {1}, 0, 0).tensor("t", {1}, 0, 32).data(64),
            "appears twice");
        row("empty tensor name", Bytes().header(1, 0).tensor("", {1}, 0, 0).data(64),
            "not printable");
    }
    void refusesDamage() {
        QFETCH(QByteArray, bytes);
        QFETCH(QString, part);
        const std::string path = save(bytes);
        expectError(ErrorKind::kBadFile, part.toUtf8().constData(), [&] { GgufFile::open(path); });
    }

    void namesUnsupportedTensorTypes() {
        const std::pair<uint32_t, const char*> cases[] = {
            {3, "Q4_1"}, {6, "Q5_0"}, {13, "Q5_K"},     {10, "Q2_K"},
            {28, "F64"}, {24, "I8"},  {39, "as MXFP4"}, {5000, "number 5000"}};
        for (const auto& [type, name] : cases) {
            const std::string path =
                save(Bytes().header(1, 0).tensor("t", {32}, type, 0).data(256).get());
            expectError(ErrorKind::kUnsupported, name, [&] { GgufFile::open(path); });
        }
    }

    // Blocks of 18 to 210 bytes: sizes are counted in whole blocks, and a row is never cut.
    void readsQuantisedTensors() {
        const std::pair<uint32_t, TensorType> types[] = {{2, TensorType::kQ4_0},
                                                         {8, TensorType::kQ8_0},
                                                         {12, TensorType::kQ4_K},
                                                         {14, TensorType::kQ6_K}};
        for (const auto& [number, type] : types) {
            const auto block = static_cast<uint64_t>(tensorBlockValues(type));
            const int block_bytes = tensorBlockBytes(type);
            const auto file = GgufFile::open(save(Bytes()
                                                      .header(1, 0)
                                                      .tensor("t", {2 * block, 3}, number, 0)
                                                      .data(6 * block_bytes)
                                                      .get()));
            const GgufTensor* tensor = file->find("t");
            QCOMPARE(tensor->type, type);
            QCOMPARE(tensor->shape, (std::vector<int64_t>{3, 2 * tensorBlockValues(type)}));
            QCOMPARE(tensor->numBytes(), int64_t{6} * block_bytes);
            readAll(*file);
            expectError(ErrorKind::kBadFile, "beyond the end", [&] {
                GgufFile::open(save(Bytes()
                                        .header(1, 0)
                                        .tensor("t", {2 * block, 3}, number, 0)
                                        .data(6 * block_bytes - 1)
                                        .get()));
            });
            for (const uint64_t length : {uint64_t{1}, block / 2, block + 1, 3 * block - 16}) {
                expectError(ErrorKind::kBadFile, "stores blocks of", [&] {
                    GgufFile::open(save(Bytes()
                                            .header(1, 0)
                                            .tensor("t", {length, block}, number, 0)
                                            .data(8 * block_bytes * 64)
                                            .get()));
                });
            }
            // The second starts inside the last block of the first.
            const auto inside = static_cast<uint64_t>(6 * block_bytes - 1) / 32 * 32;
            expectError(ErrorKind::kBadFile, "overlaps", [&] {
                GgufFile::open(save(Bytes()
                                        .header(2, 0)
                                        .tensor("t", {2 * block, 3}, number, 0)
                                        .tensor("u", {1}, 0, inside)
                                        .data(6 * block_bytes + 64)
                                        .get()));
            });
            const std::vector<std::byte> stored(static_cast<size_t>(2 * block_bytes), std::byte{7});
            GgufWriter writer;
            writer.addTensor("t", {2, static_cast<int64_t>(block)}, type, stored.data());
            expectError(ErrorKind::kBadArgument, "stores blocks of", [&] {
                writer.addTensor("u", {2, static_cast<int64_t>(block) - 1}, type, stored.data());
            });
            writer.write(pathOf("quantised.gguf"));
            const auto written = GgufFile::open(pathOf("quantised.gguf"));
            QCOMPARE(written->find("t")->type, type);
            QVERIFY(std::memcmp(written->find("t")->data, stored.data(), stored.size()) == 0);
        }
    }

    void acceptsOtherAlignments() {
        Bytes bytes;
        bytes.header(2, 1).text("general.alignment").u32(4).u32(8);
        bytes.tensor("t", {1}, 0, 0).tensor("u", {1}, 1, 8).data(16);
        const auto file = GgufFile::open(save(bytes.get()));
        QCOMPARE(file->find("u")->data - file->find("t")->data, std::ptrdiff_t{8});
    }

    // No length of a valid file may do worse than a sentence.
    void survivesEveryTruncation() {
        const QByteArray bytes = smallFile();
        int num_opened = 0;
        for (int length = 0; length < bytes.size(); ++length) {
            try {
                readAll(*GgufFile::open(save(bytes.left(length))));
                ++num_opened;
            } catch (const EngineError& error) {
                QVERIFY2(error.kind() != ErrorKind::kInternal, error.what());
            }
        }
        QVERIFY(num_opened <= 32);  // only the padding behind the last tensor may be missing
    }

    void survivesBitFlipsWithoutLargeAllocations() {
        const QByteArray bytes = smallFile();
        std::mt19937 random(20240607);
        int num_refused = 0;
        for (int i = 0; i < 6000; ++i) {
            QByteArray damaged = bytes;
            const int num_flips = 1 + static_cast<int>(random() % 3);
            for (int flip = 0; flip < num_flips; ++flip) {
                const auto at =
                    static_cast<qsizetype>(random() % static_cast<unsigned>(bytes.size()));
                damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
            }
            const std::string path = save(damaged);
            const int64_t before = live_bytes.load();
            peak_bytes.store(before);
            try {
                readAll(*GgufFile::open(path));
            } catch (const EngineError&) {
                ++num_refused;
            }
            const int64_t used = peak_bytes.load() - before;
            QVERIFY2(used < bytes.size() + 65536,
                     qPrintable(QString("case %1 used %2 bytes").arg(i).arg(used)));
        }
        QVERIFY(num_refused > 1000);
    }

    void boundsMemoryOfDenseArrays() {
        // Every byte of the array becomes an int64: the densest growth there is.
        constexpr uint64_t kNumElements = 1 << 21;
        Bytes bytes;
        bytes.header(0, 1).text("k").u32(9).u32(0).u64(kNumElements);
        QByteArray data = bytes.get() + QByteArray(kNumElements, '\1');
        const std::string path = save(data);
        const int64_t before = live_bytes.load();
        peak_bytes.store(before);
        GgufFile::open(path);
        QVERIFY(peak_bytes.load() - before <= static_cast<int64_t>(kNumElements) * 8 + 65536);
        bytes = Bytes();
        bytes.header(0, 1).text("k").u32(9).u32(0).u64(1 << 23);
        data = bytes.get() + QByteArray(1 << 23, '\1');
        expectError(ErrorKind::kBadFile, "its arrays hold more than",
                    [&] { GgufFile::open(save(data)); });
    }

    void writerLeavesNothingBehindWhenItFails() {
        const float value = 1.f;
        GgufWriter writer;
        writer.addTensor("t", {1}, TensorType::kF32, &value);
        expectError(ErrorKind::kBadFile, "cannot write",
                    [&] { writer.write(pathOf("missing/folder.gguf")); });
        // A folder of that name cannot be replaced: the temporary file must go again.
        QVERIFY(QDir(dir_.path()).mkdir("taken.gguf"));
        const auto num_entries = QDir(dir_.path()).entryList(QDir::AllEntries).size();
        expectError(ErrorKind::kBadFile, "cannot write",
                    [&] { writer.write(pathOf("taken.gguf")); });
        QCOMPARE(QDir(dir_.path()).entryList(QDir::AllEntries).size(), num_entries);
        writer.write(pathOf("good.gguf"));
        QCOMPARE(QDir(dir_.path()).entryList(QDir::AllEntries).size(), num_entries + 1);
        GgufFile::open(pathOf("good.gguf"));
    }

    void writerRefusesWhatTheReaderWould() {
        const float value = 1.f;
        GgufWriter writer;
        writer.addTensor("t", {1}, TensorType::kF32, &value);
        writer.addTensor("t", {1}, TensorType::kF32, &value);
        expectError(ErrorKind::kBadArgument, "twice", [&] { writer.write(pathOf("twice.gguf")); });
        GgufWriter keys;
        keys.setUint32("k", 1);
        keys.setBool("k", true);
        expectError(ErrorKind::kBadArgument, "twice", [&] { keys.write(pathOf("twice.gguf")); });
        GgufWriter shapes;
        const std::vector<std::vector<int64_t>> impossible = {
            {}, {0}, {-1}, {1, 1, 1, 1, 1}, {int64_t{1} << 40, int64_t{1} << 40}};
        for (const std::vector<int64_t>& shape : impossible) {
            expectError(ErrorKind::kBadArgument, "dimensions",
                        [&] { shapes.addTensor("t", shape, TensorType::kF32, &value); });
        }
        QVERIFY(!QFile::exists(dir_.filePath("twice.gguf")));
    }
};

}  // namespace kvlab

using kvlab::GgufTest;
QTEST_GUILESS_MAIN(GgufTest)
#include "gguf_test.moc"
