// SPDX-License-Identifier: MIT
#include "engine/input_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <QFile>
#include <QTemporaryDir>
#include <QtTest>

#include "engine/error.h"

using namespace kvlab;

class InputFileTest : public QObject {
    Q_OBJECT

  private slots:
    void onlyFilesAreFiles() {
        QTemporaryDir dir;
        QVERIFY(dir.isValid());
        const auto at = [&](const char* name) { return dir.filePath(name).toStdString(); };
        QFile file(dir.filePath("file"));
        QVERIFY(file.open(QIODevice::WriteOnly));
        file.close();
        QVERIFY(::symlink("file", at("link").c_str()) == 0);
        QVERIFY(::symlink("nothing", at("dangling").c_str()) == 0);
        QVERIFY(::symlink("loop", at("loop").c_str()) == 0);
        QVERIFY(::symlink(".", at("folder link").c_str()) == 0);
        QVERIFY(::mkfifo(at("pipe").c_str(), 0600) == 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        const std::string place = at("socket");
        QVERIFY(place.size() < sizeof address.sun_path);
        place.copy(address.sun_path, place.size());
        const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
        QVERIFY(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        ::close(socket);

        QCOMPARE(inputFileProblem(at("file")), std::string());
        QCOMPARE(inputFileProblem(at("link")), std::string());
        QCOMPARE(inputFileProblem(at("nothing")), std::string("does not exist"));
        QCOMPARE(inputFileProblem(""), std::string("does not exist"));
        QCOMPARE(inputFileProblem(at("file/below")), std::string("does not exist"));
        QCOMPARE(inputFileProblem(at("dangling")),
                 std::string("is a link to something that does not exist"));
        QCOMPARE(inputFileProblem(at(".")), std::string("is a folder"));
        QCOMPARE(inputFileProblem(at("folder link")), std::string("is a folder"));
        QCOMPARE(inputFileProblem(at("pipe")), std::string("is a pipe, not a file"));
        QCOMPARE(inputFileProblem(at("socket")), std::string("is a socket, not a file"));
        struct stat device = {};  // in a bare container it may be missing
        if (::stat("/dev/zero", &device) == 0 && S_ISCHR(device.st_mode)) {
            QCOMPARE(inputFileProblem("/dev/zero"), std::string("is a device, not a file"));
        }
        QVERIFY(inputFileProblem(at("loop")).find("cannot be reached (") == 0);
        QVERIFY(inputFileProblem(std::string(100'000, 'a')).find("cannot be reached (") == 0);
    }

    void theSentenceHasPathProblemAndAdvice() {
        checkInputFile(QCoreApplication::applicationFilePath().toStdString(), "unused");
        try {
            checkInputFile("/nowhere/a\nb", "give the path of a trace");
            QFAIL("nothing was thrown");
        } catch (const EngineError& error) {
            QCOMPARE(error.kind(), ErrorKind::kBadFile);
            QCOMPARE(QString(error.what()),
                     QString("\"/nowhere/a\\x0ab\" does not exist; give the path of a trace"));
        }
    }
};

QTEST_GUILESS_MAIN(InputFileTest)
#include "input_file_test.moc"
