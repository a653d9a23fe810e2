// SPDX-License-Identifier: MIT
#include "engine/backend/selfcheck.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "engine/clock.h"
#include "engine/error.h"
#include "engine/model/reference_model.h"
#include "engine/model/transformer.h"
#include "kernels/half.h"
#include "kernels/quantise.h"
#include "kernels/reference/attention_reference.h"
#include "kernels/reference/dequantise_reference.h"
#include "kernels/reference/llama_reference.h"
#include "kernels/simt/kernel_use.h"

namespace kvlab {

namespace {

constexpr double kNoNumber = INFINITY;  // no tolerance lets this pass
constexpr size_t kMarginBytes = 256;    // before and behind each output
constexpr std::byte kPoison{0xff};      // NaN as f32, f16 and bf16
// Logits, and K and V in the pool beyond their own rounding, of whole decodes.
constexpr double kDecodeTolerance = 1e-4;
constexpr double kStoredKvTolerance = 1e-4;

// Shapes and values of one case; printed with its error.
template <class... Parts>
std::string shapeText(const Parts&... parts) {
    std::string text;
    const auto add = [&](const auto& part) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
            text += std::to_string(part);
        } else {
            text += part;
        }
    };
    (add(parts), ...);
    return text;
}

class Random {
  public:
    explicit Random(uint64_t seed) : engine_(seed) {}
    int whole(int low, int high) {
        return low + static_cast<int>(engine_() % static_cast<uint64_t>(high - low + 1));
    }
    bool coin() { return whole(0, 1) == 1; }
    float real(float low, float high) {
        return low +
               (high - low) * static_cast<float>(static_cast<double>(engine_() >> 11) * 0x1p-53);
    }
    // About normal, so that values of all magnitudes meet.
    float value() { return real(-1, 1) + real(-1, 1) + real(-1, 1); }
    std::vector<float> values(int64_t count, float scale = 1.f) {
        std::vector<float> result(static_cast<size_t>(count));
        for (float& x : result) x = value() * scale;
        return result;
    }
    std::vector<int32_t> shuffled(int count) {
        std::vector<int32_t> result(static_cast<size_t>(count));
        std::iota(result.begin(), result.end(), 0);
        std::shuffle(result.begin(), result.end(), engine_);
        return result;
    }

  private:
    std::mt19937_64 engine_;
};

// Memory of the backend with given contents; what the host gave stays for comparison. It begins
// `shift` bytes behind an address that suits every load.
class Place {
  public:
    Place(Backend& backend, std::vector<std::byte> bytes, size_t shift = 0)
        : backend_(backend), shift_(shift), given_(std::move(bytes)), bytes_(shift, kPoison) {
        bytes_.insert(bytes_.end(), given_.begin(), given_.end());
        memory_ = backend.resident(bytes_.data(), static_cast<int64_t>(bytes_.size()), "selfcheck");
    }
    std::byte* data() const { return memory_.get() + shift_; }
    const std::vector<std::byte>& given() const { return given_; }
    std::vector<std::byte> now() const {
        std::vector<std::byte> result(given_.size());
        backend_.download(data(), static_cast<int64_t>(result.size()), result.data());
        return result;
    }

  private:
    Backend& backend_;
    size_t shift_;
    std::vector<std::byte> given_;
    std::vector<std::byte> bytes_;  // the memory itself where operations read host memory
    Backend::Memory memory_;
};

template <class T>
std::vector<std::byte> bytesOf(const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

class Input {
  public:
    template <class T>
    Input(Backend& backend, const std::vector<T>& values, size_t shift = 0)
        : place_(backend, bytesOf(values), shift) {}
    const float* floats() const { return reinterpret_cast<const float*>(place_.data()); }
    const int32_t* ints() const { return reinterpret_cast<const int32_t*>(place_.data()); }
    const void* raw() const { return place_.data(); }

  private:
    Place place_;
};

// An output of f32 between margins. `before` is what lies in it, poison if empty.
class Output {
  public:
    Output(Backend& backend,
           int64_t num_values,
           const std::vector<float>& before = {},
           size_t shift = 0)
        : num_values_(static_cast<size_t>(num_values)),
          place_(backend, poisoned(num_values_, before), shift) {}
    float* data() const { return reinterpret_cast<float*>(place_.data() + kMarginBytes); }
    // Empty when a margin was written to.
    std::vector<float> read() const {
        const std::vector<std::byte> bytes = place_.now();
        const auto end = bytes.end() - kMarginBytes;
        if (std::any_of(bytes.begin(), bytes.begin() + kMarginBytes,
                        [](std::byte b) { return b != kPoison; }) ||
            std::any_of(end, bytes.end(), [](std::byte b) { return b != kPoison; })) {
            return {};
        }
        std::vector<float> values(num_values_);
        std::memcpy(values.data(), bytes.data() + kMarginBytes, num_values_ * sizeof(float));
        return values;
    }

  private:
    static std::vector<std::byte> poisoned(size_t num_values, const std::vector<float>& before) {
        std::vector<std::byte> bytes(num_values * sizeof(float) + 2 * kMarginBytes, kPoison);
        if (!before.empty()) {
            std::memcpy(bytes.data() + kMarginBytes, before.data(), before.size() * sizeof(float));
        }
        return bytes;
    }

    size_t num_values_;
    Place place_;
};

double largest(const std::vector<double>& values) {
    double result = 0;
    for (const double value : values) result = std::max(result, std::abs(value));
    return result;
}

// max |a - b| / scale.
double errorOver(const std::vector<float>& a, const std::vector<double>& b, double scale) {
    if (a.size() != b.size()) return kNoNumber;
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double error = std::abs(a[i] - b[i]);
        if (!(error <= kNoNumber) || std::isinf(a[i])) return kNoNumber;
        worst = std::max(worst, error);
    }
    return scale > 0 ? worst / scale : worst;
}

double relativeError(const std::vector<float>& a, const std::vector<double>& b) {
    return errorOver(a, b, largest(b));
}

struct Selfcheck {
    Backend& backend;
    const SelfcheckOptions& options;
    SelfcheckReport report;
    Random random;
    SteadyClock clock;
    SelfcheckRow row;
    double row_start_ms = 0;
    int64_t num_swap_cases = 0;

    Selfcheck(Backend& given, const SelfcheckOptions& wanted)
        : backend(given), options(wanted), random(wanted.seed) {
        report.backend = backend.name();
        report.device = backend.deviceName();
        report.seed = wanted.seed;
    }

    void begin(const std::string& operation, const std::string& variant, double tolerance) {
        row = {};
        row.operation = operation;
        row.variant = variant;
        row.tolerance = tolerance;
        row_start_ms = clock.nowMs();
    }

    void end() {
        row.seconds = (clock.nowMs() - row_start_ms) / 1000;
        if (options.on_row) options.on_row(row);
        report.rows.push_back(row);
    }

    // `work` runs one case and returns its error. An operation that refuses arguments it must take
    // has failed; a device that is broken ends everything.
    template <class Work>
    void check(const std::string& shape, const Work& work) {
        double error = kNoNumber;
        std::string what = shape;
        try {
            error = work();
        } catch (const EngineError& problem) {
            if (problem.kind() != ErrorKind::kInternal) throw;
            what += std::string(": ") + problem.what();
        } catch (const std::exception& problem) {
            what += std::string(": ") + problem.what();
        }
        if (std::isnan(error)) error = kNoNumber;
        if (row.num_cases++ == 0 || error > row.worst_error) {
            row.worst_error = error;
            row.worst_case = what;
        }
    }

    template <class Params>
    void run(void (*operation)(const Params&, ExecutionContext&), const Params& params) {
        backend.beginStep();
        operation(params, backend.context());
        backend.endStep();
    }

    // --- one operation each ---------------------------------------------------------------------

    void checkEmbedding() {
        for (const TensorType type : kAllTensorTypes) {
            begin("embedding", tensorTypeName(type), 1e-6);
            for (const int dim : {256, 512, isQuantised(type) ? 768 : 72}) {
                const int vocab_size = random.whole(5, 40);
                const int num_tokens = random.whole(1, 9);
                check(shapeText(num_tokens, " tokens of ", dim), [&] {
                    const std::vector<std::byte> table =
                        quantise(type, random.values(int64_t{vocab_size} * dim).data(),
                                 int64_t{vocab_size} * dim);
                    std::vector<int32_t> ids;
                    for (int i = 0; i < num_tokens; ++i) {
                        ids.push_back(random.whole(0, vocab_size - 1));
                    }
                    ids.back() = vocab_size - 1;
                    const Input table_there(backend, table), ids_there(backend, ids);
                    const Output output(backend, int64_t{num_tokens} * dim);
                    EmbeddingParams p;
                    p.table = table_there.raw();
                    p.type = type;
                    p.token_ids = ids_there.ints();
                    p.output = output.data();
                    p.num_tokens = num_tokens;
                    p.vocab_size = vocab_size;
                    p.dim = dim;
                    run(backend.ops().embedding, p);
                    std::vector<double> expected;
                    for (const int32_t id : ids) {
                        for (int d = 0; d < dim; ++d) {
                            expected.push_back(
                                dequantisedAt(type, table.data(), int64_t{id} * dim + d));
                        }
                    }
                    return relativeError(output.read(), expected);
                });
            }
            end();
        }
    }

    void checkRmsNorm() {
        begin("rms_norm", "f32", 1e-5);
        for (const int dim : {8, 24, 30, 100, 256, 1024, 4096, 8192}) {
            for (const int num_rows : {1, random.whole(2, 9)}) {
                const bool in_place = random.coin();
                check(shapeText(num_rows, " rows of ", dim, in_place ? ", in place" : ""), [&] {
                    const float scale = random.coin() ? 1.f : 100.f;
                    const std::vector<float> input = random.values(int64_t{num_rows} * dim, scale);
                    const std::vector<float> weight = random.values(dim);
                    const Input input_there(backend, input), weight_there(backend, weight);
                    const Output output(backend, int64_t{num_rows} * dim,
                                        in_place ? input : std::vector<float>{});
                    RmsNormParams p;
                    p.input = in_place ? output.data() : input_there.floats();
                    p.weight = weight_there.floats();
                    p.output = output.data();
                    p.num_rows = num_rows;
                    p.dim = dim;
                    p.epsilon = 1e-5f;
                    run(backend.ops().rms_norm, p);
                    std::vector<double> expected;
                    for (int r = 0; r < num_rows; ++r) {
                        const float* x = input.data() + int64_t{r} * dim;
                        double squares = 0;
                        for (int d = 0; d < dim; ++d) squares += double{x[d]} * x[d];
                        const double factor = 1 / std::sqrt(squares / dim + double{p.epsilon});
                        for (int d = 0; d < dim; ++d) {
                            expected.push_back(x[d] * factor * weight[static_cast<size_t>(d)]);
                        }
                    }
                    return relativeError(output.read(), expected);
                });
            }
        }
        end();
    }

    void checkMatmul() {
        struct Shape {
            int num_rows, num_inputs, num_outputs;
            size_t shift = 0;  // of the weights, in bytes
        };
        for (const TensorType type : kAllTensorTypes) {
            begin("matmul", tensorTypeName(type), 2e-5);
            std::vector<Shape> shapes = {{1, 256, 65},
                                         {2, 512, 7},
                                         {4, 256, 10},
                                         {5, 256, 130},
                                         {17, 512, 33},
                                         {64, 256, 96},
                                         {random.whole(3, 40), 768, random.whole(1, 70)},
                                         {6, 256, 11, 4}};
            // Many rows and outputs: a GPU takes its tiled kernel from 96 tiles of 64 x 64 on.
            shapes.push_back({random.whole(33, 64), std::max(64, tensorBlockValues(type)),
                              6144 - random.whole(0, 63)});
            if (!isQuantised(type)) {
                shapes.insert(shapes.end(), {{1, 24, 61}, {3, 40, 24}, {9, 1, 1}, {33, 9, 6081}});
            } else if (type == TensorType::kQ4_K) {  // whose blocks are read in 16 bytes
                shapes.push_back({33, 256, 6081, 2});
            }
            for (const Shape& shape : shapes) {
                const bool has_bias = random.coin();
                const bool accumulate = random.coin();
                check(shapeText(shape.num_rows, " rows, ", shape.num_inputs, " to ",
                                shape.num_outputs, has_bias ? ", bias" : "",
                                accumulate ? ", added" : "", shape.shift > 0 ? ", shifted" : ""),
                      [&] {
                          return matmulError(backend.ops().matmul, type, shape.num_rows,
                                             shape.num_inputs, shape.num_outputs, has_bias,
                                             accumulate, shape.shift);
                      });
            }
            end();
        }
    }

    // What stands around cuBLAS.
    void checkMatmulSplit() {
        if (backend.ops().matmul_split == nullptr) return;
        for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
            begin("matmul_split", tensorTypeName(type), 2e-5);
            for (const int num_rows : {1, 33, random.whole(34, 70)}) {
                const int num_inputs = random.whole(1, 600);
                const int num_outputs = num_rows == 1 ? 1100 : random.whole(1, 70);
                const bool has_bias = random.coin();
                const bool accumulate = random.coin();
                check(shapeText(num_rows, " rows, ", num_inputs, " to ", num_outputs), [&] {
                    return matmulError(backend.ops().matmul_split, type, num_rows, num_inputs,
                                       num_outputs, has_bias, accumulate, 0);
                });
            }
            end();
        }
    }

    double matmulError(void (*operation)(const MatmulParams&, ExecutionContext&),
                       TensorType type,
                       int num_rows,
                       int num_inputs,
                       int num_outputs,
                       bool has_bias,
                       bool accumulate,
                       size_t shift) {
        // Rows beyond these repeat them, which saves most of the time of thousands of outputs; they
        // are no whole number of tiles.
        const int num_distinct = std::min(num_outputs, 331);
        const int64_t num_weights = int64_t{num_distinct} * num_inputs;
        std::vector<std::byte> weight =
            quantise(type, random.values(num_weights).data(), num_weights);
        const std::vector<double> widened = dequantiseReference(type, weight.data(), num_weights);
        const size_t row_bytes = weight.size() / static_cast<size_t>(num_distinct);
        weight.resize(row_bytes * static_cast<size_t>(num_outputs));
        for (size_t at = row_bytes * static_cast<size_t>(num_distinct); at < weight.size(); ++at) {
            weight[at] = weight[at - row_bytes * static_cast<size_t>(num_distinct)];
        }
        const std::vector<float> input = random.values(int64_t{num_rows} * num_inputs);
        const std::vector<float> bias = random.values(num_outputs);
        const std::vector<float> before = random.values(int64_t{num_rows} * num_outputs);
        const Input weight_there(backend, weight, shift), input_there(backend, input),
            bias_there(backend, bias);
        const Output output(backend, int64_t{num_rows} * num_outputs,
                            accumulate ? before : std::vector<float>{});
        MatmulParams p;
        p.input = input_there.floats();
        p.weight = weight_there.raw();
        p.type = type;
        p.bias = has_bias ? bias_there.floats() : nullptr;
        p.output = output.data();
        p.num_rows = num_rows;
        p.num_inputs = num_inputs;
        p.num_outputs = num_outputs;
        p.accumulate = accumulate;
        run(operation, p);
        std::vector<double> expected;
        double scale = 0;
        std::vector<double> products(static_cast<size_t>(num_distinct));
        for (int r = 0; r < num_rows; ++r) {
            for (int o = 0; o < num_distinct; ++o) {
                double sum = 0;
                double squares = 0;
                for (int k = 0; k < num_inputs; ++k) {
                    const double term = widened[static_cast<size_t>(o) * num_inputs + k] *
                                        input[static_cast<size_t>(r) * num_inputs + k];
                    sum += term;
                    squares += term * term;
                }
                products[static_cast<size_t>(o)] = sum;
                scale = std::max(scale, std::sqrt(squares));
            }
            for (int o = 0; o < num_outputs; ++o) {
                double sum = products[static_cast<size_t>(o % num_distinct)];
                if (has_bias) sum += bias[static_cast<size_t>(o)];
                if (accumulate) sum += before[static_cast<size_t>(r) * num_outputs + o];
                expected.push_back(sum);
                scale = std::max(scale, std::abs(sum));
            }
        }
        return errorOver(output.read(), expected, scale);
    }

    // Q, K and V of a layer, and gate and up, as the forward pass asks for them.
    void checkMatmulGroup() {
        for (const TensorType type : kAllTensorTypes) {
            begin("matmul_group", tensorTypeName(type), 5e-5);
            for (const int num_rows : {1, 2, random.whole(3, 8), 19, 40}) {
                const int num_inputs = num_rows == 1 ? 2048 : 256;
                for (const bool silu_mul : {false, true}) {
                    for (const bool norm : {false, true}) {
                        check(shapeText(num_rows, " rows, ", num_inputs, " inputs, ",
                                        silu_mul ? "gate and up" : "three parts",
                                        norm ? ", norm" : ""),
                              [&] {
                                  return matmulGroupError(type, num_rows, num_inputs, silu_mul,
                                                          norm);
                              });
                    }
                }
            }
            end();
        }
    }

    double matmulGroupError(
        TensorType type, int num_rows, int num_inputs, bool silu_mul, bool norm) {
        const std::vector<float> values = random.values(int64_t{num_rows} * num_inputs);
        const Input input_there(backend, values);
        const std::vector<float> norm_weight = random.values(num_inputs);
        const Input norm_weight_there(backend, norm_weight);
        const Output normed(backend, int64_t{num_rows} * num_inputs);
        std::vector<double> input(values.begin(), values.end());
        MatmulGroupParams p;
        p.input = input_there.floats();
        p.num_parts = silu_mul ? 2 : 3;
        p.num_rows = num_rows;
        p.num_inputs = num_inputs;
        p.silu_mul = silu_mul;
        if (norm) {
            p.norm_weight = norm_weight_there.floats();
            p.norm_epsilon = 1e-5f;
            p.normed = normed.data();
            for (int r = 0; r < num_rows; ++r) {
                double* const x = input.data() + int64_t{r} * num_inputs;
                double squares = 0;
                for (int k = 0; k < num_inputs; ++k) squares += x[k] * x[k];
                const double factor = 1 / std::sqrt(squares / num_inputs + double{p.norm_epsilon});
                for (int k = 0; k < num_inputs; ++k) {
                    x[k] *= factor * norm_weight[static_cast<size_t>(k)];
                }
            }
        }
        std::vector<std::unique_ptr<Input>> theirs;
        std::vector<std::unique_ptr<Output>> outputs;
        std::vector<std::vector<double>> expected;
        std::vector<double> scales;
        const int num_gates = random.whole(1, 40);
        for (int i = 0; i < p.num_parts; ++i) {
            const int num_outputs = silu_mul ? num_gates : random.whole(1, 70);
            const bool has_bias = !silu_mul && random.coin();
            const int64_t num_weights = int64_t{num_outputs} * num_inputs;
            const std::vector<std::byte> weight =
                quantise(type, random.values(num_weights).data(), num_weights);
            const std::vector<double> widened =
                dequantiseReference(type, weight.data(), num_weights);
            const std::vector<float> bias = random.values(num_outputs);
            theirs.push_back(std::make_unique<Input>(backend, weight));
            const void* const weight_there = theirs.back()->raw();
            theirs.push_back(std::make_unique<Input>(backend, bias));
            outputs.push_back(std::make_unique<Output>(backend, int64_t{num_rows} * num_outputs,
                                                       std::vector<float>{}));
            p.parts[i] = {weight_there, type, has_bias ? theirs.back()->floats() : nullptr,
                          outputs.back()->data(), num_outputs};
            std::vector<double> sums;
            double scale = 0;
            for (int r = 0; r < num_rows; ++r) {
                for (int o = 0; o < num_outputs; ++o) {
                    double sum = has_bias ? bias[static_cast<size_t>(o)] : 0;
                    double squares = 0;
                    for (int k = 0; k < num_inputs; ++k) {
                        const double term = widened[static_cast<size_t>(o) * num_inputs + k] *
                                            input[static_cast<size_t>(r) * num_inputs + k];
                        sum += term;
                        squares += term * term;
                    }
                    sums.push_back(sum);
                    scale = std::max({scale, std::abs(sum), std::sqrt(squares)});
                }
            }
            expected.push_back(std::move(sums));
            scales.push_back(scale);
        }
        run(backend.ops().matmul_group, p);
        if (silu_mul) {
            for (size_t i = 0; i < expected[0].size(); ++i) {
                expected[0][i] *= expected[1][i] / (1 + std::exp(-expected[0][i]));
            }
            return errorOver(outputs[0]->read(), expected[0], scales[0] * scales[1]);
        }
        double worst = 0;
        for (size_t i = 0; i < expected.size(); ++i) {
            worst = std::max(worst, errorOver(outputs[i]->read(), expected[i], scales[i]));
        }
        return worst;
    }

    void checkRope() {
        begin("rope", "f32", 1e-5);
        for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalfSplit}) {
            for (const int head_dim : {8, 64, 80, 128, 256}) {
                const int num_tokens = random.whole(1, 7);
                const int num_heads = random.whole(1, 9);
                const int rope_dim = random.coin() ? head_dim : head_dim / 2;
                const bool has_divisors = random.coin();
                check(shapeText(num_tokens, " tokens, ", num_heads, " heads of ", head_dim, ", ",
                                rope_dim, " turn",
                                style == RopeStyle::kHalfSplit ? ", half-split" : ""),
                      [&] {
                          return ropeError(style, num_tokens, num_heads, head_dim, rope_dim,
                                           has_divisors);
                      });
            }
        }
        end();
    }

    double ropeError(RopeStyle style,
                     int num_tokens,
                     int num_heads,
                     int head_dim,
                     int rope_dim,
                     bool has_divisors) {
        const std::vector<float> before = random.values(int64_t{num_tokens} * num_heads * head_dim);
        std::vector<int32_t> positions;
        for (int t = 0; t < num_tokens; ++t) positions.push_back(random.whole(0, 131071));
        std::vector<float> divisors;
        for (int i = 0; i < rope_dim / 2; ++i) divisors.push_back(random.real(1, 8));
        const Input positions_there(backend, positions), divisors_there(backend, divisors);
        const Output output(backend, static_cast<int64_t>(before.size()), before);
        // The first head again, as an array of its own.
        std::vector<float> first_heads;
        for (int t = 0; t < num_tokens; ++t) {
            const auto head = before.begin() + int64_t{t} * num_heads * head_dim;
            first_heads.insert(first_heads.end(), head, head + head_dim);
        }
        const Output more(backend, static_cast<int64_t>(first_heads.size()), first_heads);
        RopeParams p;
        p.data = output.data();
        p.more_data = more.data();
        p.num_more_heads = 1;
        p.positions = positions_there.ints();
        p.num_tokens = num_tokens;
        p.num_heads = num_heads;
        p.head_dim = head_dim;
        p.rope_dim = rope_dim;
        p.base = random.coin() ? 10000.f : 500000.f;
        p.scale = random.coin() ? 1.f : 0.25f;
        p.divisors = has_divisors ? divisors_there.floats() : nullptr;
        p.style = style;
        run(backend.ops().rope, p);
        std::vector<double> expected(before.begin(), before.end());
        for (int t = 0; t < num_tokens; ++t) {
            for (int h = 0; h < num_heads; ++h) {
                double* const head =
                    expected.data() + (static_cast<int64_t>(t) * num_heads + h) * head_dim;
                for (int i = 0; i < rope_dim / 2; ++i) {
                    double angle = positions[static_cast<size_t>(t)] *
                                   std::pow(double{p.base}, -2.0 * i / rope_dim) * double{p.scale};
                    if (has_divisors) angle /= double{divisors[static_cast<size_t>(i)]};
                    double& x = style == RopeStyle::kHalfSplit ? head[i] : head[2 * i];
                    double& y =
                        style == RopeStyle::kHalfSplit ? head[i + rope_dim / 2] : head[2 * i + 1];
                    const double turned = x * std::cos(angle) - y * std::sin(angle);
                    y = x * std::sin(angle) + y * std::cos(angle);
                    x = turned;
                }
            }
        }
        std::vector<double> expected_more;
        for (int t = 0; t < num_tokens; ++t) {
            const auto head = expected.begin() + int64_t{t} * num_heads * head_dim;
            expected_more.insert(expected_more.end(), head, head + head_dim);
        }
        return std::max(relativeError(output.read(), expected),
                        relativeError(more.read(), expected_more));
    }

    void checkSiluMul() {
        begin("silu_mul", "f32", 1e-5);
        for (const int num_values : {1, 31, 1000, 1001, 4099}) {
            const bool in_place = random.coin();
            const size_t shift = num_values == 1001 ? 4 : 0;
            check(shapeText(num_values, " values", in_place ? ", in place" : "",
                            shift > 0 ? ", shifted" : ""),
                  [&] {
                      std::vector<float> gate = random.values(num_values, 5.f);
                      const std::vector<float> up = random.values(num_values);
                      if (num_values > 30) {  // where the exponential leaves f32
                          gate[3] = 120.f;
                          gate[7] = -120.f;
                      }
                      const Input gate_there(backend, gate, shift), up_there(backend, up);
                      const Output output(backend, num_values,
                                          in_place ? gate : std::vector<float>{}, shift);
                      SiluMulParams p;
                      p.gate = in_place ? output.data() : gate_there.floats();
                      p.up = up_there.floats();
                      p.output = output.data();
                      p.num_values = num_values;
                      run(backend.ops().silu_mul, p);
                      std::vector<double> expected;
                      for (size_t i = 0; i < gate.size(); ++i) {
                          expected.push_back(gate[i] / (1 + std::exp(-double{gate[i]})) * up[i]);
                      }
                      return relativeError(output.read(), expected);
                  });
        }
        end();
    }

    // --- the pool -------------------------------------------------------------------------------

    static PagedKvView poolView(DataType dtype,
                                int num_layers,
                                int num_blocks,
                                int block_size,
                                int num_kv_heads,
                                int head_dim) {
        PagedKvView kv;
        kv.dtype = dtype;
        kv.num_layers = num_layers;
        kv.num_blocks = num_blocks;
        kv.block_size = block_size;
        kv.num_kv_heads = num_kv_heads;
        kv.head_dim = head_dim;
        return kv;
    }

    // One value of a pool on the host, as attention reads it.
    static double storedAt(const PagedKvView& kv, int64_t row, int d) {
        const int64_t index = row * kv.head_dim + d;
        switch (kv.dtype) {
            case DataType::kF32: {
                float value;
                std::memcpy(&value, kv.data + index * 4, 4);
                return value;
            }
            case DataType::kInt8: {
                float scale;
                std::memcpy(&scale, reinterpret_cast<const std::byte*>(kv.scales()) + row * 4, 4);
                return double{scale} * static_cast<int8_t>(kv.data[index]);
            }
            default: {
                uint16_t bits;
                std::memcpy(&bits, kv.data + index * 2, 2);
                return kv.dtype == DataType::kF16 ? halfToFloat(bits) : bfloat16ToFloat(bits);
            }
        }
    }

    // The rounding of one value as a share of its row's largest; a hair more for the arithmetic.
    static double roundingOf(DataType dtype) {
        switch (dtype) {
            case DataType::kF32:
                return 0;
            case DataType::kF16:
                return 0x1p-11 * 1.001;
            case DataType::kBF16:
                return 0x1p-8 * 1.001;
            case DataType::kInt8:
                return 0.5 / 127 * 1.001;
        }
        return 0;
    }

    void checkKvCacheWrite() {
        for (const DataType dtype : kKvDataTypes) {
            begin("kv_cache_write", dataTypeName(dtype), roundingOf(dtype));
            for (const int head_dim : {8, 9, 20, 64, 128, 256}) {
                const int num_kv_heads = random.whole(1, 4);
                const int block_size = random.coin() ? 16 : random.whole(1, 9);
                const bool per_plane = random.coin();
                check(shapeText(num_kv_heads, " heads of ", head_dim, ", blocks of ", block_size,
                                per_plane ? ", a mapping for each plane" : ""),
                      [&] {
                          return kvCacheWriteError(
                              poolView(dtype, 2, 6, block_size, num_kv_heads, head_dim), per_plane);
                      });
            }
            end();
        }
    }

    double kvCacheWriteError(PagedKvView kv, bool per_plane) {
        const int num_slots = kv.num_blocks * kv.block_size;
        const int num_tokens = random.whole(1, std::min(num_slots, 11));
        const int64_t token_values = int64_t{kv.num_kv_heads} * kv.head_dim;
        const std::vector<float> key = random.values(num_tokens * token_values);
        const std::vector<float> value = random.values(num_tokens * token_values, 3.f);
        std::vector<int32_t> mapping;
        const int num_mappings = per_plane ? kv.num_kv_heads : 1;
        for (int m = 0; m < num_mappings; ++m) {
            const std::vector<int32_t> some = random.shuffled(num_slots);
            mapping.insert(mapping.end(), some.begin(), some.begin() + num_tokens);
            if (random.coin()) mapping.back() = -1;
        }
        const Input key_there(backend, key), value_there(backend, value),
            mapping_there(backend, mapping);
        const Place pool(backend,
                         std::vector<std::byte>(static_cast<size_t>(kv.numBytes()), kPoison));
        KvCacheWriteParams p;
        p.key = key_there.floats();
        p.value = value_there.floats();
        p.slot_mapping = mapping_there.ints();
        p.plane_stride = per_plane ? num_tokens : 0;
        p.num_tokens = num_tokens;
        p.layer = 1;
        p.kv = kv;
        p.kv.data = pool.data();
        run(backend.ops().kv_cache_write, p);

        std::vector<std::byte> after = pool.now();
        kv.data = after.data();
        double worst = 0;
        std::vector<bool> is_written(static_cast<size_t>(kv.numRows()));
        for (int t = 0; t < num_tokens; ++t) {
            for (int h = 0; h < kv.num_kv_heads; ++h) {
                const int32_t slot =
                    mapping[static_cast<size_t>(per_plane ? h * num_tokens + t : t)];
                if (slot < 0) continue;
                for (const int part : {PagedKvView::kKey, PagedKvView::kValue}) {
                    const float* const x = (part == PagedKvView::kKey ? key : value).data() +
                                           t * token_values + int64_t{h} * kv.head_dim;
                    const int64_t stored = kv.rowIndex(1, part, slot, h);
                    is_written[static_cast<size_t>(stored)] = true;
                    double row_largest = 0;
                    double row_error = 0;
                    for (int d = 0; d < kv.head_dim; ++d) {
                        row_largest = std::max(row_largest, std::abs(double{x[d]}));
                        const double error = std::abs(storedAt(kv, stored, d) - x[d]);
                        if (std::isnan(error)) return kNoNumber;
                        row_error = std::max(row_error, error);
                    }
                    worst = std::max(worst, row_error / row_largest);
                }
            }
        }
        return othersAreUntouched(kv, after, pool.given(), is_written) ? worst : kNoNumber;
    }

    // Rows that are not in `changed` hold the same bytes, their scales too.
    static bool othersAreUntouched(const PagedKvView& kv,
                                   const std::vector<std::byte>& after,
                                   const std::vector<std::byte>& before,
                                   const std::vector<bool>& changed) {
        const int64_t row_bytes = int64_t{kv.head_dim} * dataTypeBytes(kv.dtype);
        const auto same = [&](int64_t offset, int64_t num_bytes) {
            return std::memcmp(after.data() + offset, before.data() + offset,
                               static_cast<size_t>(num_bytes)) == 0;
        };
        const int64_t scales = kv.numBytes() - kv.numRows() * 4;  // int8
        for (int64_t row = 0; row < kv.numRows(); ++row) {
            if (changed[static_cast<size_t>(row)]) continue;
            if (!same(row * row_bytes, row_bytes)) return false;
            if (kv.dtype == DataType::kInt8 && !same(scales + row * 4, 4)) return false;
        }
        return true;
    }

    std::vector<std::byte> randomBytes(int64_t num_bytes) {
        std::vector<std::byte> bytes(static_cast<size_t>(num_bytes));
        for (std::byte& b : bytes) b = static_cast<std::byte>(random.whole(0, 255));
        return bytes;
    }

    // Pools of each type and of many shapes, whose blocks `move` moves; it returns the error.
    void checkMoves(const char* operation, int num_blocks, double (Selfcheck::*move)(PagedKvView)) {
        for (const DataType dtype : kKvDataTypes) {
            begin(operation, dataTypeName(dtype), 0);
            for (const int head_dim : {8, 9, 20, 64, 128}) {
                const int block_size = random.coin() ? 16 : random.whole(1, 9);
                // A single head of 9 values: no slot begins on 4 bytes, but in f32.
                const int num_kv_heads = head_dim == 9 ? 1 : random.whole(1, 4);
                check(shapeText("heads of ", head_dim, ", blocks of ", block_size), [&] {
                    return (this->*move)(
                        poolView(dtype, 3, num_blocks, block_size, num_kv_heads, head_dim));
                });
            }
            end();
        }
    }

    // The first num_slots slots of block `from` of one pool, all layers' K and V.
    static void copySlots(const PagedKvView& source,
                          int32_t from,
                          const PagedKvView& target,
                          int32_t to,
                          int32_t num_slots) {
        const int64_t row_bytes = int64_t{source.head_dim} * dataTypeBytes(source.dtype);
        for (int layer = 0; layer < source.num_layers; ++layer) {
            for (const int part : {PagedKvView::kKey, PagedKvView::kValue}) {
                for (int s = 0; s < num_slots; ++s) {
                    for (int h = 0; h < source.num_kv_heads; ++h) {
                        const auto rowOf = [&](const PagedKvView& kv, int32_t block) {
                            return kv.rowIndex(layer, part, int64_t{block} * kv.block_size + s, h);
                        };
                        const int64_t at = rowOf(source, from);
                        const int64_t there = rowOf(target, to);
                        std::memcpy(target.data + there * row_bytes, source.data + at * row_bytes,
                                    static_cast<size_t>(row_bytes));
                        if (source.dtype != DataType::kInt8) continue;
                        target.scales()[there] = source.scales()[at];
                    }
                }
            }
        }
    }

    // Blocks go out and others come in, some of them a run in both pools; then rows read what came
    // in, which they must wait for.
    double swapError(PagedKvView kv) {
        PagedKvView host = kv;
        host.num_blocks = 7;
        const Place pool(backend, randomBytes(kv.numBytes()));
        const std::vector<std::byte> host_before = randomBytes(host.numBytes());
        const Backend::Memory host_memory = backend.allocateHost(host.numBytes(), "selfcheck");
        std::memcpy(host_memory.get(), host_before.data(), host_before.size());
        kv.data = pool.data();
        host.data = host_memory.get();

        const std::vector<int32_t> blocks = random.shuffled(kv.num_blocks);
        const std::vector<int32_t> hosts = random.shuffled(host.num_blocks);
        const auto some = [&] { return random.whole(1, kv.block_size); };
        std::vector<BlockSwap> out = {{blocks[0], hosts[0], some()}, {blocks[1], hosts[1], some()}};
        std::vector<BlockSwap> in = {{blocks[2], hosts[2], some()}, {blocks[0], hosts[3], some()}};
        if (random.coin()) {
            // Whole blocks side by side in both pools, the last one partly filled.
            out = {{3, 2, kv.block_size}, {4, 3, kv.block_size}, {5, 4, some()}};
            in = {{8, 2, kv.block_size}, {9, 3, kv.block_size}, {10, 4, some()}};
        }
        const int32_t read = in.back().device_block;
        const int32_t read_slots = in.back().num_slots;
        const int32_t written = in.size() == 3 ? 0 : blocks[3];
        const Input source_there(backend, std::vector<int32_t>{read}),
            target_there(backend, std::vector<int32_t>{written}),
            slots_there(backend, std::vector<int32_t>{read_slots});
        CopyBlocksParams p;
        p.source = source_there.ints();
        p.target = target_there.ints();
        p.num_slots = slots_there.ints();
        p.num_pairs = 1;
        p.kv = kv;
        backend.beginStep();
        backend.swapOut(out, kv, host);
        backend.swapIn(in, kv, host);
        const int64_t key[] = {++num_swap_cases, -1};  // not repeated: the addresses are not
        backend.runRepeatable(key, [&] { backend.ops().copy_blocks(p, backend.context()); });
        backend.endStep();

        std::vector<std::byte> expected = pool.given();
        std::vector<std::byte> host_expected = host_before;
        PagedKvView kv_then = kv;
        PagedKvView host_then = host;
        kv_then.data = expected.data();
        host_then.data = host_expected.data();
        for (const BlockSwap& swap : out) {
            copySlots(kv_then, swap.device_block, host_then, swap.host_block, swap.num_slots);
        }
        for (const BlockSwap& swap : in) {
            copySlots(host_then, swap.host_block, kv_then, swap.device_block, swap.num_slots);
        }
        copySlots(kv_then, read, kv_then, written, read_slots);
        const bool same_host =
            std::memcmp(host_memory.get(), host_expected.data(), host_expected.size()) == 0;
        return same_host && pool.now() == expected ? 0 : kNoNumber;
    }

    double copyBlocksError(PagedKvView kv) {
        const Place pool(backend, randomBytes(kv.numBytes()));
        const int num_pairs = random.whole(1, 4);
        const std::vector<int32_t> blocks = random.shuffled(kv.num_blocks);
        const std::vector<int32_t> source(blocks.begin(), blocks.begin() + num_pairs);
        const std::vector<int32_t> target(blocks.begin() + num_pairs,
                                          blocks.begin() + 2 * num_pairs);
        std::vector<int32_t> num_slots;
        for (int i = 0; i < num_pairs; ++i) num_slots.push_back(random.whole(1, kv.block_size));
        const Input source_there(backend, source), target_there(backend, target),
            slots_there(backend, num_slots);
        CopyBlocksParams p;
        p.source = source_there.ints();
        p.target = target_there.ints();
        p.num_slots = slots_there.ints();
        p.num_pairs = num_pairs;
        p.kv = kv;
        p.kv.data = pool.data();
        run(backend.ops().copy_blocks, p);

        std::vector<std::byte> expected = pool.given();
        kv.data = expected.data();
        for (size_t i = 0; i < source.size(); ++i) {  // no block is a source and a target
            copySlots(kv, source[i], kv, target[i], num_slots[i]);
        }
        return pool.now() == expected ? 0 : kNoNumber;
    }

    // Per head size from which a kernel of its own serves, each way to multiply: query vectors that
    // share a read, with and without matrix instructions.
    struct AttentionForm {
        int head_dim, group;
        AttentionVariant variant;
    };
    static std::vector<AttentionForm> attentionForms(DataType dtype) {
        std::vector<AttentionForm> forms;
        for (const int head_dim : {64, 128, 256}) {
            for (const int group : {1, 2, 4, 8}) {
                forms.push_back({head_dim, group, AttentionVariant::kFma});
            }
            if (dtype == DataType::kF32) continue;
            for (const int group : {8, 16}) {
                forms.push_back({head_dim, group, AttentionVariant::kMma});
            }
        }
        return forms;
    }

    static std::string formText(const AttentionForm& form) {
        return shapeText("heads of ", form.head_dim, ", groups of ", form.group,
                         form.variant == AttentionVariant::kMma ? ", mma" : ", fma");
    }

    void checkPagedAttention() {
        struct Shape {
            int head_dim, num_kv_heads, group, block_size, longest, window;
        };
        for (const DataType dtype : kKvDataTypes) {
            begin("paged_attention", dataTypeName(dtype), 1e-4);
            const Shape shapes[] = {
                {8, 2, 2, 4, 30, 0},
                {16, 1, 1, 16, 70, 0},
                {20, 2, 3, 5, 40, 0},
                {64, 2, 1, 16, 200, 0},
                {64, 1, 4, 1, 60, 0},
                {64, 2, 8, 16, 300, 40},
                {80, 1, 5, 32, 90, 0},
                {128, 2, 4, 16, 150, 0},
                {128, 1, 8, 16, 700, 0},
                {128, 1, 2, 256, 300, 17},
                {256, 1, 2, 16, 80, 0},
                {128, 1, random.whole(1, 9), random.whole(1, 20), random.whole(20, 120), 0}};
            for (const Shape& s : shapes) {
                check(shapeText(s.num_kv_heads, " heads of ", s.head_dim, ", groups of ", s.group,
                                ", blocks of ", s.block_size, ", up to ", s.longest, " tokens",
                                s.window > 0 ? ", windowed" : ""),
                      [&] {
                          return pagedAttentionError(dtype, s.head_dim, s.num_kv_heads, s.group,
                                                     s.block_size, s.longest, s.window);
                      });
            }
            for (const AttentionForm& form : attentionForms(dtype)) {
                const int block_size = random.whole(1, 20);
                check(shapeText(formText(form), ", blocks of ", block_size), [&] {
                    return pagedAttentionError(dtype, form.head_dim, 1, form.group, block_size, 21,
                                               0, false, &form);
                });
            }
            end();
        }
    }

    void checkContiguousAttention() {
        if (backend.ops().contiguous_attention == nullptr) return;
        for (const DataType dtype : {DataType::kF16, DataType::kBF16}) {
            begin("contiguous_attention", dataTypeName(dtype), 1e-4);
            for (const AttentionForm& form : attentionForms(dtype)) {
                const int num_kv_heads = random.whole(1, 2);
                const int longest = random.whole(1, 60);
                check(shapeText(num_kv_heads, " ", formText(form), ", up to ", longest, " tokens"),
                      [&] { return contiguousAttentionError(dtype, form, num_kv_heads, longest); });
            }
            end();
        }
    }

    // Three sequences of ragged lengths: to the reference, a pool whose blocks hold a sequence
    // each.
    double contiguousAttentionError(DataType dtype,
                                    const AttentionForm& form,
                                    int num_kv_heads,
                                    int longest) {
        constexpr int kNumSeqs = 3;
        PagedKvView kv = poolView(dtype, 1, kNumSeqs, longest, num_kv_heads, form.head_dim);
        std::vector<std::byte> pool(static_cast<size_t>(kv.numBytes()), kPoison);
        kv.data = pool.data();
        const std::vector<int32_t> lens = {random.whole(1, longest), longest,
                                           random.whole(1, longest)};
        for (int seq_idx = 0; seq_idx < kNumSeqs; ++seq_idx) {
            for (int i = 0; i < lens[static_cast<size_t>(seq_idx)]; ++i) {
                storeRandom(kv, 0, int64_t{seq_idx} * longest + i);
            }
        }
        const int num_heads = num_kv_heads * form.group;
        const std::vector<float> query =
            random.values(int64_t{kNumSeqs} * num_heads * form.head_dim);
        const std::vector<int32_t> tables = {0, 1, 2};
        PagedAttentionParams paged;
        paged.query = query.data();
        paged.kv = kv;
        paged.block_tables = tables.data();
        paged.max_blocks_per_seq = 1;
        paged.row_to_seq = tables.data();
        paged.context_lens = lens.data();
        paged.num_rows = kNumSeqs;
        paged.num_seqs = kNumSeqs;
        paged.num_heads = num_heads;
        paged.scale = 1.f / std::sqrt(static_cast<float>(form.head_dim));
        const std::vector<double> expected = attentionReference(paged);

        const Place pool_there(backend, pool);
        const Input query_there(backend, query), lens_there(backend, lens);
        const Output output(backend, static_cast<int64_t>(query.size()));
        ContiguousAttentionParams p;
        p.query = query_there.floats();
        p.key = pool_there.data() + kv.offset(0, PagedKvView::kKey, 0, 0) * dataTypeBytes(dtype);
        p.value =
            pool_there.data() + kv.offset(0, PagedKvView::kValue, 0, 0) * dataTypeBytes(dtype);
        p.dtype = dtype;
        p.context_lens = lens_there.ints();
        p.num_seqs = kNumSeqs;
        p.max_context_len = longest;
        p.num_heads = num_heads;
        p.num_kv_heads = num_kv_heads;
        p.head_dim = form.head_dim;
        p.scale = paged.scale;
        p.output = output.data();
        p.num_splits = random.whole(1, 3);
        p.variant = form.variant;
        run(backend.ops().contiguous_attention, p);
        return relativeError(output.read(), expected);
    }

    void checkAttentionMass() {
        for (const DataType dtype : kKvDataTypes) {
            begin("attention_mass", dataTypeName(dtype), 1e-4);
            for (const int head_dim : {8, 64, 128}) {
                const int group = random.whole(1, 8);
                const int block_size = random.coin() ? 16 : random.whole(1, 9);
                const int longest = random.whole(30, 200);
                const int window = random.coin() ? 0 : random.whole(1, 40);
                check(shapeText("heads of ", head_dim, ", groups of ", group, ", blocks of ",
                                block_size, ", up to ", longest, " tokens",
                                window > 0 ? ", windowed" : ""),
                      [&] {
                          return pagedAttentionError(dtype, head_dim, 2, group, block_size, longest,
                                                     window, true);
                      });
            }
            end();
        }
    }

    // Three sequences of ragged lengths; two decode, one has a chunk of its prompt behind a prefix.
    // With a form it is made so, and the chunk has several rows.
    double pagedAttentionError(DataType dtype,
                               int head_dim,
                               int num_kv_heads,
                               int group,
                               int block_size,
                               int longest,
                               int window,
                               bool wants_mass = false,
                               const AttentionForm* form = nullptr) {
        constexpr int kLayer = 1;
        const int fewest = form != nullptr ? 2 : 1;  // rows of the chunk
        const int lens[] = {longest, random.whole(fewest, longest), random.whole(1, longest)};
        const int chunk = std::min(lens[1], random.whole(fewest, 9));
        int num_needed = 0;
        int max_blocks = 0;
        for (const int len : lens) {
            const int num_blocks = (len + block_size - 1) / block_size;
            num_needed += num_blocks;
            max_blocks = std::max(max_blocks, num_blocks);
        }
        ++max_blocks;  // an entry that no row needs
        PagedKvView kv = poolView(dtype, 2, num_needed + 2, block_size, num_kv_heads, head_dim);
        // Poison, and then only what a row may see.
        std::vector<std::byte> pool(static_cast<size_t>(kv.numBytes()), kPoison);
        kv.data = pool.data();
        const std::vector<int32_t> blocks = random.shuffled(kv.num_blocks);
        std::vector<int32_t> tables(3 * static_cast<size_t>(max_blocks), -1);
        std::vector<int32_t> row_to_seq, context_lens;
        int num_taken = 0;
        for (int seq_idx = 0; seq_idx < 3; ++seq_idx) {
            const int num_rows = seq_idx == 1 ? chunk : 1;
            for (int r = 0; r < num_rows; ++r) {
                row_to_seq.push_back(seq_idx);
                context_lens.push_back(lens[seq_idx] - num_rows + 1 + r);
            }
            const int first = firstVisiblePosition(lens[seq_idx] - num_rows + 1, window);
            for (int i = 0; i * block_size < lens[seq_idx]; ++i) {
                const int32_t block = blocks[static_cast<size_t>(num_taken++)];
                // Before the window a table may have lost its entries.
                if ((i + 1) * block_size <= first) continue;
                tables[static_cast<size_t>(seq_idx * max_blocks + i)] = block;
            }
            for (int position = first; position < lens[seq_idx]; ++position) {
                const int32_t block =
                    tables[static_cast<size_t>(seq_idx * max_blocks + position / block_size)];
                storeRandom(kv, kLayer, int64_t{block} * block_size + position % block_size);
            }
        }
        const int num_rows = static_cast<int>(row_to_seq.size());
        const int num_heads = num_kv_heads * group;
        const std::vector<float> query = random.values(int64_t{num_rows} * num_heads * head_dim);

        PagedAttentionParams p;
        p.query = query.data();
        p.kv = kv;
        p.layer = kLayer;
        p.block_tables = tables.data();
        p.max_blocks_per_seq = max_blocks;
        p.row_to_seq = row_to_seq.data();
        p.context_lens = context_lens.data();
        p.num_rows = num_rows;
        p.num_seqs = 3;
        p.num_heads = num_heads;
        p.scale = 1.f / std::sqrt(static_cast<float>(head_dim));
        p.window = window;
        const std::vector<double> expected = attentionReference(p);

        const Place pool_there(backend, pool);
        const Input query_there(backend, query), tables_there(backend, tables),
            rows_there(backend, row_to_seq), lens_there(backend, context_lens);
        const Output output(backend, static_cast<int64_t>(query.size()));
        p.query = query_there.floats();
        p.kv.data = pool_there.data();
        p.block_tables = tables_there.ints();
        p.row_to_seq = rows_there.ints();
        p.context_lens = lens_there.ints();
        p.output = output.data();
        // What changes the way of working, and must not change the result.
        if (random.coin()) p.host_row_to_seq = row_to_seq.data();
        if (random.coin()) p.max_context_len = longest;
        if (random.coin()) p.num_splits = random.whole(1, 4);
        if (random.coin()) p.variant = AttentionVariant::kFma;
        if (form != nullptr) {
            p.host_row_to_seq = row_to_seq.data();
            p.num_splits = 2;
            p.variant = form->variant;
        }
        if (!wants_mass) {
            run(backend.ops().paged_attention, p);
            return relativeError(output.read(), expected);
        }
        const int64_t mass_stride = longest + random.whole(0, 5);
        const int64_t num_masses = 3 * num_kv_heads * mass_stride;
        const Output mass(backend, num_masses, std::vector<float>(static_cast<size_t>(num_masses)));
        p.mass = mass.data();
        p.mass_stride = mass_stride;
        run(backend.ops().paged_attention, p);
        p.kv = kv;
        p.query = query.data();
        p.block_tables = tables.data();
        p.row_to_seq = row_to_seq.data();
        p.context_lens = context_lens.data();
        return std::max(relativeError(output.read(), expected),
                        relativeError(mass.read(), massReference(p)));
    }

    // What PagedAttentionParams::mass should hold, from host memory.
    static std::vector<double> massReference(const PagedAttentionParams& p) {
        const PagedKvView& kv = p.kv;
        const int group = p.num_heads / kv.num_kv_heads;
        std::vector<double> mass(static_cast<size_t>(p.num_seqs * kv.num_kv_heads * p.mass_stride));
        for (int r = 0; r < p.num_rows; ++r) {
            const int seq_idx = p.row_to_seq[r];
            const int first = firstVisiblePosition(p.context_lens[r], p.window);
            for (int head = 0; head < p.num_heads; ++head) {
                const int kv_head = head / group;
                const float* const q =
                    p.query + (static_cast<int64_t>(r) * p.num_heads + head) * kv.head_dim;
                std::vector<double> weights;
                double sum = 0;
                for (int i = first; i < p.context_lens[r]; ++i) {
                    const int64_t block =
                        p.block_tables[seq_idx * p.max_blocks_per_seq + i / kv.block_size];
                    const int64_t key =
                        kv.rowIndex(p.layer, PagedKvView::kKey,
                                    block * kv.block_size + i % kv.block_size, kv_head);
                    double score = 0;
                    for (int d = 0; d < kv.head_dim; ++d) score += q[d] * storedAt(kv, key, d);
                    // Scores here are small: no maximum has to be taken off.
                    weights.push_back(std::exp(score * double{p.scale}));
                    sum += weights.back();
                }
                double* const here =
                    mass.data() + (int64_t{seq_idx} * kv.num_kv_heads + kv_head) * p.mass_stride;
                for (size_t i = 0; i < weights.size(); ++i) {
                    here[static_cast<size_t>(first) + i] += weights[i] / sum;
                }
            }
        }
        return mass;
    }

    // Random values that the type holds exactly enough: they are the truth, whatever they are.
    void storeRandom(const PagedKvView& kv, int layer, int64_t slot) {
        for (const int part : {PagedKvView::kKey, PagedKvView::kValue}) {
            for (int h = 0; h < kv.num_kv_heads; ++h) {
                const int64_t stored = kv.rowIndex(layer, part, slot, h);
                for (int d = 0; d < kv.head_dim; ++d) {
                    const int64_t index = stored * kv.head_dim + d;
                    const float value = random.value();
                    if (kv.dtype == DataType::kF32) {
                        std::memcpy(kv.data + index * 4, &value, 4);
                    } else if (kv.dtype == DataType::kInt8) {
                        kv.data[index] = static_cast<std::byte>(random.whole(-127, 127));
                    } else {
                        const uint16_t bits = kv.dtype == DataType::kF16 ? floatToHalf(value)
                                                                         : floatToBfloat16(value);
                        std::memcpy(kv.data + index * 2, &bits, 2);
                    }
                }
                if (kv.dtype != DataType::kInt8) continue;
                const float scale = random.real(0.001f, 0.02f);
                std::memcpy(reinterpret_cast<std::byte*>(kv.scales()) + stored * 4, &scale, 4);
            }
        }
    }

    // --- what ran
    // ---------------------------------------------------------------------------------

    // Through simt each kernel counts its launches: a kernel that no case reaches is a miss.
    std::vector<simt::KernelUse> kernels_before;

    void checkKernelsRan() {
        begin("kernels", "launched", 0);
        const std::vector<simt::KernelUse> now = simt::kernelUses();
        for (size_t i = 0; i < now.size(); ++i) {
            check(now[i].num_launches > kernels_before[i].num_launches ? "each of them"
                                                                       : now[i].name + " never ran",
                  [&] {
                      return now[i].num_launches > kernels_before[i].num_launches ? 0 : kNoNumber;
                  });
        }
        end();
    }

    // --- whole decodes --------------------------------------------------------------------------

    void checkDecodes() {
        ModelConfig config;
        config.name = "generated";
        config.architecture = "llama";
        config.num_layers = 2;
        config.num_heads = 8;
        config.num_kv_heads = 2;
        config.head_dim = 32;
        config.rope_dim = 32;
        config.embedding_dim = 256;
        config.feed_forward_dim = 256;
        config.vocab_size = 320;
        config.context_len = 512;
        std::vector<int32_t> tokens;
        for (int i = 0; i < 40; ++i) tokens.push_back(random.whole(0, config.vocab_size - 1));
        for (const TensorType type : kAllTensorTypes) {
            ModelConfig other = config;
            if (type == TensorType::kQ8_0) {  // as qwen2 files are
                other.architecture = "qwen2";
                other.rope_style = RopeStyle::kHalfSplit;
                other.has_attention_bias = true;
            }
            if (type == TensorType::kF16) other.layer_windows = {9, 0};
            checkDecode("generated model, " + std::string(tensorTypeName(type)),
                        *ModelWeights::random(other, options.seed, type == TensorType::kF32, type),
                        tokens, DataType::kF32, 16);
        }
        if (!options.model) return;
        for (const DataType dtype : kKvDataTypes) {
            checkDecode(options.model_name, *options.model, options.tokens, dtype,
                        dtype == DataType::kF32 ? 7 : 16);
        }
    }

    // What one step of a decode gave.
    struct DecodedStep {
        std::string shape;
        std::vector<std::pair<int, int>> logit_rows;  // sequence, position
        std::vector<float> logits;                    // [logit_rows.size(), vocab_size]
        std::exception_ptr failure;
    };

    // Two sequences over scattered blocks: the first one's prompt, then the second one's beside a
    // decode row of the first, then rows of both. Every row that gives logits is compared, and at
    // the end all K and V in the pool.
    void checkDecode(const std::string& name,
                     const ModelWeights& weights,
                     const std::vector<int32_t>& tokens,
                     DataType dtype,
                     int block_size) {
        const std::string variant = name + ", K/V " + dataTypeName(dtype);
        begin("decode", variant, kDecodeTolerance);
        const std::vector<int32_t> second(
            tokens.begin() + static_cast<std::ptrdiff_t>(tokens.size() / 3), tokens.end());
        const std::vector<int32_t> texts[] = {tokens, second};
        const ModelConfig& config = weights.config;
        const int max_blocks = static_cast<int>(tokens.size()) / block_size + 1;
        PagedKvView kv = poolView(dtype, config.num_layers, 2 * max_blocks + 1, block_size,
                                  config.num_kv_heads, config.head_dim);
        const Place pool(backend,
                         std::vector<std::byte>(static_cast<size_t>(kv.numBytes()), kPoison));
        kv.data = pool.data();
        const std::vector<int32_t> blocks = random.shuffled(kv.num_blocks);
        const std::vector<int32_t> tables(blocks.begin(), blocks.begin() + 2 * max_blocks);
        const auto slotOf = [&](int s, int position) {
            return tables[static_cast<size_t>(s * max_blocks + position / block_size)] *
                       block_size +
                   position % block_size;
        };
        // The weights belong to the caller for as long as this runs.
        Transformer transformer(
            std::shared_ptr<const ModelWeights>(std::shared_ptr<void>(), &weights), backend);
        int done[2] = {0, 0};
        std::vector<DecodedStep> steps;
        const auto step = [&](int first_rows, int second_rows, bool all_logits) {
            DecodedStep& now = steps.emplace_back();
            now.shape = shapeText(first_rows, " and ", second_rows, " rows after ", done[0],
                                  " and ", done[1], " tokens");
            StepBatch batch;
            batch.num_seqs = 2;
            batch.max_blocks_per_seq = max_blocks;
            batch.block_tables = tables;
            const int counts[] = {first_rows, second_rows};
            for (int s = 0; s < 2; ++s) {
                for (int i = 0; i < counts[s]; ++i, ++done[s]) {
                    const int position = done[s];
                    if (all_logits || i + 1 == counts[s]) {
                        batch.logit_rows.push_back(batch.numTokens());
                        now.logit_rows.push_back({s, position});
                    }
                    batch.token_ids.push_back(texts[s][static_cast<size_t>(position)]);
                    batch.positions.push_back(position);
                    batch.slot_mapping.push_back(slotOf(s, position));
                    batch.row_to_seq.push_back(s);
                    batch.context_lens.push_back(position + 1);
                }
            }
            try {
                backend.beginStep();
                const float* const logits = transformer.forward(batch, kv);
                backend.endStep();
                now.logits.assign(logits, logits + now.logit_rows.size() *
                                                       static_cast<size_t>(config.vocab_size));
            } catch (...) {
                now.failure = std::current_exception();  // `check` knows what to do with it
            }
        };
        const int first_prompt = static_cast<int>(texts[0].size()) / 2;
        const int second_prompt = static_cast<int>(texts[1].size()) / 2;
        step(first_prompt, 0, true);
        step(1, second_prompt, false);
        while (done[0] < static_cast<int>(texts[0].size()) &&
               done[1] < static_cast<int>(texts[1].size()) && !steps.back().failure) {
            step(1, 1, true);
        }

        // The reference attends over K and V as they are stored, and they are held against its own.
        std::vector<std::byte> after = pool.now();
        kv.data = after.data();
        std::vector<bool> is_written(static_cast<size_t>(kv.numRows()));
        StoredKvError kv_errors[2];
        std::vector<double> expected[2];
        for (int s = 0; s < 2; ++s) {
            const auto substitute = [&](int layer, std::vector<double>& keys,
                                        std::vector<double>& values) {
                for (int position = 0; position < done[s]; ++position) {
                    for (int h = 0; h < kv.num_kv_heads; ++h) {
                        const int64_t row_begin =
                            (int64_t{position} * kv.num_kv_heads + h) * kv.head_dim;
                        for (const int part : {PagedKvView::kKey, PagedKvView::kValue}) {
                            const int64_t stored = kv.rowIndex(layer, part, slotOf(s, position), h);
                            is_written[static_cast<size_t>(stored)] = true;
                            double* const exact =
                                (part == PagedKvView::kKey ? keys : values).data() + row_begin;
                            kv_errors[s].add(
                                storedRowError(kv, stored, exact),
                                shapeText(part == PagedKvView::kKey ? "K" : "V", " of layer ",
                                          layer, ", head ", h, ", position ", position));
                            for (int d = 0; d < kv.head_dim; ++d) {
                                exact[d] = storedAt(kv, stored, d);
                            }
                        }
                    }
                }
            };
            expected[s] =
                llamaReference(reference(weights), {texts[s].begin(), texts[s].begin() + done[s]},
                               false, KvSubstitute(substitute));
        }
        for (const DecodedStep& s : steps) {
            check(s.shape, [&] {
                if (s.failure) std::rethrow_exception(s.failure);
                return logitsError(s, expected, config.vocab_size);
            });
        }
        end();

        begin("decode_kv", variant, kStoredKvTolerance);
        for (const StoredKvError& error : kv_errors)
            check(error.place, [&] { return error.worst; });
        check("rows that no token has", [&] {
            return othersAreUntouched(kv, after, pool.given(), is_written) ? 0 : kNoNumber;
        });
        end();
    }

    struct StoredKvError {
        double worst = -1;
        std::string place;
        void add(double error, const std::string& where) {
            if (error <= worst) return;
            worst = error;
            place = where;
        }
    };

    // Half the distance between two neighbouring values of a type, at a value of its range. In int8
    // it is one for a whole row, as a share of whose largest value it is given elsewhere.
    static double halfStepAt(double value, DataType dtype) {
        const int exponent =
            std::max(value == 0 ? -1000 : std::ilogb(value), dtype == DataType::kF16 ? -14 : -126);
        const int num_bits = dtype == DataType::kF16 ? 10 : dtype == DataType::kBF16 ? 7 : 23;
        return std::ldexp(0.5, exponent - num_bits);
    }

    // How much further a stored row lies from the exact one than rounding takes it, over the exact
    // row's largest value.
    static double storedRowError(const PagedKvView& kv, int64_t stored, const double* exact) {
        double row_largest = 0;
        for (int d = 0; d < kv.head_dim; ++d) {
            row_largest = std::max(row_largest, std::abs(exact[d]));
        }
        double worst = 0;
        for (int d = 0; d < kv.head_dim; ++d) {
            const double half_step = kv.dtype == DataType::kInt8 ? row_largest / 127 / 2
                                                                 : halfStepAt(exact[d], kv.dtype);
            const double error = std::abs(storedAt(kv, stored, d) - exact[d]);
            if (!(error <= kNoNumber)) return kNoNumber;
            worst = std::max(worst, error - half_step);
        }
        return row_largest > 0 ? worst / row_largest : worst;
    }

    double logitsError(const DecodedStep& step,
                       const std::vector<double> (&expected)[2],
                       int vocab_size) const {
        double worst = 0;
        for (size_t i = 0; i < step.logit_rows.size(); ++i) {
            const auto [s, position] = step.logit_rows[i];
            const auto begin = expected[s].begin() + int64_t{position} * vocab_size;
            const std::vector<double> truth(begin, begin + vocab_size);
            const auto row_logits = step.logits.begin() + static_cast<int64_t>(i) * vocab_size;
            const std::vector<float> ours(row_logits, row_logits + vocab_size);
            worst = std::max(worst, relativeError(ours, truth));
            if (worst == kNoNumber) return kNoNumber;
            std::vector<double> sorted = truth;
            std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
            const bool is_clear = sorted[0] - sorted[1] > 2 * row.tolerance * largest(truth);
            const auto best = std::max_element(truth.begin(), truth.end()) - truth.begin();
            const auto our_best = std::max_element(ours.begin(), ours.end()) - ours.begin();
            if (is_clear && best != our_best) return kNoNumber;
        }
        return worst;
    }
};

}  // namespace

bool SelfcheckReport::passed() const {
    return std::all_of(rows.begin(), rows.end(), [](const SelfcheckRow& r) { return r.passed(); });
}

SelfcheckReport selfcheck(Backend& backend, const SelfcheckOptions& options) {
    if (options.model && options.tokens.size() < 4) {
        throw EngineError(ErrorKind::kBadArgument,
                          "a selfcheck wants a text of at least 4 tokens for its model");
    }
    Selfcheck check(backend, options);
    if (options.decodes_only) {
        check.checkDecodes();
        return check.report;
    }
    const bool counts_launches = check.report.backend == "simt";
    if (counts_launches) check.kernels_before = simt::kernelUses();
    check.checkEmbedding();
    check.checkRmsNorm();
    check.checkMatmul();
    check.checkMatmulGroup();
    check.checkMatmulSplit();
    check.checkRope();
    check.checkSiluMul();
    check.checkKvCacheWrite();
    check.checkMoves("copy_blocks", 9, &Selfcheck::copyBlocksError);
    // Between the pool and the host pool, where those are two memories.
    if (backend.hasOwnMemory()) check.checkMoves("swap", 11, &Selfcheck::swapError);
    check.checkPagedAttention();
    check.checkAttentionMass();
    check.checkContiguousAttention();
    if (counts_launches) check.checkKernelsRan();
    if (!options.operations_only) check.checkDecodes();
    return check.report;
}

}  // namespace kvlab
