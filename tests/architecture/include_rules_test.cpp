// SPDX-License-Identifier: MIT
//
// Includes point one way: kernels <- engine <- lessons <- app. Linking alone does not stop a wrong
// include, because all layers share one root folder; this test does. A scanner reads every source
// file; the tests below first plant one violation of each rule in a temporary tree and ask the
// scanner to find exactly that, then let it read the repository.
//
// An #include line counts wherever it begins a line, in comments and disabled code too.
#include <QDir>
#include <QDirIterator>
#include <QFile>
#include <QFileInfo>
#include <QRegularExpression>
#include <QTemporaryDir>
#include <QTest>

namespace {

struct Violation {
    QString file;  // relative to the root
    int line = 0;  // from 1
    QString rule;  // one of the words used in scanFile
    QString text;

    QString toString() const {
        return QStringLiteral("%1:%2: [%3] %4").arg(file).arg(line).arg(rule, text);
    }
};

// The layer of a path, by its folder: what is not in this list is no layer.
const QStringList kLayers = {"kernels", "engine", "lessons", "app/cli", "app/gui", "tests"};

// What each layer may include. Nothing may include tests, except tests.
QStringList allowedLayers(const QString& layer) {
    if (layer == "kernels") return {"kernels"};
    if (layer == "engine") return {"kernels", "engine"};
    if (layer == "lessons") return {"kernels", "engine", "lessons"};
    if (layer == "app/cli") return {"kernels", "engine", "lessons", "app/cli"};
    if (layer == "app/gui") return {"engine", "lessons", "app/gui"};
    return kLayers;
}

QString layerOf(const QString& path) {
    for (const QString& layer : kLayers) {
        if (path.startsWith(layer + '/')) return layer;
    }
    return {};
}

bool isHeader(const QString& path) { return path.endsWith(".h") || path.endsWith(".cuh"); }

bool isCudaHeader(const QString& header) {
    static const QRegularExpression pattern(
        R"(^(cuda|cublas|curand|cusparse|cooperative_groups|cub/|mma\.h|device_|vector_types\.h))");
    return pattern.match(header).hasMatch() && !header.endsWith(".moc");
}

bool mayIncludeCuda(const QString& path) {
    return path.endsWith("_cuda.cu") || path.endsWith("_kernel.cuh") ||
           path.startsWith("kernels/cuda/") || path.startsWith("kernels/simt/");
}

bool isQtHeader(const QString& header) {
    static const QRegularExpression pattern(
        R"(^(Q[A-Za-z0-9]+(/.*)?|q[a-z0-9]+\.h|qcustomplot\.h)$)");
    return pattern.match(header).hasMatch();
}

// Programs for ThreadSanitizer link no Qt: Debian's Qt is not instrumented, and its locks raise
// false alarms.
bool mayIncludeQt(const QString& path) {
    if (path.endsWith("_soak.cpp")) return false;
    return path.startsWith("app/gui/") || path.startsWith("tests/");
}

bool hasSpdxLine(const QString& path, const QStringList& lines) {
    static const QRegularExpression pattern(R"(^(//|#) SPDX-License-Identifier: (\S+)$)");
    const bool starts_with_shebang = !lines.isEmpty() && lines[0].startsWith("#!");
    const QString line = lines.value(starts_with_shebang ? 1 : 0);
    const QString license = pattern.match(line).captured(2);
    if (path.startsWith("app/gui/")) return license == "GPL-3.0-or-later";
    // Tests of the window may use either: the programs link QCustomPlot and are under the GPL
    // anyway.
    if (path.startsWith("tests/app/gui/") && license == "GPL-3.0-or-later") return true;
    return license == "MIT";
}

QList<Violation> scanFile(const QDir& root, const QString& path) {
    QFile file(root.filePath(path));
    if (!file.open(QIODevice::ReadOnly)) return {{path, 0, "readable", "cannot be opened"}};
    const QStringList lines = QString::fromUtf8(file.readAll()).split('\n');

    QList<Violation> found;
    if (!hasSpdxLine(path, lines)) {
        found.append({path, 1, "spdx", "the first line must name the licence of this folder"});
    }
    const QString layer = layerOf(path);
    if (layer.isEmpty()) return found;

    static const QRegularExpression include(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
    for (int i = 0; i < lines.size(); ++i) {
        const auto match = include.match(lines[i]);
        if (!match.hasMatch()) continue;
        const QString header = match.captured(2);
        const auto report = [&](const char* rule, const QString& why) {
            found.append({path, i + 1, rule, QStringLiteral("%1: %2").arg(header, why)});
        };

        const QString target = layerOf(header);
        if (match.captured(1) == "\"" && !header.endsWith(".moc")) {
            if (target.isEmpty()) {
                report("rooted", "write the path from the root, as \"engine/ids.h\"");
            } else if (!QFileInfo::exists(root.filePath(header))) {
                report("exists", "there is no such file");
            }
        }
        if (!target.isEmpty() && !allowedLayers(layer).contains(target)) {
            report("direction", QStringLiteral("%1 must not include %2").arg(layer, target));
        }
        if (layer == "app/gui" && header.startsWith("engine/cache/")) {
            report("direction", "the window sees the cache through engine/trace");
        }
        if (isQtHeader(header) && !mayIncludeQt(path)) {
            report("qt", "no Qt outside app/gui and tests");
        }
        if (isCudaHeader(header) && !mayIncludeCuda(path)) {
            report("cuda",
                   "CUDA headers belong to *_cuda.cu, *_kernel.cuh, kernels/cuda and kernels/simt");
        }
        // The command line's own headers may: JSON is its product, and nothing includes it.
        if (header.startsWith("nlohmann/") && isHeader(path) && layer != "app/cli") {
            report("json", "keep the JSON library out of headers");
        }
    }
    return found;
}

// Source files under the root, as relative paths; build folders and hidden folders are skipped,
// except .ci.
QStringList sourceFiles(const QDir& root) {
    static const QRegularExpression source(
        R"(\.(h|cpp|cuh|cu|py|cmake)$|(^|/)CMakeLists\.txt$|^lab$|^\.ci/)");
    static const QStringList folders = {"kernels", "engine", "lessons", "app",
                                        "tests",   "assets", ".ci"};
    QStringList paths = root.entryList(QDir::Files);
    for (const QString& folder : folders) {
        QDirIterator entries(root.filePath(folder), QDir::Files, QDirIterator::Subdirectories);
        while (entries.hasNext()) paths.append(root.relativeFilePath(entries.next()));
    }
    paths = paths.filter(source);
    paths.sort();
    return paths;
}

QList<Violation> scanTree(const QDir& root) {
    QList<Violation> found;
    for (const QString& path : sourceFiles(root)) found.append(scanFile(root, path));
    return found;
}

QString describe(const QList<Violation>& violations) {
    QStringList lines;
    for (const Violation& violation : violations) lines.append(violation.toString());
    return lines.join('\n');
}

const QString kMit = "// SPDX-License-Identifier: MIT\n";
const QString kGpl = "// SPDX-License-Identifier: GPL-3.0-or-later\n";

}  // namespace

class IncludeRulesTest : public QObject {
    Q_OBJECT

  private slots:
    void init();
    void findsThePlantedViolation_data();
    void findsThePlantedViolation();
    void acceptsWhatIsAllowed_data();
    void acceptsWhatIsAllowed();
    void sourceFilesSkipsDataAndBuilds();
    void repositoryKeepsTheRules();

  private:
    void plant(const QString& path, const QString& text);
    QDir tree() const { return QDir(temporary_->path()); }

    std::unique_ptr<QTemporaryDir> temporary_;
};

// A fresh tree with one harmless header in each place that the planted files include.
void IncludeRulesTest::init() {
    temporary_ = std::make_unique<QTemporaryDir>();
    QVERIFY(temporary_->isValid());
    for (const char* path :
         {"kernels/op.h", "engine/engine.h", "engine/cache/block_pool.h", "engine/trace/event.h",
          "lessons/lesson.h", "app/cli/commands.h", "tests/support/tiny_model.h"}) {
        plant(path, kMit + "#pragma once\n");
    }
    plant("app/gui/theme.h", kGpl + "#pragma once\n");
}

void IncludeRulesTest::plant(const QString& path, const QString& text) {
    const QString full = tree().filePath(path);
    QVERIFY(QDir().mkpath(QFileInfo(full).path()));
    QFile file(full);
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write(text.toUtf8());
}

void IncludeRulesTest::findsThePlantedViolation_data() {
    QTest::addColumn<QString>("path");
    QTest::addColumn<QString>("text");
    QTest::addColumn<QString>("rule");
    QTest::addColumn<int>("line");
    const auto row = [](const char* name, const char* path, const QString& text, const char* rule,
                        int line) {
        QTest::newRow(name) << QString(path) << text << QString(rule) << line;
    };
    row("kernels include engine", "kernels/bad.cpp", kMit + "\n#include \"engine/engine.h\"\n",
        "direction", 3);
    row("engine includes lessons", "engine/bad.h", kMit + "#include \"lessons/lesson.h\"\n",
        "direction", 2);
    row("engine includes app", "engine/bad.cpp", kMit + "#include \"app/cli/commands.h\"\n",
        "direction", 2);
    row("lessons include app", "lessons/bad.cpp", kMit + "#include \"app/gui/theme.h\"\n",
        "direction", 2);
    row("command line includes window", "app/cli/bad.cpp", kMit + "#include \"app/gui/theme.h\"\n",
        "direction", 2);
    row("window includes command line", "app/gui/bad.cpp",
        kGpl + "#include \"app/cli/commands.h\"\n", "direction", 2);
    row("window includes kernels", "app/gui/bad.cpp", kGpl + "#include \"kernels/op.h\"\n",
        "direction", 2);
    row("window includes the pool", "app/gui/bad.cpp",
        kGpl + "#include \"engine/cache/block_pool.h\"\n", "direction", 2);
    row("engine includes tests", "engine/bad.cpp",
        kMit + "#include \"tests/support/tiny_model.h\"\n", "direction", 2);
    row("window includes tests", "app/gui/bad.cpp",
        kGpl + "#include \"tests/support/tiny_model.h\"\n", "direction", 2);
    row("angle brackets do not hide it", "kernels/bad.cpp", kMit + "#include <engine/engine.h>\n",
        "direction", 2);
    row("spaces do not hide it", "kernels/bad.cpp", kMit + "  #  include \"engine/engine.h\"\n",
        "direction", 2);
    row("CUDA source points up", "kernels/op/op_cuda.cu", kMit + "#include \"engine/engine.h\"\n",
        "direction", 2);
    row("Qt in engine", "engine/bad.h", kMit + "#include <QString>\n", "qt", 2);
    row("Qt module path in lessons", "lessons/bad.cpp", kMit + "#include <QtCore/QFile>\n", "qt",
        2);
    row("Qt lower-case header", "kernels/bad.cpp", kMit + "#include <qglobal.h>\n", "qt", 2);
    row("Qt in the command line", "app/cli/bad.cpp", kMit + "#include <QCoreApplication>\n", "qt",
        2);
    row("QCustomPlot in lessons", "lessons/bad.cpp", kMit + "#include <qcustomplot.h>\n", "qt", 2);
    row("Qt in a soak program", "tests/engine/session_soak.cpp", kMit + "#include <QThread>\n",
        "qt", 2);
    row("CUDA in an operation's header", "kernels/op/op.h", kMit + "#include <cuda_runtime.h>\n",
        "cuda", 2);
    row("CUDA in engine", "engine/backend/bad.cpp", kMit + "#include <cuda_fp16.h>\n", "cuda", 2);
    row("cuBLAS in the CPU file", "kernels/op/op_cpu.cpp", kMit + "#include <cublas_v2.h>\n",
        "cuda", 2);
    row("JSON in a header", "lessons/bad.h", kMit + "#include <nlohmann/json.hpp>\n", "json", 2);
    row("path not from the root", "engine/bad.cpp", kMit + "#include \"engine.h\"\n", "rooted", 2);
    row("path with dots", "engine/bad.cpp", kMit + "#include \"../kernels/op.h\"\n", "rooted", 2);
    row("no such file", "engine/bad.cpp", kMit + "#include \"kernels/gone.h\"\n", "exists", 2);
    row("no licence line", "engine/bad.cpp", "#include <vector>\n", "spdx", 1);
    row("licence line too late", "engine/bad.cpp", "\n" + kMit, "spdx", 1);
    row("GPL in engine", "engine/bad.cpp", kGpl, "spdx", 1);
    row("MIT in the window", "app/gui/bad.cpp", kMit, "spdx", 1);
    row("no licence line in a script", "lab", "#!/bin/sh\nset -eu\n", "spdx", 1);
    row("no licence line in Python", "assets/model/bad.py", "import sys\n", "spdx", 1);
    row("no licence line in CMake", "engine/CMakeLists.txt", "add_library(x)\n", "spdx", 1);
}

void IncludeRulesTest::findsThePlantedViolation() {
    QFETCH(QString, path);
    QFETCH(QString, text);
    QFETCH(QString, rule);
    QFETCH(int, line);
    QCOMPARE(describe(scanTree(tree())), QString());
    plant(path, text);
    const QList<Violation> found = scanTree(tree());
    QVERIFY2(found.size() == 1, qPrintable(describe(found)));
    QCOMPARE(found[0].file, path);
    QCOMPARE(found[0].rule, rule);
    QCOMPARE(found[0].line, line);
}

void IncludeRulesTest::acceptsWhatIsAllowed_data() {
    QTest::addColumn<QString>("path");
    QTest::addColumn<QString>("text");
    const auto row = [](const char* name, const char* path, const QString& text) {
        QTest::newRow(name) << QString(path) << text;
    };
    row("standard library", "kernels/good.cpp",
        kMit + "#include <cstdint>\n#include <queue>\n#include <mutex>\n");
    row("engine includes kernels", "engine/good.cpp", kMit + "#include \"kernels/op.h\"\n");
    row("command line includes all below", "app/cli/good.cpp",
        kMit +
            "#include \"engine/cache/block_pool.h\"\n#include \"kernels/op.h\"\n#include "
            "\"lessons/lesson.h\"\n");
    row("window includes facade and log", "app/gui/good.cpp",
        kGpl +
            "#include <QWidget>\n#include <qcustomplot.h>\n#include \"engine/engine.h\"\n"
            "#include \"engine/trace/event.h\"\n");
    row("CUDA where it belongs", "kernels/op/op_cuda.cu",
        kMit + "#include <cuda_runtime.h>\n#include \"kernels/op.h\"\n");
    row("CUDA kernel", "kernels/op/op_kernel.cuh", kMit + "#include <cuda_fp16.h>\n");
    row("CUDA on the CPU", "kernels/simt/simt.h", kMit + "#include <cuda_bf16.h>\n");
    row("JSON in a header of the command line", "app/cli/json_output.h",
        kMit + "#include <nlohmann/json.hpp>\n");
    row("JSON in a source", "engine/trace/trace_io.cpp", kMit + "#include <nlohmann/json.hpp>\n");
    row("tests include everything", "tests/good.cpp",
        kMit +
            "#include <QTest>\n#include \"app/gui/theme.h\"\n#include "
            "\"engine/cache/block_pool.h\"\n"
            "#include \"tests/support/tiny_model.h\"\n#include \"good.moc\"\n");
    row("soak program without Qt", "tests/engine/session_soak.cpp",
        kMit + "#include \"engine/engine.h\"\n");
    row("script", "lab", "#!/bin/sh\n# SPDX-License-Identifier: MIT\nset -eu\n");
    row("a word in a string", "engine/good.cpp",
        kMit + "const char* k = \"#include <QString>\";\n");
}

void IncludeRulesTest::acceptsWhatIsAllowed() {
    QFETCH(QString, path);
    QFETCH(QString, text);
    plant(path, text);
    QCOMPARE(describe(scanTree(tree())), QString());
}

void IncludeRulesTest::sourceFilesSkipsDataAndBuilds() {
    plant("README.md", "text\n");
    plant("assets/model/village.gguf", "GGUF");
    plant("lessons/content/best_of_8/lesson.json", "{}\n");
    plant("build/dev/generated.cpp", "#include <QString>\n");
    plant(".git/hooks/example.py", "import sys\n");
    plant("CMakeLists.txt", "# SPDX-License-Identifier: MIT\n");
    const QStringList files = sourceFiles(tree());
    QCOMPARE(files.size(), 9);
    QVERIFY(files.contains("CMakeLists.txt"));
    QVERIFY(files.contains("engine/cache/block_pool.h"));
}

void IncludeRulesTest::repositoryKeepsTheRules() {
    const QDir root(KVLAB_SOURCE_DIR);
    const QStringList files = sourceFiles(root);
    // Were the scanner pointed at the wrong folder, it would find nothing wrong there.
    for (const char* path :
         {"lab", ".ci/run", "CMakeLists.txt", "kernels/paged_kv_view.h", "engine/engine.h",
          "lessons/lesson.h", "app/cli/main.cpp", "app/gui/theme.h"}) {
        QVERIFY2(files.contains(path), path);
    }
    const QList<Violation> found = scanTree(root);
    QVERIFY2(found.isEmpty(), qPrintable('\n' + describe(found)));
}

QTEST_APPLESS_MAIN(IncludeRulesTest)
#include "include_rules_test.moc"
