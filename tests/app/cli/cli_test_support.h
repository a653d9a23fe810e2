// SPDX-License-Identifier: MIT
#pragma once

#include <QByteArray>
#include <QDir>
#include <QFile>
#include <QJsonDocument>
#include <QJsonObject>
#include <QProcess>
#include <QProcessEnvironment>
#include <QString>
#include <QStringList>
#include <QTest>

#include "engine/model/gguf_writer.h"
#include "engine/model/weights.h"

namespace kvlab {

struct CliResult {
    int exit_code = -1;
    bool crashed = false;  // or did not start, or ran past the limit
    QByteArray out;
    QByteArray err;

    QJsonObject json() const { return QJsonDocument::fromJson(out).object(); }
    // One line that names the program: what every error must be.
    bool hasOneLineError() const {
        return err.startsWith("kvlab-cli: ") && err.count('\n') == 1 && err.endsWith('\n') &&
               err.size() > 20;
    }
    // What is wrong, and what to do: behind a semicolon, or in what the option wants.
    bool saysWhatToDo() const {
        return err.contains("; ") || err.contains(" wants ") || err.contains("did you mean");
    }
};

// Environment variables that only this run sees.
using CliEnvironment = QList<QPair<QString, QString>>;

inline CliResult runCli(const QStringList& arguments,
                        const CliEnvironment& environment = {},
                        int timeout_ms = 300'000) {
    QProcess process;
    QProcessEnvironment all = QProcessEnvironment::systemEnvironment();
    for (const auto& [name, value] : environment) all.insert(name, value);
    process.setProcessEnvironment(all);
    process.start(QStringLiteral(KVLAB_CLI_PATH), arguments);
    CliResult result;
    const bool finished = process.waitForStarted() && process.waitForFinished(timeout_ms);
    if (!finished) process.kill();
    result.crashed = !finished || process.exitStatus() != QProcess::NormalExit;
    result.exit_code = process.exitCode();
    result.out = process.readAllStandardOutput();
    result.err = process.readAllStandardError();
    return result;
}

// A generated model of a few thousand parameters with a byte vocabulary: the accounting of blocks
// does not depend on what the weights have learnt.
inline void writeTinyModel(const QString& path, int vocab_size = 320) {
    ModelConfig config;
    config.name = "tiny";
    config.architecture = "llama";
    config.num_layers = 2;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 8;
    config.rope_dim = 8;
    config.embedding_dim = 24;
    config.feed_forward_dim = 40;
    config.vocab_size = vocab_size;
    config.context_len = 4096;
    writeModelGguf(*ModelWeights::random(config, 1, true, DataType::kF32), path.toStdString());
}

inline QByteArray readBytes(const QString& path) {
    QFile file(path);
    if (!file.open(QIODevice::ReadOnly)) return {};
    return file.readAll();
}

inline bool writeBytes(const QString& path, const QByteArray& bytes) {
    QFile file(path);
    return file.open(QIODevice::WriteOnly) && file.write(bytes) == bytes.size();
}

// For failure messages.
inline QString described(const CliResult& result) {
    return QStringLiteral("exit %1%2, stderr: %3")
        .arg(result.exit_code)
        .arg(result.crashed ? " (crashed)" : "")
        .arg(QString::fromUtf8(result.err));
}

}  // namespace kvlab

// The command worked.
#define KVLAB_VERIFY_SUCCESS(result)                                                 \
    QVERIFY2(!(result).crashed && (result).exit_code == 0 && (result).err.isEmpty(), \
             qPrintable(kvlab::described(result)))
// The command refused with this exit status and one line that says what to do, and printed no
// result.
#define KVLAB_VERIFY_REFUSAL(result, status)                                                      \
    QVERIFY2(!(result).crashed && (result).exit_code == (status) && (result).hasOneLineError() && \
                 (result).saysWhatToDo() && (result).out.isEmpty(),                               \
             qPrintable(kvlab::described(result)))
