// SPDX-License-Identifier: MIT
#include "engine/temporary_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <QDir>
#include <QFile>
#include <QTemporaryDir>
#include <QtTest>

#include "engine/error.h"

using namespace kvlab;

class TemporaryFileTest : public QObject {
    Q_OBJECT

    QTemporaryDir dir_;

    std::string at(const char* name) const { return dir_.filePath(name).toStdString(); }
    static void put(const std::string& path, const char* text) {
        TemporaryFile file(path);
        file.write(text, strlen(text));
        file.finish();
    }
    QByteArray content(const char* name) const {
        QFile file(dir_.filePath(name));
        return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray("unreadable");
    }
    // What is said when `path` is to be written; empty: it was.
    static std::string refusal(const std::string& path) {
        try {
            put(path, "new");
        } catch (const EngineError& error) {
            return error.what();
        }
        return "";
    }

  private slots:
    void cleanup() {
        const QDir folder(dir_.path());
        for (const QString& name : folder.entryList(QDir::Files | QDir::Hidden)) {
            QVERIFY2(!name.contains(".tmp-"), qPrintable("left behind: " + name));
        }
    }

    void theNameIsTakenAtTheEnd() {
        put(at("a"), "old");
        {
            TemporaryFile file(at("a"));
            file.write("new", 3);
            QCOMPARE(content("a"), QByteArray("old"));
        }
        QCOMPARE(content("a"), QByteArray("old"));  // it was not finished
        put(at("a"), "new");
        QCOMPARE(content("a"), QByteArray("new"));
    }

    void theLongestNameIsWritten() {
        const std::string name(255, 'n');
        put(at(name.c_str()), "new");
        QCOMPARE(content(name.c_str()), QByteArray("new"));
        QVERIFY(!refusal(at((name + "n").c_str())).empty());
        // Nor does a name without a folder leave the folder that it is in.
        const QString before = QDir::currentPath();
        QVERIFY(QDir::setCurrent(dir_.path()));
        put("bare", "new");
        QVERIFY(QDir::setCurrent(before));
        QCOMPARE(content("bare"), QByteArray("new"));
    }

    void linksStayAndTheirTargetsAreWritten() {
        QVERIFY(QDir(dir_.path()).mkpath("sub"));
        put(at("sub/target"), "old");
        QVERIFY(::symlink("sub/target", at("link").c_str()) == 0);
        QVERIFY(::symlink("link", at("link to link").c_str()) == 0);
        QVERIFY(::symlink("sub/fresh", at("dangling").c_str()) == 0);
        QVERIFY(::symlink(at("sub/absolute").c_str(), at("absolute").c_str()) == 0);
        put(at("link to link"), "new");
        QCOMPARE(content("sub/target"), QByteArray("new"));
        put(at("dangling"), "there");
        QCOMPARE(content("sub/fresh"), QByteArray("there"));
        put(at("absolute"), "here");
        QCOMPARE(content("sub/absolute"), QByteArray("here"));
        for (const char* name : {"link", "link to link", "dangling", "absolute"}) {
            QVERIFY2(QFileInfo(dir_.filePath(name)).isSymLink(), name);
        }
        QVERIFY(::symlink("loop", at("loop").c_str()) == 0);
        QVERIFY(refusal(at("loop")).find("symbolic links") != std::string::npos);
        QVERIFY(QFileInfo(dir_.filePath("loop")).isSymLink());
    }

    void onlyFilesAreReplaced() {
        QVERIFY(QDir(dir_.path()).mkpath("folder"));
        QVERIFY(::mkfifo(at("pipe").c_str(), 0600) == 0);
        QVERIFY(::symlink("folder", at("folder link").c_str()) == 0);
        const auto says = [](const std::string& refused, const char* part) {
            return refused.find(part) != std::string::npos &&
                   refused.find("; ") != std::string::npos;
        };
        QVERIFY(says(refusal(at("folder")), "is a folder"));
        QVERIFY(says(refusal(at("folder link")), "is a folder"));
        QVERIFY(says(refusal(at("pipe")), "is a pipe"));
        struct stat device = {};
        if (::stat("/dev/zero", &device) == 0 && S_ISCHR(device.st_mode)) {
            QVERIFY(says(refusal("/dev/zero"), "is a device"));
        }
        QVERIFY(says(refusal(at("none/new")), "No such file"));
        QVERIFY(says(refusal(at("none/")), "cannot write"));
        QVERIFY(says(refusal(""), "cannot write"));
        QVERIFY(QFileInfo(dir_.filePath("pipe")).exists());
    }

    void permissionsOfTheFileStay() {
        put(at("private"), "old");
        QVERIFY(::chmod(at("private").c_str(), 0600) == 0);
        put(at("private"), "new");
        struct stat info = {};
        QVERIFY(::stat(at("private").c_str(), &info) == 0);
        QCOMPARE(info.st_mode & 07777, 0600u);
        if (::geteuid() == 0) return;  // who may write everything
        QVERIFY(::chmod(at("private").c_str(), 0400) == 0);
        QVERIFY(!refusal(at("private")).empty());
        QCOMPARE(content("private"), QByteArray("new"));
    }
};

QTEST_GUILESS_MAIN(TemporaryFileTest)
#include "temporary_file_test.moc"
