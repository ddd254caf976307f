#include <algorithm>
#include <cmath>
#include <vector>

#include "program/kernels.h"
#include "program/kernels_model.h"
#include "testing/testing.h"

namespace livegnn::kernels_product_test {

using namespace testing;

namespace {

struct Product {
  Product(size_t rows, size_t inner, size_t outputs, Random* random)
      : inner(inner),
        outputs(outputs),
        weight(random->floats(inner * outputs)),
        bias(random->floats(outputs)),
        packed(packed_size(inner, outputs)),
        a(rows, inner, random) {
    pack(inner, outputs, weight.data(), packed.data());
  }

  // The product of some of the rows, with a margin that nobody may write to.
  Floats multiply(const Kernels& k, size_t first, size_t count, bool with_bias) const {
    constexpr size_t kMargin = 3;
    constexpr float kMark = 1234.5f;
    const size_t stride = outputs + kMargin;
    Floats padded(count * stride, kMark), c;
    k.multiply(count, inner, outputs, a.rows.data() + first, packed.data(), with_bias ? bias.data() : nullptr,
               padded.data(), stride);
    for (size_t i = 0; i < count; ++i) {
      const float* row = padded.data() + i * stride;
      c.insert(c.end(), row, row + outputs);
      CHECK(std::all_of(row + outputs, row + stride, [](float value) { return value == kMark; }));
    }
    return c;
  }

  size_t inner, outputs;
  Floats weight, bias, packed;
  ScatteredRows a;
};

void check_product(const Product& product, const Floats& c, bool with_bias) {
  for (size_t i = 0; i < c.size(); ++i) {
    const float* row = product.a.rows[i / product.outputs];
    const size_t column = i % product.outputs;
    double expected = with_bias ? product.bias[column] : 0.0, magnitude = std::fabs(expected);
    for (size_t j = 0; j < product.inner; ++j) {
      double term = double{row[j]} * double{product.weight[column * product.inner + j]};
      expected += term;
      magnitude += std::fabs(term);
    }
    CHECK_NEAR(c[i], expected, (static_cast<double>(product.inner) + 2) * kHalfUlp * magnitude);
  }
}

}  // namespace

TEST(kernels_pack_in_panels) {
  Random random;
  for (size_t inner : {1u, 7u, 33u}) {
    for (size_t outputs : {1u, 31u, 32u, 33u, 70u}) {
      Floats weight = random.floats(inner * outputs), packed(packed_size(inner, outputs), 9.0f);
      pack(inner, outputs, weight.data(), packed.data());
      for (size_t i = 0; i < packed.size(); ++i) {
        size_t panel = i / (kPanel * inner), k = i / kPanel % inner, column = panel * kPanel + i % kPanel;
        CHECK_EQ(packed[i], column < outputs ? weight[column * inner + k] : 0.0f);
      }
    }
  }
}

TEST(kernels_multiply) {
  Random random;
  constexpr size_t kRows = 40;
  const auto all_widths = widths();
  for (size_t outputs : all_widths) {
    for (int turn = 0; turn < 2; ++turn) {
      const bool with_bias = turn == 0;
      const Product product(kRows, all_widths[random.below(all_widths.size())], outputs, &random);
      std::vector<Floats> results;
      for (const Kernels* k : all_kernels()) {
        const Floats whole = product.multiply(*k, 0, kRows, with_bias);
        check_product(product, whole, with_bias);
        results.push_back(whole);
        // A row is the same whoever is multiplied with it.
        for (size_t rows = 1; rows < kRows; ++rows) {
          if (outputs > 64 && rows % 3 != 1) continue;
          const size_t first = random.below(kRows - rows + 1);
          const Floats some = product.multiply(*k, first, rows, with_bias);
          CHECK(same_bits(some.data(), whole.data() + first * outputs, some.size()));
        }
      }
      // All but the plainest fuse, in the same order.
      for (size_t i = 2; i < results.size(); ++i) CHECK(same_bits(results[1], results[i]));
    }
  }
}

TEST(kernels_multiply_every_inner_width) {
  Random random;
  for (size_t inner : widths()) {
    const Product product(5, inner, 1 + random.below(70), &random);
    for (const Kernels* k : all_kernels()) check_product(product, product.multiply(*k, 0, 5, true), true);
  }
}

// Terms that are alike are all rounded the same way: added up one after the other they are off by a thousandth.
TEST(kernels_multiply_a_long_inner_width) {
  Random random;
  const size_t inner = 60000, outputs = 37;
  const Floats ones(inner, 1.0f / 3), weight(inner * outputs, 0.7f);
  Floats packed(packed_size(inner, outputs)), first;
  pack(inner, outputs, weight.data(), packed.data());
  const std::vector<const float*> rows(9, ones.data());
  const double exact = static_cast<double>(inner) * double{ones[0]} * double{weight[0]};
  for (const Kernels* k : all_kernels()) {
    Floats c(rows.size() * outputs), one(outputs);
    k->multiply(rows.size(), inner, outputs, rows.data(), packed.data(), nullptr, c.data(), outputs);
    for (float value : c) CHECK_NEAR(value, exact, 2e-5 * exact);
    k->multiply(1, inner, outputs, rows.data(), packed.data(), nullptr, one.data(), outputs);
    for (size_t i = 0; i < rows.size(); ++i) CHECK(same_bits(one.data(), c.data() + i * outputs, outputs));
  }
  for (size_t some : {511u, 512u, 513u, 1024u, 1500u}) {
    const Product product(11, some, 5, &random);
    for (const Kernels* k : all_kernels()) {
      const Floats whole = product.multiply(*k, 0, 11, true);
      check_product(product, whole, true);
      CHECK(same_bits(product.multiply(*k, 3, 1, true).data(), whole.data() + 15, 5));
    }
  }
}

TEST(kernels_multiply_nothing) {
  Random random;
  const Product product(1, 8, 8, &random);
  for (const Kernels* k : all_kernels()) CHECK(product.multiply(*k, 0, 0, true).empty());
}

}  // namespace livegnn::kernels_product_test
