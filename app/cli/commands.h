// SPDX-License-Identifier: MIT
#pragma once

namespace CLI {
class App;
}

namespace kvlab {

// Each function adds one sub-command; its callback runs the command and throws EngineError on
// failure (kBadArgument exits 2, everything else 1; app/cli/main.cpp prints the sentence).
void addSizeCommand(CLI::App& app);
void addGenerateCommand(CLI::App& app);
void addLogitsCommand(CLI::App& app);
void addTokenizeCommand(CLI::App& app);
void addCorpusCommand(CLI::App& app);
void addEvalCommand(CLI::App& app);
void addDevicesCommand(CLI::App& app);
void addLessonsCommand(CLI::App& app);
void addTraceCommand(CLI::App& app);
void addBenchCommand(CLI::App& app);
void addModelCommand(CLI::App& app);
void addReplayCommand(CLI::App& app);
void addSelfcheckCommand(CLI::App& app);

}  // namespace kvlab
