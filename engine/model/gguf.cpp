// SPDX-License-Identifier: MIT
#include "engine/model/gguf.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <unordered_map>
#include <utility>

#include "engine/error.h"
#include "engine/input_file.h"
#include "engine/model/utf8.h"
#include "engine/sha256.h"

namespace kvlab {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF numbers are read in place");

// Bounds on what one file may make us build. The largest published files stay far below: about
// 1.3 million array elements (262 144 tokens), 1 200 tensors, 100 keys. They keep a small hostile
// file, where one byte can claim a 32-byte string object, from filling the memory.
constexpr uint64_t kMaxArrayElements = uint64_t{1} << 22;
constexpr uint64_t kMaxKeys = uint64_t{1} << 16;
constexpr uint64_t kMaxTensors = uint64_t{1} << 16;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
constexpr uint32_t kMaxDimensions = 4;

enum class ValueType : uint32_t {
    kUint8 = 0,
    kInt8 = 1,
    kUint16 = 2,
    kInt16 = 3,
    kUint32 = 4,
    kInt32 = 5,
    kFloat32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kUint64 = 10,
    kInt64 = 11,
    kFloat64 = 12,
};

// Names of ggml's tensor types by number (specification: docs/gguf.md, enum ggml_type); only the
// message needs them.
std::string ggmlTypeName(uint32_t type) {
    static const char* const kNames[] = {
        "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
        "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
        "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
        "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
        "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
        "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4"};
    if (type < std::size(kNames)) return kNames[type];
    return "number " + std::to_string(type);
}

std::optional<TensorType> tensorTypeByNumber(uint32_t type) {
    switch (type) {
        case 0:
            return TensorType::kF32;
        case 1:
            return TensorType::kF16;
        case 2:
            return TensorType::kQ4_0;
        case 8:
            return TensorType::kQ8_0;
        case 12:
            return TensorType::kQ4_K;
        case 14:
            return TensorType::kQ6_K;
        case 30:
            return TensorType::kBF16;
        default:
            return std::nullopt;
    }
}

[[noreturn]] void failBadFile(const std::string& path, const std::string& what) {
    throw EngineError(ErrorKind::kBadFile, quotedForMessage(path) + " is not a usable GGUF file: " +
                                               what + "; fetch or export the file again");
}

[[noreturn]] void failSystem(const std::string& path, const char* action, int error_number) {
    // Mapping takes addresses, which ulimit -v counts.
    const char* const advice = error_number == ENOMEM
                                   ? "; raise the limit on this process's memory (ulimit -v) or "
                                     "choose a smaller model"
                                   : "; check the path and its permissions";
    throw EngineError(ErrorKind::kBadFile,
                      std::string("cannot ") + action + " " + quotedForMessage(path) + ": " +
                          std::generic_category().message(error_number) + advice);
}

// Reads the header front to back; nothing leaves it that was not inside the file.
class HeaderReader {
  public:
    HeaderReader(const std::byte* data, uint64_t size, const std::string& path)
        : data_(data), size_(size), path_(path) {}

    uint64_t position() const { return pos_; }
    uint64_t remaining() const { return size_ - pos_; }

    [[noreturn]] void fail(const std::string& what) const { failBadFile(path_, what); }

    template <class T>
    T readNumber(const char* what) {
        if (remaining() < sizeof(T)) {
            fail(std::string("it ends inside ") + what + " at byte " + std::to_string(pos_));
        }
        T value;
        std::memcpy(&value, data_ + pos_, sizeof(T));
        pos_ += sizeof(T);
        return value;
    }

    std::string readString(const char* what, uint64_t max_bytes) {
        const auto length = readNumber<uint64_t>(what);
        if (length > max_bytes || length > remaining()) {
            fail(std::string("the length of ") + what + " at byte " + std::to_string(pos_ - 8) +
                 " is " + std::to_string(length) + ", more than " +
                 (length > remaining() ? "is left in the file" : "is allowed"));
        }
        std::string text(reinterpret_cast<const char*>(data_ + pos_), length);
        pos_ += length;
        if (!isValidUtf8(text)) {
            fail(std::string(what) + " at byte " + std::to_string(pos_ - length) +
                 " is not valid UTF-8");
        }
        return text;
    }

    bool readBool(const char* what) {
        const auto byte = readNumber<uint8_t>(what);
        if (byte > 1) {
            fail(std::string(what) + " at byte " + std::to_string(pos_ - 1) +
                 " is a boolean that is neither 0 nor 1");
        }
        return byte == 1;
    }

    GgufValue readValue(const std::string& key) {
        const auto type = readNumber<uint32_t>("a value type");
        switch (static_cast<ValueType>(type)) {
            case ValueType::kUint8:
                return int64_t{readNumber<uint8_t>("a value")};
            case ValueType::kInt8:
                return int64_t{readNumber<int8_t>("a value")};
            case ValueType::kUint16:
                return int64_t{readNumber<uint16_t>("a value")};
            case ValueType::kInt16:
                return int64_t{readNumber<int16_t>("a value")};
            case ValueType::kUint32:
                return int64_t{readNumber<uint32_t>("a value")};
            case ValueType::kInt32:
                return int64_t{readNumber<int32_t>("a value")};
            case ValueType::kInt64:
                return readNumber<int64_t>("a value");
            case ValueType::kUint64:
                return readNumber<uint64_t>("a value");
            case ValueType::kFloat32:
                return double{readNumber<float>("a value")};
            case ValueType::kFloat64:
                return readNumber<double>("a value");
            case ValueType::kBool:
                return readBool("a value");
            case ValueType::kString:
                return readString("a value", size_);
            case ValueType::kArray:
                return readArray(key);
        }
        fail("the value of " + quotedForMessage(key) + " has the unknown type " +
             std::to_string(type));
    }

  private:
    GgufValue readArray(const std::string& key) {
        const auto type = readNumber<uint32_t>("an array's element type");
        const auto count = readNumber<uint64_t>("an array's length");
        const auto value_type = static_cast<ValueType>(type);
        uint64_t min_element_bytes = 1;
        switch (value_type) {
            case ValueType::kUint8:
            case ValueType::kInt8:
            case ValueType::kBool:
                break;
            case ValueType::kUint16:
            case ValueType::kInt16:
                min_element_bytes = 2;
                break;
            case ValueType::kUint32:
            case ValueType::kInt32:
            case ValueType::kFloat32:
                min_element_bytes = 4;
                break;
            case ValueType::kString:  // its length field
            case ValueType::kUint64:
            case ValueType::kInt64:
            case ValueType::kFloat64:
                min_element_bytes = 8;
                break;
            case ValueType::kArray:
                fail("the array " + quotedForMessage(key) +
                     " holds arrays, which no model file needs");
            default:
                fail("the array " + quotedForMessage(key) + " has the unknown element type " +
                     std::to_string(type));
        }
        if (count > remaining() / min_element_bytes) {
            fail("the array " + quotedForMessage(key) + " claims " + std::to_string(count) +
                 " elements, more than fit into the file");
        }
        if (count > kMaxArrayElements - num_array_elements_) {
            fail("its arrays hold more than " + std::to_string(kMaxArrayElements) + " elements");
        }
        num_array_elements_ += count;
        switch (value_type) {
            case ValueType::kUint8:
                return readElements<int64_t, uint8_t>(count);
            case ValueType::kInt8:
                return readElements<int64_t, int8_t>(count);
            case ValueType::kUint16:
                return readElements<int64_t, uint16_t>(count);
            case ValueType::kInt16:
                return readElements<int64_t, int16_t>(count);
            case ValueType::kUint32:
                return readElements<int64_t, uint32_t>(count);
            case ValueType::kInt32:
                return readElements<int64_t, int32_t>(count);
            case ValueType::kInt64:
                return readElements<int64_t, int64_t>(count);
            case ValueType::kFloat32:
                return readElements<double, float>(count);
            case ValueType::kFloat64:
                return readElements<double, double>(count);
            case ValueType::kUint64: {
                std::vector<int64_t> values;
                values.reserve(count);
                for (uint64_t i = 0; i < count; ++i) {
                    const auto value = readNumber<uint64_t>("an array");
                    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
                        fail("the array " + quotedForMessage(key) + " holds a number above 2^63");
                    }
                    values.push_back(static_cast<int64_t>(value));
                }
                return values;
            }
            case ValueType::kBool: {
                std::vector<bool> values;
                values.reserve(count);
                for (uint64_t i = 0; i < count; ++i) values.push_back(readBool("an array element"));
                return values;
            }
            default:
                break;
        }
        std::vector<std::string> values;
        values.reserve(count);
        for (uint64_t i = 0; i < count; ++i) values.push_back(readString("an array string", size_));
        return values;
    }

    template <class Out, class Stored>
    std::vector<Out> readElements(uint64_t count) {
        std::vector<Out> values;
        values.reserve(count);
        for (uint64_t i = 0; i < count; ++i) {
            values.push_back(static_cast<Out>(readNumber<Stored>("an array")));
        }
        return values;
    }

    const std::byte* data_;
    uint64_t size_;
    uint64_t pos_ = 0;
    uint64_t num_array_elements_ = 0;
    const std::string& path_;
};

// Names appear in messages, JSON and exports.
bool isPrintableName(std::string_view name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
        return static_cast<uint8_t>(c) > 0x20 && static_cast<uint8_t>(c) != 0x7f;
    });
}

const char* valueKindName(const GgufValue& value) {
    static const char* const kNames[] = {
        "a boolean",      "an integer",       "an integer",     "a floating-point number",
        "a string",       "an integer array", "a number array", "a string array",
        "a boolean array"};
    return kNames[value.index()];
}

}  // namespace

int64_t GgufTensor::numElements() const {
    int64_t num_elements = 1;  // cannot overflow: open() bounds the product by the file's size
    for (const int64_t size : shape) num_elements *= size;
    return num_elements;
}

struct GgufFile::Impl {
    std::string path;
    // The mapping stays valid while the file keeps its size: someone who truncates it in place
    // takes the pages away (SIGBUS), as with any mapped file; replacing it by rename is safe.
    const std::byte* data = nullptr;
    uint64_t size = 0;
    uint32_t version = 0;
    std::map<std::string, GgufValue> metadata;
    std::vector<GgufTensor> tensors;
    std::unordered_map<std::string, size_t> tensor_index;
    std::once_flag sha256_once;
    std::string sha256;

    ~Impl() {
        if (data != nullptr) ::munmap(const_cast<std::byte*>(data), size);
    }

    void map();
    void readHeader();
    void readTensors(HeaderReader& reader, uint64_t num_tensors, uint64_t alignment);
    [[noreturn]] void failKind(const std::string& key,
                               const GgufValue& value,
                               const char* wanted) const {
        failBadFile(path, "the value of " + quotedForMessage(key) + " is " + valueKindName(value) +
                              " where " + wanted + " is needed");
    }
};

void GgufFile::Impl::map() {
    // O_NONBLOCK: opening a named pipe must fail below, not wait for a writer.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        const int error_number = errno;
        checkInputFile(path, "give the path of a GGUF file");
        failSystem(path, "open", error_number);
    }
    struct stat info = {};
    if (::fstat(fd, &info) != 0) {
        const int error_number = errno;
        ::close(fd);
        failSystem(path, "read", error_number);
    }
    if (!S_ISREG(info.st_mode)) {
        ::close(fd);
        checkInputFile(path, "give the path of a GGUF file");
        failBadFile(path, "it is not a regular file");
    }
    if (info.st_size < 4) {
        ::close(fd);
        failBadFile(path, "it has only " + std::to_string(info.st_size) + " bytes");
    }
    size = static_cast<uint64_t>(info.st_size);
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    const int error_number = errno;
    ::close(fd);
    if (address == MAP_FAILED) failSystem(path, "map", error_number);
    data = static_cast<const std::byte*>(address);
}

void GgufFile::Impl::readHeader() {
    HeaderReader reader(data, size, path);
    if (reader.readNumber<uint32_t>("the magic") != 0x46554747u) {  // "GGUF"
        failBadFile(path, "it does not start with the letters GGUF");
    }
    version = reader.readNumber<uint32_t>("the version");
    if (version != 2 && version != 3) {
        const bool swapped = (version & 0xffffu) == 0 && version != 0;
        throw EngineError(
            ErrorKind::kUnsupported,
            quotedForMessage(path) +
                (swapped ? std::string(" is a big-endian GGUF file")
                         : " has GGUF version " + std::to_string(version)) +
                ", but only little-endian versions 2 and 3 are supported; export it again");
    }
    const auto num_tensors = reader.readNumber<uint64_t>("the number of tensors");
    const auto num_keys = reader.readNumber<uint64_t>("the number of keys");
    if (num_tensors > kMaxTensors) {
        failBadFile(path, "it claims " + std::to_string(num_tensors) + " tensors");
    }
    if (num_keys > kMaxKeys) {
        failBadFile(path, "it claims " + std::to_string(num_keys) + " keys");
    }
    for (uint64_t i = 0; i < num_keys; ++i) {
        std::string key = reader.readString("a key", kMaxKeyBytes);
        if (!isPrintableName(key)) {
            failBadFile(path, "the key " + quotedForMessage(key) + " is empty or not printable");
        }
        GgufValue value = reader.readValue(key);
        if (!metadata.emplace(key, std::move(value)).second) {
            failBadFile(path, "the key " + quotedForMessage(key) + " appears twice");
        }
    }
    uint64_t alignment = 32;
    if (const auto found = metadata.find("general.alignment"); found != metadata.end()) {
        const auto* number = std::get_if<int64_t>(&found->second);
        if (number == nullptr) failKind(found->first, found->second, "an integer");
        if (*number < 8 || *number > static_cast<int64_t>(kMaxAlignment) ||
            !std::has_single_bit(static_cast<uint64_t>(*number))) {
            failBadFile(path, "its alignment is " + std::to_string(*number) +
                                  ", not a power of two from 8 to " +
                                  std::to_string(kMaxAlignment));
        }
        alignment = static_cast<uint64_t>(*number);
    }
    readTensors(reader, num_tensors, alignment);
}

void GgufFile::Impl::readTensors(HeaderReader& reader, uint64_t num_tensors, uint64_t alignment) {
    struct Extent {
        uint64_t offset;  // bytes from the start of the data section
        uint64_t num_bytes;
        size_t tensor_idx;
    };
    std::vector<Extent> extents;
    for (uint64_t i = 0; i < num_tensors; ++i) {
        GgufTensor tensor;
        tensor.name = reader.readString("a tensor's name", kMaxKeyBytes);
        if (!isPrintableName(tensor.name)) {
            failBadFile(path, "the tensor name " + quotedForMessage(tensor.name) +
                                  " is empty or not printable");
        }
        const std::string shown_name = quotedForMessage(tensor.name);
        if (!tensor_index.emplace(tensor.name, tensors.size()).second) {
            failBadFile(path, "the tensor " + shown_name + " appears twice");
        }
        const auto num_dimensions = reader.readNumber<uint32_t>("a tensor's dimensions");
        if (num_dimensions < 1 || num_dimensions > kMaxDimensions) {
            failBadFile(path, "the tensor " + shown_name + " claims " +
                                  std::to_string(num_dimensions) + " dimensions");
        }
        uint64_t num_elements = 1;
        for (uint32_t dim = 0; dim < num_dimensions; ++dim) {
            const auto length = reader.readNumber<uint64_t>("a tensor's dimensions");
            // Every type takes at least a bit a value; the byte count below is exact.
            if (length == 0 || length > size * 8 / num_elements) {
                failBadFile(path, "the tensor " + shown_name + " claims a dimension of " +
                                      std::to_string(length) +
                                      " values, which the file cannot hold");
            }
            num_elements *= length;
            tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(length));
        }
        const auto type = reader.readNumber<uint32_t>("a tensor's type");
        const std::optional<TensorType> known_type = tensorTypeByNumber(type);
        if (!known_type) {
            throw EngineError(ErrorKind::kUnsupported,
                              quotedForMessage(path) + " stores the tensor " + shown_name + " as " +
                                  ggmlTypeName(type) +
                                  ", but only F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K are "
                                  "supported; convert the file to one of them");
        }
        tensor.type = *known_type;
        if (tensor.shape.back() % tensorBlockValues(tensor.type) != 0) {
            failBadFile(path, "the tensor " + shown_name + " has rows of " +
                                  std::to_string(tensor.shape.back()) + " values, but " +
                                  tensorTypeName(tensor.type) + " stores blocks of " +
                                  std::to_string(tensorBlockValues(tensor.type)));
        }
        const auto offset = reader.readNumber<uint64_t>("a tensor's offset");
        if (offset % alignment != 0) {
            failBadFile(path, "the data of the tensor " + shown_name + " starts at " +
                                  std::to_string(offset) + ", not at a multiple of " +
                                  std::to_string(alignment) + " bytes");
        }
        const auto num_bytes = static_cast<uint64_t>(tensor.numBytes());
        extents.push_back({offset, num_bytes, tensors.size()});
        tensors.push_back(std::move(tensor));
    }
    if (tensors.empty()) return;

    const uint64_t data_start = (reader.position() + alignment - 1) / alignment * alignment;
    const uint64_t data_size = data_start < size ? size - data_start : 0;
    std::sort(extents.begin(), extents.end(),
              [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    uint64_t previous_end = 0;
    for (const Extent& extent : extents) {
        GgufTensor& tensor = tensors[extent.tensor_idx];
        if (extent.offset > data_size || extent.num_bytes > data_size - extent.offset) {
            failBadFile(path, "the tensor " + quotedForMessage(tensor.name) + " needs " +
                                  std::to_string(extent.num_bytes) +
                                  " bytes that lie beyond the end of the file");
        }
        if (extent.offset < previous_end) {
            failBadFile(path, "the tensor " + quotedForMessage(tensor.name) +
                                  " overlaps the tensor before it");
        }
        previous_end = extent.offset + extent.num_bytes;
        tensor.data = data + data_start + extent.offset;
    }
}

GgufFile::GgufFile() : impl_(std::make_unique<Impl>()) {}
GgufFile::~GgufFile() = default;

std::shared_ptr<const GgufFile> GgufFile::open(const std::string& path) {
    std::shared_ptr<GgufFile> file(new GgufFile());
    file->impl_->path = path;
    file->impl_->map();
    file->impl_->readHeader();
    return file;
}

const std::string& GgufFile::path() const { return impl_->path; }
uint32_t GgufFile::version() const { return impl_->version; }
const std::map<std::string, GgufValue>& GgufFile::metadata() const { return impl_->metadata; }
const std::vector<GgufTensor>& GgufFile::tensors() const { return impl_->tensors; }

const GgufTensor* GgufFile::find(const std::string& name) const {
    const auto found = impl_->tensor_index.find(name);
    return found == impl_->tensor_index.end() ? nullptr : &impl_->tensors[found->second];
}

const std::string& GgufFile::sha256() const {
    // Lazily: hashing reads the whole file, and most callers of a large model never ask.
    std::call_once(impl_->sha256_once, [this] {
        impl_->sha256 = sha256Hex({reinterpret_cast<const char*>(impl_->data), impl_->size});
    });
    return impl_->sha256;
}

int64_t GgufFile::getInt(const std::string& key, int64_t fallback) const {
    const auto found = impl_->metadata.find(key);
    if (found == impl_->metadata.end()) return fallback;
    if (const auto* value = std::get_if<int64_t>(&found->second)) return *value;
    if (const auto* value = std::get_if<uint64_t>(&found->second)) {
        if (*value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
            return static_cast<int64_t>(*value);
        }
        failBadFile(impl_->path, "the value of " + quotedForMessage(key) + " is above 2^63");
    }
    impl_->failKind(key, found->second, "an integer");
}

double GgufFile::getFloat(const std::string& key, double fallback) const {
    const auto found = impl_->metadata.find(key);
    if (found == impl_->metadata.end()) return fallback;
    if (const auto* value = std::get_if<double>(&found->second)) return *value;
    impl_->failKind(key, found->second, "a floating-point number");
}

bool GgufFile::getBool(const std::string& key, bool fallback) const {
    const auto found = impl_->metadata.find(key);
    if (found == impl_->metadata.end()) return fallback;
    if (const auto* value = std::get_if<bool>(&found->second)) return *value;
    impl_->failKind(key, found->second, "a boolean");
}

std::string GgufFile::getString(const std::string& key, const std::string& fallback) const {
    const auto found = impl_->metadata.find(key);
    if (found == impl_->metadata.end()) return fallback;
    if (const auto* value = std::get_if<std::string>(&found->second)) return *value;
    impl_->failKind(key, found->second, "a string");
}

}  // namespace kvlab
