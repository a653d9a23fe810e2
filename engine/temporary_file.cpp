// SPDX-License-Identifier: MIT
#include "engine/temporary_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "engine/error.h"
#include "engine/input_file.h"
#include "engine/model/utf8.h"

namespace kvlab {

namespace {

constexpr int kMaxLinks = 40;  // Linux's own limit
constexpr size_t kMaxStemBytes = 200;

}  // namespace

TemporaryFile::TemporaryFile(const std::string& final_path) : final_path_(final_path) {
    namespace fs = std::filesystem;
    // The new file takes the name's place: of a link's target, also of one that is not there yet,
    // but never of a folder, device or pipe.
    std::error_code error;
    for (int links = 0; fs::is_symlink(final_path_, error); ++links) {
        if (links == kMaxLinks) {
            errno = ELOOP;
            fail();
        }
        const fs::path target = fs::read_symlink(final_path_, error);
        if (error) {
            errno = error.value();
            fail();
        }
        final_path_ = (fs::path(final_path_).parent_path() / target).string();
    }
    if (fs::exists(final_path_, error)) {
        if (const std::string problem = inputFileProblem(final_path_); !problem.empty()) {
            throw EngineError(ErrorKind::kBadFile, "cannot write " + quotedForMessage(final_path) +
                                                       ": it " + problem + "; give another name");
        }
        // A folder that may be written to would let a protected file be replaced.
        if (::access(final_path_.c_str(), W_OK) != 0) fail();
    }
    static std::atomic<unsigned> counter{0};
    // A name may already be as long as names can be.
    const fs::path place(final_path_);
    const std::string stem =
        (place.parent_path() / place.filename().string().substr(0, kMaxStemBytes)).string();
    for (int attempt = 0; attempt < 100 && fd_ < 0; ++attempt) {
        path_ = stem + ".tmp-" + std::to_string(::getpid()) + "-" +
                std::to_string(counter.fetch_add(1));
        fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd_ < 0 && errno != EEXIST) fail();
    }
    if (fd_ < 0) fail();
    created_ = true;
    // Who may read the file does not change with what it holds.
    struct stat old = {};
    if (::stat(final_path_.c_str(), &old) == 0) ::fchmod(fd_, old.st_mode & 07777);
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
                                               "; check the folder, its permissions and the "
                                               "free space");
}

}  // namespace kvlab
