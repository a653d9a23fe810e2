// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

namespace kvlab {

// A file that takes its name when it is complete: it is written beside its place under another name
// that nobody else has, and disappears unless finish() was called. Errors are
// EngineError(kBadFile).
class TemporaryFile {
  public:
    explicit TemporaryFile(const std::string& final_path);
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    ~TemporaryFile();

    void write(const void* data, uint64_t num_bytes);
    void finish();

  private:
    [[noreturn]] void fail() const;

    std::string final_path_;
    std::string path_;
    int fd_ = -1;
    bool created_ = false;  // and not yet renamed
};

}  // namespace kvlab
