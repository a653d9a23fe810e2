// SPDX-License-Identifier: MIT
#include "engine/temporary_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include "engine/error.h"
#include "engine/model/utf8.h"

namespace kvlab {

TemporaryFile::TemporaryFile(const std::string& final_path) : final_path_(final_path) {
    // The new file takes the name's place: of a link's target, never of a device or pipe.
    std::error_code error;
    if (std::filesystem::is_symlink(final_path_, error)) {
        final_path_ = std::filesystem::weakly_canonical(final_path_, error).string();
        if (error) final_path_ = final_path;
    }
    if (std::filesystem::exists(final_path_, error) &&
        !std::filesystem::is_regular_file(final_path_, error)) {
        throw EngineError(ErrorKind::kBadFile, "cannot write " + quotedForMessage(final_path) +
                                                   ": it is no regular file; give another name");
    }
    static std::atomic<unsigned> counter{0};
    for (int attempt = 0; attempt < 100 && fd_ < 0; ++attempt) {
        path_ = final_path_ + ".tmp-" + std::to_string(::getpid()) + "-" +
                std::to_string(counter.fetch_add(1));
        fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd_ < 0 && errno != EEXIST) fail();
    }
    if (fd_ < 0) fail();
    created_ = true;
}

TemporaryFile::~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (created_) ::unlink(path_.c_str());
}

void TemporaryFile::write(const void* data, uint64_t num_bytes) {
    const char* next = static_cast<const char*>(data);
    while (num_bytes > 0) {
        const ssize_t written = ::write(fd_, next, std::min(num_bytes, uint64_t{1} << 30));
        if (written < 0) {
            if (errno == EINTR) continue;
            fail();
        }
        next += written;
        num_bytes -= static_cast<uint64_t>(written);
    }
}

void TemporaryFile::finish() {
    // Without the sync a crash of the machine could leave the new name on an empty file.
    if (::fsync(fd_) != 0) fail();
    const int closed = ::close(fd_);
    fd_ = -1;
    if (closed != 0 || std::rename(path_.c_str(), final_path_.c_str()) != 0) fail();
    created_ = false;
}

void TemporaryFile::fail() const {
    const int error_number = errno;
    throw EngineError(ErrorKind::kBadFile, "cannot write " + quotedForMessage(final_path_) + ": " +
                                               std::generic_category().message(error_number) +
                                               "; check the folder and the free space");
}

}  // namespace kvlab
