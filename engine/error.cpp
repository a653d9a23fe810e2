// SPDX-License-Identifier: MIT
#include "engine/error.h"

namespace kvlab {

std::string withoutAdvice(const std::string& sentence) {
    return sentence.substr(0, sentence.rfind("; "));
}

void failCheck(const char* condition, const char* file, int line, const char* message) {
    throw EngineError(ErrorKind::kInternal, std::string("internal error: ") + message + " (" +
                                                condition + " is false at " + file + ":" +
                                                std::to_string(line) + "); please report this");
}

}  // namespace kvlab
