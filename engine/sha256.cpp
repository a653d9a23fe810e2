// SPDX-License-Identifier: MIT
#include "engine/sha256.h"

#include <array>
#include <openssl/evp.h>

#include "engine/error.h"

namespace kvlab {

std::string sha256Hex(std::string_view bytes) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
        throw EngineError(ErrorKind::kInternal,
                          "libcrypto cannot compute SHA-256; check its configuration");
    }
    static constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (unsigned int i = 0; i < size; ++i) {
        text += kDigits[digest[i] >> 4];
        text += kDigits[digest[i] & 15];
    }
    return text;
}

}  // namespace kvlab
