// SPDX-License-Identifier: MIT
#include "engine/sha256.h"

#include <array>
#include <bit>
#include <cstdint>

#ifdef KVLAB_LIBCRYPTO
#include <openssl/evp.h>
#endif

#include "engine/error.h"

namespace kvlab {

namespace {

std::string hexOf(const unsigned char* bytes, size_t size) {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (size_t i = 0; i < size; ++i) {
        text += kDigits[bytes[i] >> 4];
        text += kDigits[bytes[i] & 15];
    }
    return text;
}

// The first 32 bits after the point of the square roots of the first 8 primes (the initial state)
// and of the cube roots of the first 64 (the round constants): FIPS 180-4, sections 4.2.2, 5.3.3.
struct Constants {
    std::array<uint32_t, 8> state{};
    std::array<uint32_t, 64> rounds{};

    Constants() {
        size_t count = 0;
        for (uint64_t candidate = 2; count < rounds.size(); ++candidate) {
            bool is_prime = true;
            for (uint64_t d = 2; d * d <= candidate; ++d) is_prime = is_prime && candidate % d != 0;
            if (!is_prime) continue;
            if (count < state.size()) state[count] = rootBits(candidate, 2);
            rounds[count++] = rootBits(candidate, 3);
        }
    }

    // floor(root * 2^32) mod 2^32, exactly: the largest r with r^power <= n * 2^(32 * power).
    static uint32_t rootBits(uint64_t n, int power) {
        __extension__ using Wide = unsigned __int128;
        uint64_t low = 0;
        uint64_t high = uint64_t{1} << 37;  // roots of primes up to 311 are below 2^5
        while (high - low > 1) {
            const uint64_t middle = low + (high - low) / 2;
            // Cubes of 37-bit numbers need 111 bits.
            Wide product = middle;
            for (int i = 1; i < power; ++i) product *= middle;
            if (product <= (Wide{n} << (32 * power))) {
                low = middle;
            } else {
                high = middle;
            }
        }
        return static_cast<uint32_t>(low);
    }
};

void compress(std::array<uint32_t, 8>& state,
              const std::array<uint32_t, 64>& rounds,
              const unsigned char* block) {
    std::array<uint32_t, 64> w;
    for (size_t i = 0; i < 16; ++i) {
        w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 |
               uint32_t{block[4 * i + 2]} << 8 | uint32_t{block[4 * i + 3]};
    }
    for (size_t i = 16; i < 64; ++i) {
        const uint32_t early = w[i - 15];
        const uint32_t late = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (std::rotr(early, 7) ^ std::rotr(early, 18) ^ (early >> 3)) +
               (std::rotr(late, 17) ^ std::rotr(late, 19) ^ (late >> 10));
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t i = 0; i < 64; ++i) {
        const uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                               ((e & f) ^ (~e & g)) + rounds[i] + w[i];
        const uint32_t second =
            (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
    }
    const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += added[i];
}

}  // namespace

std::string sha256HexPortable(std::string_view bytes) {
    static const Constants constants;
    std::array<uint32_t, 8> state = constants.state;
    const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
    size_t at = 0;
    for (; at + 64 <= bytes.size(); at += 64) compress(state, constants.rounds, data + at);
    // The rest, a one bit, zeros, and the length in bits: one block or two.
    std::array<unsigned char, 128> tail{};
    const size_t rest = bytes.size() - at;
    for (size_t i = 0; i < rest; ++i) tail[i] = data[at + i];
    tail[rest] = 0x80;
    const size_t tail_size = rest + 9 <= 64 ? 64 : 128;
    const uint64_t num_bits = uint64_t{bytes.size()} * 8;
    for (size_t i = 0; i < 8; ++i) {
        tail[tail_size - 1 - i] = static_cast<unsigned char>(num_bits >> (8 * i));
    }
    for (size_t i = 0; i < tail_size; i += 64) compress(state, constants.rounds, tail.data() + i);
    std::array<unsigned char, 32> digest{};
    for (size_t i = 0; i < 32; ++i) {
        digest[i] = static_cast<unsigned char>(state[i / 4] >> (24 - 8 * (i % 4)));
    }
    return hexOf(digest.data(), digest.size());
}

#ifdef KVLAB_LIBCRYPTO
std::string sha256Hex(std::string_view bytes) {
    // Looked up once: for a trace's records of some hundred bytes the search costs as much as the
    // sum.
    static EVP_MD* const method = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    if (method == nullptr ||
        EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, method, nullptr) != 1) {
        throw EngineError(ErrorKind::kInternal,
                          "libcrypto cannot compute SHA-256; check its configuration");
    }
    return hexOf(digest.data(), size);
}
#else
std::string sha256Hex(std::string_view bytes) { return sha256HexPortable(bytes); }
#endif

}  // namespace kvlab
