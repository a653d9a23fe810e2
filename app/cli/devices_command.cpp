// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "app/cli/commands.h"
#include "app/cli/json_output.h"
#include "engine/backend/devices.h"
#include "engine/text_format.h"

namespace kvlab {

namespace {

void runDevices(bool json) {
    const std::vector<DeviceInfo> devices = listDevices();
    if (json) {
        Json list = Json::array();
        for (const DeviceInfo& device : devices) {
            Json entry;
            entry["backend"] = device.backend;
            entry["name"] = device.name.empty() ? Json(nullptr) : Json(device.name);
            entry["available"] = device.available;
            entry["reason"] = device.reason.empty() ? Json(nullptr) : Json(device.reason);
            entry["memory_bytes"] = numberOrNull(device.memory_bytes);
            entry["driver"] = device.driver.empty() ? Json(nullptr) : Json(device.driver);
            list.push_back(entry);
        }
        Json output;
        output["devices"] = list;
        printJson(output);
        return;
    }
    for (const DeviceInfo& device : devices) {
        std::string text = device.name.empty() ? "–" : device.name;
        if (device.memory_bytes) text += ", " + formatBytes(*device.memory_bytes);
        if (!device.driver.empty()) text += ", driver for " + device.driver;
        if (device.backend == "simt") text += ": the CUDA kernels on the CPU, to check and to show";
        std::printf("%-5s %-14s %s\n", device.backend.c_str(),
                    device.available ? "available" : "not available", text.c_str());
        if (!device.reason.empty()) std::printf("%21s%s\n", "", device.reason.c_str());
    }
}

}  // namespace

void addDevicesCommand(CLI::App& app) {
    CLI::App* command =
        app.add_subcommand("devices", "where the model can run, and why not elsewhere");
    const auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "print JSON");
    command->callback([json] { runDevices(*json); });
}

}  // namespace kvlab
