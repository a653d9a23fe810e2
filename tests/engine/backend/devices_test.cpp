// SPDX-License-Identifier: MIT
#include "engine/backend/devices.h"

#include <algorithm>

#include <QFile>
#include <QTemporaryDir>
#include <QtTest>

using namespace kvlab;

namespace {

std::vector<DeviceInfo> cudaDevicesWith(const QByteArray& plugin_path) {
    qputenv("KVLAB_CUDA_PLUGIN", plugin_path);
    std::vector<DeviceInfo> devices = listDevices();
    qunsetenv("KVLAB_CUDA_PLUGIN");
    std::erase_if(devices, [](const DeviceInfo& device) { return device.backend != "cuda"; });
    return devices;
}

}  // namespace

class DevicesTest : public QObject {
    Q_OBJECT

  private slots:
    void everyBackendIsListedAndExplained() {
        const std::vector<DeviceInfo> devices = listDevices();
        for (const char* backend : {"cpu", "simt", "cuda"}) {
            QVERIFY2(std::any_of(devices.begin(), devices.end(),
                                 [&](const DeviceInfo& d) { return d.backend == backend; }),
                     backend);
        }
        for (const DeviceInfo& device : devices) {
            QCOMPARE(device.reason.empty(), device.available);
            QVERIFY(!device.memory_bytes || *device.memory_bytes > 0);
        }
    }

    void theCpuIsThere() {
        const DeviceInfo cpu = listDevices().front();
        QCOMPARE(cpu.backend, std::string("cpu"));
        QVERIFY(cpu.available);
        QVERIFY(!cpu.name.empty());
        QVERIFY(cpu.memory_bytes.value() > 64 << 20);
    }

    void aMissingPluginIsAReason() {
        const auto devices = cudaDevicesWith("/nowhere/libkvlab_cuda.so");
        QCOMPARE(devices.size(), size_t{1});
        QVERIFY(!devices[0].available);
        QVERIFY(devices[0].reason.find("is not there") != std::string::npos);
        QVERIFY(!devices[0].memory_bytes);
    }

    void aBrokenPluginIsAReason() {
        QTemporaryDir dir;
        QFile file(dir.filePath("libkvlab_cuda.so"));
        QVERIFY(file.open(QIODevice::WriteOnly));
        file.write("not a library");
        file.close();
        const auto devices = cudaDevicesWith(file.fileName().toLocal8Bit());
        QCOMPARE(devices.size(), size_t{1});
        QVERIFY(devices[0].reason.find("does not load") != std::string::npos);
    }

    // Mapped pages that are not in the file would end the program (SIGBUS).
    void aPluginThatIsCutOffIsAReason() {
        QFile whole(KVLAB_OTHER_LIBRARY);
        QVERIFY(whole.open(QIODevice::ReadOnly));
        const QByteArray bytes = whole.readAll();
        QTemporaryDir dir;
        for (const qsizetype length :
             {qsizetype{10}, qsizetype{64}, qsizetype{1000}, bytes.size() / 2, bytes.size() - 1}) {
            QFile file(dir.filePath("libkvlab_cuda.so"));
            QVERIFY(file.open(QIODevice::WriteOnly | QIODevice::Truncate));
            QCOMPARE(file.write(bytes.left(length)), length);
            file.close();
            const auto devices = cudaDevicesWith(file.fileName().toLocal8Bit());
            QCOMPARE(devices.size(), size_t{1});
            QVERIFY2(devices[0].reason.find("does not load") != std::string::npos,
                     devices[0].reason.c_str());
        }
        const auto folder = cudaDevicesWith(dir.path().toLocal8Bit());
        QVERIFY(folder[0].reason.find("is a folder") != std::string::npos);
    }

    void anotherLibraryIsAReason() {
        const auto devices = cudaDevicesWith(KVLAB_OTHER_LIBRARY);
        QCOMPARE(devices.size(), size_t{1});
        QVERIFY(devices[0].reason.find("is not KV Lab's CUDA plugin") != std::string::npos);
    }

    // Under nvcc the real plugin is loaded; on a machine with no driver or GPU it says so.
    void theBuiltPluginLoads() {
#ifdef KVLAB_BUILT_PLUGIN
        const auto devices = cudaDevicesWith(KVLAB_BUILT_PLUGIN);
        QVERIFY(!devices.empty());
        for (const DeviceInfo& device : devices) {
            QVERIFY2(device.reason.find("plugin") == std::string::npos, device.reason.c_str());
            qInfo("cuda: %s", device.reason.c_str());
        }
#else
        QSKIP("built without the CUDA toolkit");
#endif
    }
};

QTEST_GUILESS_MAIN(DevicesTest)
#include "devices_test.moc"
