// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/error.h"
#include "engine/model/utf8.h"

// libFuzzer's entry (LLVM documentation, "libFuzzer"): called with one input after the other; a
// crash, an abort or a sanitizer's report is a finding.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace kvlab {

// A finding that no sanitizer would see.
[[noreturn]] inline void fuzzFinding(const std::string& what) {
    std::fprintf(stderr, "fuzz: %s\n", what.c_str());
    std::abort();
}

// What every refusal of a file must be: one line of valid UTF-8 that is not endless, and no fault
// of our own.
inline void checkRefusal(const EngineError& error) {
    const std::string_view text = error.what();
    if (error.kind() == ErrorKind::kInternal) fuzzFinding(error.what());
    if (text.empty() || text.size() > 2000 || text.find('\n') != std::string_view::npos ||
        !isValidUtf8(text)) {
        fuzzFinding("a refusal is not one sentence: " + std::string(text));
    }
}

// Bytes as a file that lives in memory, for readers that want a path.
class MemoryFile {
  public:
    MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
        if (fd_ < 0) fuzzFinding("there is no memory file");
        path_ = "/proc/self/fd/" + std::to_string(fd_);
    }
    explicit MemoryFile(std::string_view bytes) : MemoryFile() {
        for (size_t done = 0; done < bytes.size();) {
            const ssize_t count = ::write(fd_, bytes.data() + done, bytes.size() - done);
            if (count <= 0) fuzzFinding("the memory file is full");
            done += static_cast<size_t>(count);
        }
    }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;
    ~MemoryFile() { ::close(fd_); }
    const std::string& path() const { return path_; }

  private:
    int fd_;
    std::string path_;
};

inline std::string_view asText(const uint8_t* data, size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

}  // namespace kvlab
