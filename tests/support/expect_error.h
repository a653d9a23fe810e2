// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>

#include <QTest>

#include "engine/error.h"

namespace kvlab {

// Fails the test unless the call throws an EngineError of this kind, one line, that names `part`.
inline void expectError(ErrorKind kind,
                        const std::string& part,
                        const std::function<void()>& call) {
    try {
        call();
    } catch (const EngineError& error) {
        const std::string message = error.what();
        if (error.kind() != kind || message.find(part) == std::string::npos ||
            message.find('\n') != std::string::npos) {
            QFAIL(("unexpected error: " + message).c_str());
        }
        return;
    }
    QFAIL("no error was thrown");
}

}  // namespace kvlab
