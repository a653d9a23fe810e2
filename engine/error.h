// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>

namespace kvlab {

// What a front end does with an error: a wrong call exits 2, everything else exits 1.
enum class ErrorKind {
    kBadArgument,  // the caller asked for something that cannot be
    kBadFile,      // a file is missing, damaged or of another kind
    kUnsupported,  // valid, but not built yet or not possible here
    kOutOfMemory,  // pool, host or device memory exhausted
    kDevice,       // the GPU stopped answering, or its driver failed
    kCancelled,    // the user stopped it
    kInternal,     // a broken invariant: a bug
};

// One plain sentence: what, where, what to do.
class EngineError : public std::runtime_error {
  public:
    EngineError(ErrorKind kind, const std::string& message)
        : std::runtime_error(message), kind_(kind) {}
    ErrorKind kind() const { return kind_; }

  private:
    ErrorKind kind_;
};

// What a sentence says without what it proposes to do: "the GPU stopped answering (…)". For who has
// already done it.
std::string withoutAdvice(const std::string& sentence);

[[noreturn]] void failCheck(const char* condition, const char* file, int line, const char* message);

}  // namespace kvlab

// A broken invariant is a bug of ours, not of the user's input; it stays on in release builds
// because a wrong block table is worse than a stopped run.
#define KVLAB_CHECK(condition, message)                                    \
    do {                                                                   \
        if (!(condition)) {                                                \
            ::kvlab::failCheck(#condition, __FILE__, __LINE__, (message)); \
        }                                                                  \
    } while (false)
