#include "program/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "program/kernels_model.h"
#include "testing/testing.h"

namespace livegnn::kernels_test {

using namespace testing;

TEST(kernels_are_the_best_that_the_processor_has) {
  CHECK_EQ(&kernels(), all_kernels().back());
  CHECK_EQ(std::string(generic::kKernels.name), "generic");
}

TEST(kernels_add_rows) {
  Random random;
  for (size_t width : widths()) {
    for (size_t count : {0u, 1u, 2u, 7u, 40u}) {
      const ScatteredRows rows(count + 5, width, &random);
      const Floats coefficients = random.floats(count), start = random.floats(width);
      std::vector<uint32_t> indices(count);
      for (uint32_t& index : indices) index = random.index(count + 5);
      Floats expected(start), ones(count, 1.0f);
      for (const Kernels* k : all_kernels()) {
        // Whatever lies behind the row may be read but not written.
        Floats sum(start);
        sum.resize(row_stride(width) + 16, 77.0f);
        k->add_rows(width, count, rows.rows.data(), indices.data(), coefficients.data(), sum.data());
        for (size_t c = 0; c < width; ++c) {
          double total = start[c], magnitude = std::fabs(total);
          for (size_t i = 0; i < count; ++i) {
            double term = double{coefficients[i]} * double{rows.rows[indices[i]][c]};
            total += term;
            magnitude += std::fabs(term);
          }
          CHECK_NEAR(sum[c], total, 2 * static_cast<double>(count + 1) * kHalfUlp * magnitude);
        }
        CHECK(std::all_of(sum.begin() + static_cast<std::ptrdiff_t>(row_stride(width)), sum.end(),
                          [](float value) { return value == 77.0f; }));

        // The same rows by their place in a table, and the same again in two portions, give the same bits.
        std::vector<uint32_t> ids(count);
        for (size_t i = 0; i < count; ++i) {
          ids[i] = static_cast<uint32_t>(static_cast<size_t>(rows.rows[indices[i]] - rows.data.data()) / rows.stride);
        }
        Floats gathered(start), portions(start);
        gathered.resize(row_stride(width));
        portions.resize(row_stride(width));
        k->gather_rows(width, count, rows.data.data(), rows.stride, ids.data(), coefficients.data(), gathered.data());
        CHECK(same_bits(sum.data(), gathered.data(), width));
        const size_t half = count / 2;
        k->add_rows(width, half, rows.rows.data(), indices.data(), coefficients.data(), portions.data());
        k->add_rows(width, count - half, rows.rows.data(), indices.data() + half, coefficients.data() + half,
                    portions.data());
        CHECK(same_bits(sum.data(), portions.data(), width));

        // No coefficients are ones.
        Floats plain(start), with_ones(start);
        plain.resize(row_stride(width));
        with_ones.resize(row_stride(width));
        k->gather_rows(width, count, rows.data.data(), rows.stride, ids.data(), nullptr, plain.data());
        k->gather_rows(width, count, rows.data.data(), rows.stride, ids.data(), ones.data(), with_ones.data());
        CHECK(same_bits(plain, with_ones));
      }
    }
  }
}

TEST(kernels_take_the_largest) {
  Random random;
  for (size_t width : widths()) {
    for (size_t count : {0u, 1u, 5u, 40u}) {
      const ScatteredRows rows(count + 1, width, &random);
      // Rows are drawn more than once and zeros have either sign, so there are ties.
      Floats coefficients(count);
      for (float& coefficient : coefficients) coefficient = static_cast<float>(random.below(3)) / 2;
      std::vector<uint32_t> indices(count);
      for (uint32_t& index : indices) index = random.index(count + 1);
      Floats expected(width, -std::numeric_limits<float>::infinity());
      std::vector<uint32_t> ties(width);
      for (size_t i = 0; i < count; ++i) {
        for (size_t c = 0; c < width; ++c) {
          expected[c] = std::max(expected[c], coefficients[i] * rows.rows[indices[i]][c]);
        }
      }
      for (size_t i = 0; i < count; ++i) {
        for (size_t c = 0; c < width; ++c) ties[c] += coefficients[i] * rows.rows[indices[i]][c] == expected[c];
      }
      CHECK(same_bits(expected, agreed([&](const Kernels& k) {
                        Floats out(width, -std::numeric_limits<float>::infinity());
                        std::vector<uint32_t> counted(width), equal(width);
                        k.max_rows(width, count, rows.rows.data(), indices.data(), coefficients.data(), out.data(),
                                   counted.data());
                        for (size_t i = 0; i < count; ++i) {
                          k.count_equal(width, rows.rows[indices[i]], coefficients[i], out.data(), equal.data());
                        }
                        CHECK(counted == ties);
                        CHECK(equal == ties);
                        return out;
                      })));
    }
  }
}

TEST(kernels_apply_a_delta) {
  Random random;
  for (size_t width : widths()) {
    const Floats old = random.floats(width), inverse = random.floats(width);
    for (int turn = 0; turn < 4; ++turn) {
      // All of it, one element, nothing, and so little that it is lost in rounding.
      Floats delta = turn == 0 ? random.floats(width) : Floats(width);
      if (turn == 1) delta[random.below(width)] = 2;
      if (turn == 3) std::fill(delta.begin(), delta.end(), 1e-30f);
      const Floats out = agreed([&](const Kernels& k) {
        Floats row(width + 1, 55.0f);
        float peak = -1;
        bool changed = k.apply_delta(width, old.data(), delta.data(), inverse.data(), row.data(), &peak);
        CHECK_EQ(changed, turn < 2);
        float largest = 0;
        for (size_t c = 0; c < width; ++c) {
          CHECK_EQ(row[c], old[c] + delta[c]);
          largest = std::max(largest, std::fabs(row[c] * inverse[c]));
        }
        CHECK_EQ(peak, largest);
        CHECK_EQ(row[width], 55.0f);
        return row;
      });
      CHECK_EQ(same_bits(old.data(), out.data(), width), turn >= 2);
    }
  }
}

TEST(kernels_compare_rows_bit_by_bit) {
  Random random;
  for (const Kernels* k : all_kernels()) {
    for (size_t width : widths()) {
      const Floats a = random.floats(width);
      CHECK(!k->differs(width, a.data(), Floats(a).data()));
      for (size_t c = 0; c < width; ++c) {
        Floats b(a);
        b[c] = std::nextafter(b[c], 2.0f);
        CHECK(k->differs(width, a.data(), b.data()));
      }
      const Floats zero(width), minus_zero(width, -0.0f), nan(width, std::numeric_limits<float>::quiet_NaN());
      CHECK(k->differs(width, zero.data(), minus_zero.data()));
      CHECK(!k->differs(width, nan.data(), Floats(nan).data()));
    }
  }
}

TEST(kernels_find_the_peak) {
  Random random;
  for (const Kernels* k : all_kernels()) {
    for (size_t width : widths()) {
      CHECK_EQ(k->peak(width, Floats(width).data()), 0.0f);
      for (size_t c = 0; c < width; ++c) {
        Floats row = random.floats(width);
        row[c] = c % 2 == 0 ? 3.0f : -3.0f;
        CHECK_EQ(k->peak(width, row.data()), 3.0f);
        CHECK_EQ(k->scaled_peak(width, row.data(), Floats(width, 2.0f).data()), 6.0f);
        row[c] *= 1e-3f;
        Floats inverse(width, 2.0f);
        inverse[c] = 1e6f;
        CHECK_EQ(k->scaled_peak(width, row.data(), inverse.data()), std::fabs(row[c]) * 1e6f);
      }
    }
  }
}

TEST(kernels_see_what_is_not_finite_wherever_it_is) {
  Random random;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Kernels* k : all_kernels()) {
    for (size_t width : widths()) {
      const Floats row = random.floats(width), ones(width, 1.0f), zeros(width);
      CHECK(k->finite(width, row.data()));
      Floats largest(width, std::numeric_limits<float>::max());
      CHECK(k->finite(width, largest.data()));
      for (size_t c = 0; c < width; ++c) {
        for (float bad : {infinity, -infinity, infinity - infinity, -(infinity - infinity)}) {
          Floats spoiled(row), out(width);
          spoiled[c] = bad;
          float peak = 0;
          CHECK(!k->finite(width, spoiled.data()));
          CHECK(!std::isfinite(k->scaled_peak(width, spoiled.data(), ones.data())));
          k->apply_delta(width, spoiled.data(), zeros.data(), ones.data(), out.data(), &peak);
          CHECK(!std::isfinite(peak));
          const float weight = 1;
          float reach = 0;
          k->add_heads(1, width, spoiled.data(), &weight, ones.data(), out.data(), &reach);
          CHECK(!std::isfinite(reach));
        }
      }
    }
  }
}

TEST(kernels_work_element_by_element) {
  Random random;
  for (size_t width : widths()) {
    const size_t rows = 1 + random.below(6), stride = width + random.below(3);
    const ScatteredRows left(rows, width, &random), right(rows, width, &random);
    const float* const* a = left.rows.data();
    const float* const* b = right.rows.data();
    const Floats factors = random.floats(rows), scale = random.floats(width), shift = random.floats(width);
    // `run(kernels, out)` on every set gives `one(row, column)`, computed in single precision, and touches nothing
    // else.
    auto check = [&](const auto& run, const auto& one) {
      Floats expected(rows * stride + 1, 55.0f);
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < width; ++c) expected[r * stride + c] = one(r, c);
      }
      for (const Kernels* k : all_kernels()) {
        Floats out(expected.size(), 55.0f);
        run(*k, out.data());
        CHECK(same_bits(expected, out));
      }
    };
    check([&](const Kernels& k, float* out) { k.add(rows, width, a, b, out, stride); },
          [&](size_t r, size_t c) { return a[r][c] + b[r][c]; });
    check([&](const Kernels& k, float* out) { k.multiply_elements(rows, width, a, b, out, stride); },
          [&](size_t r, size_t c) { return a[r][c] * b[r][c]; });
    check([&](const Kernels& k, float* out) { k.maximum(rows, width, a, b, out, stride); },
          [&](size_t r, size_t c) { return std::max(a[r][c], b[r][c]); });
    check([&](const Kernels& k, float* out) { k.add_scaled(rows, width, a, b, factors.data(), out, stride); },
          [&](size_t r, size_t c) {
            const float scaled = factors[r] * b[r][c];
            return a[r][c] + scaled;
          });
    check([&](const Kernels& k, float* out) { k.scale(rows, width, a, factors.data(), out, stride); },
          [&](size_t r, size_t c) { return a[r][c] * factors[r]; });
    check([&](const Kernels& k, float* out) { k.relu(rows, width, a, out, stride); },
          [&](size_t r, size_t c) { return std::max(a[r][c], 0.0f); });
    check([&](const Kernels& k, float* out) { k.leaky_relu(rows, width, a, 0.2f, out, stride); },
          [&](size_t r, size_t c) { return a[r][c] > 0 ? a[r][c] : a[r][c] * 0.2f; });
    for (const float* by : {scale.data(), static_cast<const float*>(nullptr)}) {
      for (const float* plus : {shift.data(), static_cast<const float*>(nullptr)}) {
        check([&](const Kernels& k, float* out) { k.scale_shift(rows, width, a, by, plus, out, stride); },
              [&](size_t r, size_t c) {
                const float scaled = by == nullptr ? a[r][c] : a[r][c] * by[c];
                return plus == nullptr ? scaled : scaled + plus[c];
              });
      }
    }
    for (const Kernels* k : all_kernels()) {
      Floats out(width + 1, 55.0f);
      k->subtract(width, a[0], b[0], out.data());
      for (size_t c = 0; c < width; ++c) CHECK_EQ(out[c], a[0][c] - b[0][c]);
      CHECK_EQ(out[width], 55.0f);
    }
  }
}

TEST(kernels_take_exponentials) {
  Floats x{0.0f, -0.0f, 1.0f, -1.0f, 88.0f, 87.5f, -87.0f, -86.9f, 1e-8f, 0.34657f, -0.34658f};
  for (float value = -87; value < 88; value += 0.0137f) x.push_back(value);
  for (const Kernels* k : all_kernels()) {
    for (size_t width : {size_t{1}, size_t{7}, size_t{8}, size_t{20}, x.size()}) {
      for (size_t first = 0; first + width <= x.size(); first += width) {
        const float* row = x.data() + first;
        Floats out(width);
        k->exponential(1, width, &row, out.data(), width);
        for (size_t c = 0; c < width; ++c) {
          const double expected = std::exp(static_cast<double>(row[c]));
          CHECK_NEAR(out[c] / expected, 1.0, 3 * kHalfUlp);
        }
        k->sigmoid(1, width, &row, out.data(), width);
        for (size_t c = 0; c < width; ++c) {
          const double expected = 1 / (1 + std::exp(-static_cast<double>(row[c])));
          CHECK_NEAR(out[c] / expected, 1.0, 4 * kHalfUlp);
        }
      }
    }
    // Beyond the range of float32 it stops, and never is infinite, or no number.
    const Floats far{1e30f, 100.0f, -100.0f, -1e30f};
    const float* row = far.data();
    Floats out(4);
    k->exponential(1, 4, &row, out.data(), 4);
    CHECK(std::isfinite(out[0]) && out[0] == out[1] && out[1] > 1e38f);
    CHECK(out[2] > 0 && out[2] == out[3] && out[3] < 1e-37f);
    k->sigmoid(1, 4, &row, out.data(), 4);
    CHECK_EQ(out[0], 1.0f);
    CHECK(out[3] >= 0 && out[3] < 1e-37f);
  }
}

TEST(kernels_work_by_heads) {
  Random random;
  for (size_t heads : {1, 2, 3, 8}) {
    for (size_t channels : {1, 4, 7, 16, 33, 64}) {
      const size_t rows = 3, width = heads * channels;
      const ScatteredRows a(rows, width, &random), factors(rows, heads, &random);
      for (const Kernels* k : all_kernels()) {
        Floats out(rows * (width + 2), 9.0f);
        k->sum_channels(rows, heads, channels, a.rows.data(), out.data(), width + 2);
        for (size_t r = 0; r < rows; ++r) {
          for (size_t h = 0; h < heads; ++h) {
            double sum = 0, reach = 0;
            for (size_t c = 0; c < channels; ++c) {
              sum += a.rows[r][h * channels + c];
              reach += std::fabs(a.rows[r][h * channels + c]);
            }
            CHECK_NEAR(out[r * (width + 2) + h], sum, kHalfUlp * static_cast<double>(channels) * reach + 1e-30);
          }
        }
        k->scale_heads(rows, heads, channels, a.rows.data(), factors.rows.data(), out.data(), width + 2);
        for (size_t r = 0; r < rows; ++r) {
          for (size_t c = 0; c < width; ++c) {
            CHECK_EQ(out[r * (width + 2) + c], a.rows[r][c] * factors.rows[r][c / channels]);
          }
        }
        const Floats start = random.floats(width);
        const Floats inverse = random.floats(width);
        Floats sum = start, reach(heads, 1.0f);
        k->add_heads(heads, channels, a.rows[0], factors.rows[0], inverse.data(), sum.data(), reach.data());
        for (size_t h = 0; h < heads; ++h) {
          float peak = 0;
          for (size_t c = h * channels; c < (h + 1) * channels; ++c) {
            const float part = factors.rows[0][h] * a.rows[0][c];
            CHECK_NEAR(sum[c], start[c] + part, 2 * kHalfUlp * (std::fabs(start[c]) + std::fabs(part)));
            peak = std::max(peak, std::fabs(a.rows[0][c] * inverse[c]));
          }
          CHECK_EQ(reach[h], 1.0f + std::fabs(factors.rows[0][h]) * peak);
        }
      }
    }
  }
}

TEST(kernels_normalize) {
  Random random;
  for (size_t width : widths()) {
    Floats a = random.floats(width);
    for (float& value : a) value = 3 + 2 * value;
    const Floats scale = random.floats(width), shift = random.floats(width);
    double mean = 0, variance = 0, square = 0;
    for (float value : a) mean += value / static_cast<double>(width);
    for (float value : a) variance += (value - mean) * (value - mean) / static_cast<double>(width);
    for (float value : a) square += double{value} * double{value};
    for (const auto& [by, plus] :
         {std::pair{&scale, &shift}, {&scale, nullptr}, {nullptr, &shift}, {nullptr, nullptr}}) {
      const Floats out = agreed([&, by = by, plus = plus](const Kernels& k) {
        Floats row(width);
        k.normalize_layer(width, a.data(), by ? by->data() : nullptr, plus ? plus->data() : nullptr, 1e-5f, row.data());
        return row;
      });
      for (size_t i = 0; i < width; ++i) {
        double expected = (a[i] - mean) / std::sqrt(variance + double{1e-5f});
        if (by != nullptr) expected *= (*by)[i];
        if (plus != nullptr) expected += (*plus)[i];
        CHECK_NEAR(out[i], expected, 1e-6 * (1 + std::fabs(expected)));
      }
    }
    for (float epsilon : {1e-12f, 1e3f}) {
      const Floats out = agreed([&](const Kernels& k) {
        Floats row(width);
        k.normalize_l2(width, a.data(), epsilon, row.data());
        return row;
      });
      const double norm = std::max(std::sqrt(square), double{epsilon});
      for (size_t i = 0; i < width; ++i) CHECK_NEAR(out[i], a[i] / norm, 1e-6);
    }
    for (const Kernels* k : all_kernels()) {
      Floats row(width, 9.0f);
      k->normalize_l2(width, Floats(width).data(), 1e-12f, row.data());
      CHECK(row == Floats(width));
    }
  }
}

}  // namespace livegnn::kernels_test
