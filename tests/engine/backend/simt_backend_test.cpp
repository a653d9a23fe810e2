// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include <QTest>

#include "engine/backend/backend.h"
#include "engine/model/model_loader.h"
#include "engine/model/reference_model.h"
#include "engine/model/tokenizer.h"
#include "tests/engine/backend/backend_test_support.h"
#include "tests/support/expect_error.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

// Largest error of any row of one request against the reference, over max |reference|.
double worstAgainstReference(const std::shared_ptr<const ModelWeights>& weights,
                             const std::vector<int32_t>& tokens,
                             int prompt_len,
                             DataType kv_dtype) {
    EngineConfig config;
    config.backend = "simt";
    config.cache.kv_dtype = kv_dtype;
    config.cache.block_size = 16;
    config.cache.num_blocks = static_cast<int>(tokens.size()) / 16 + 2;
    Engine engine(weights, nullptr, config);
    const std::vector<double> expected =
        llamaReference(reference(*weights), tokens, false, kv_dtype);
    double worst = 0;
    int num_rows = 0;
    engine.setLogitsObserver([&](SequenceId, int position, const float* row, int vocab_size) {
        const double* const truth = expected.data() + int64_t{position} * vocab_size;
        double largest = 0;
        double error = 0;
        for (int i = 0; i < vocab_size; ++i) {
            largest = std::max(largest, std::abs(truth[i]));
            error = std::max(error, std::abs(row[i] - truth[i]));
            if (std::isnan(row[i])) error = INFINITY;
        }
        worst = std::max(worst, error / largest);
        ++num_rows;
    });
    EngineRequest request;
    for (int i = 0; i < static_cast<int>(tokens.size()); ++i) {
        (i < prompt_len ? request.prompt : request.forced)
            .push_back(TokenId(tokens[static_cast<size_t>(i)]));
    }
    request.ignore_eos = true;
    engine.submit(std::move(request));
    while (engine.step()) {
    }
    return num_rows == static_cast<int>(tokens.size()) - prompt_len ? worst : INFINITY;
}

}  // namespace

// The CUDA kernels, run on the CPU, in the engine's place.
class SimtBackendTest : public QObject {
    Q_OBJECT

  private slots:
    void tinyModelAgreesWithTheReference() {
        std::vector<int32_t> tokens;
        for (int i = 0; i < 40; ++i) tokens.push_back((13 * i + 5) % 61);
        const double error = worstAgainstReference(tinyModel(), tokens, 21, DataType::kF32);
        QVERIFY2(error < 1e-4, qPrintable(QString::number(error)));
    }

    void bundledModelAgreesWithTheReference() {
        const LoadedModel model = loadModel("");
        std::vector<int32_t> tokens;
        for (const TokenId token :
             model.tokenizer->encode("Anna has a red ball. She went to the", true)) {
            tokens.push_back(token.value);
        }
        const double error = worstAgainstReference(
            model.weights, tokens, static_cast<int>(tokens.size()) / 2, DataType::kF16);
        QVERIFY2(error < 1e-3, qPrintable(QString::number(error)));
    }

    void schedulesAgreeWithTheCpu_data() { addScheduleRows(); }

    void schedulesAgreeWithTheCpu() {
        double difference = 0;
        verifySchedulesAgreeWithTheCpu("simt", difference);
        // Other kernels: if the bits are the same, the CPU's ran.
        QVERIFY(difference > 0);
    }

    void otherNamesAreRefused() {
        expectError(ErrorKind::kBadArgument, "use auto, cpu, cuda or simt",
                    [] { makeBackend("abacus", 1); });
    }
};

QTEST_GUILESS_MAIN(SimtBackendTest)
#include "simt_backend_test.moc"
