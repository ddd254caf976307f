#include "program/row_sum.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "memory/table.h"
#include "testing/testing.h"

namespace livegnn::row_sum_test {
namespace {

using testing::Random;
using Floats = std::vector<float>;

constexpr size_t kWidth = 19;

struct Terms {
  Terms(size_t count, bool alike, Random* random)
      : stride(row_stride(kWidth)), table((count + 1) * stride), ids(count), coefficients(random->floats(count)) {
    const Floats one = random->floats(kWidth);
    for (size_t i = 0; i <= count; ++i) {
      const Floats row = alike ? one : random->floats(kWidth);
      std::copy(row.begin(), row.end(), table.begin() + static_cast<ptrdiff_t>(i * stride));
      rows.push_back(table.data() + i * stride);
    }
    for (uint32_t& id : ids) id = random->index(count + 1);
    if (alike) std::fill(coefficients.begin(), coefficients.end(), 1 / 3.0f);
  }

  size_t stride;
  Floats table;
  std::vector<const float*> rows;
  std::vector<uint32_t> ids;
  Floats coefficients;
};

// The same tree, as a reader would write it: blocks of kSumBlock, joined in pairs of the largest powers of two, the
// last ones first.
Floats expected(const Terms& terms, size_t begin, size_t end) {
  Floats sum(terms.stride);
  const size_t count = end - begin;
  if (count <= kSumBlock) {
    kernels().add_rows(terms.stride, count, terms.rows.data(), terms.ids.data() + begin,
                       terms.coefficients.data() + begin, sum.data());
    return sum;
  }
  const size_t blocks = (count - 1) / kSumBlock;  // whole ones, but the last
  const size_t middle = begin + std::bit_floor(blocks) * kSumBlock;
  const Floats first = expected(terms, begin, middle), second = expected(terms, middle, end);
  for (size_t c = 0; c < terms.stride; ++c) sum[c] = first[c] + second[c];
  return sum;
}

bool same_bits(const Floats& a, const Floats& b) {
  return std::memcmp(a.data(), b.data(), kWidth * sizeof(float)) == 0;
}

}  // namespace

TEST(row_sum_is_a_function_of_its_terms) {
  Random random;
  RowSum sum;
  for (size_t count : {size_t{0}, size_t{1}, kSumBlock - 1, kSumBlock, kSumBlock + 1, 2 * kSumBlock, 2 * kSumBlock + 1,
                       3 * kSumBlock, 4 * kSumBlock, 7 * kSumBlock + 5, 11 * kSumBlock, 16 * kSumBlock + 127}) {
    const Terms terms(count, false, &random);
    const Floats whole = expected(terms, 0, count);
    // In portions of any size, as rows and as rows of a table, into whatever was there.
    for (int turn = 0; turn < 6; ++turn) {
      Floats out(terms.stride, 7.0f);
      sum.open(terms.stride, out.data());
      for (size_t i = 0; i < count;) {
        const size_t portion = std::min<size_t>(count - i, 1 + random.below(turn == 0 ? 3 : 400));
        if (turn % 2 == 0) {
          sum.add(portion, terms.rows.data(), terms.ids.data() + i, terms.coefficients.data() + i);
        } else {
          sum.gather(portion, terms.table.data(), terms.stride, terms.ids.data() + i, terms.coefficients.data() + i);
        }
        i += portion;
      }
      sum.close();
      CHECK(same_bits(out, whole));
      sum_rows(terms.stride, count, terms.rows.data(), terms.ids.data(), terms.coefficients.data(), out.data());
      CHECK(same_bits(out, whole));
    }
  }
}

TEST(row_sum_of_a_million_terms_that_are_alike) {
  Random random;
  const size_t count = 1000003;
  const Terms terms(1, true, &random);
  const std::vector<uint32_t> ids(count, 0);
  const Floats thirds(count, 1 / 3.0f);
  Floats out(terms.stride);
  sum_rows(terms.stride, count, terms.rows.data(), ids.data(), thirds.data(), out.data());
  for (size_t c = 0; c < kWidth; ++c) {
    const double exact = static_cast<double>(count) * double{thirds[0]} * double{terms.rows[0][c]};
    CHECK_NEAR(out[c], exact, (kSumBlock + 20) * std::fabs(exact) / (1 << 24));
  }
}

TEST(row_sum_can_be_scaled_on_the_way) {
  Random random;
  const size_t count = 5 * kSumBlock + 77;
  const Terms terms(count, false, &random);
  Floats out(terms.stride);
  BlockSums blocks;
  blocks.open(terms.stride);
  std::vector<double> exact(kWidth);
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && i % kSumBlock == 0) blocks.push(out.data());
    kernels().add_rows(terms.stride, 1, terms.rows.data(), &terms.ids[i], &terms.coefficients[i], out.data());
    for (size_t c = 0; c < kWidth; ++c) exact[c] += double{terms.coefficients[i]} * double{terms.rows[terms.ids[i]][c]};
    if (i % 100 != 50) continue;
    blocks.scale(3, 4, 0.5f);
    for (size_t c = 3; c < 7; ++c) out[c] *= 0.5f, exact[c] *= 0.5;
  }
  blocks.join(out.data());
  CHECK(blocks.empty());
  for (size_t c = 0; c < kWidth; ++c) CHECK_NEAR(out[c], exact[c], 1e-4);
}

// Widely, the sum of terms that fit is the same to the bit; and one that fits is finite, whatever its parts are.
TEST(row_sum_widely) {
  Random random;
  for (size_t count : {size_t{1}, size_t{7}, kSumBlock, 3 * kSumBlock + 5}) {
    Terms terms(count, false, &random);
    for (const bool weighted : {true, false}) {
      Floats plain(terms.stride), wide(terms.stride);
      const float* const coefficients = weighted ? terms.coefficients.data() : nullptr;
      RowSum sum;
      sum.open(terms.stride, plain.data());
      sum.gather(count, terms.table.data(), terms.stride, terms.ids.data(), coefficients);
      sum.close();
      sum.open(terms.stride, wide.data(), true);
      sum.gather(count, terms.table.data(), terms.stride, terms.ids.data(), coefficients);
      sum.close();
      CHECK(same_bits(plain, wide));
    }
    std::vector<float> large(terms.stride, 0x1p127f), total(terms.stride);
    std::vector<float> signs(2 * count + 1, -1.0f);
    std::fill_n(signs.begin(), count + 1, 1.0f);
    const std::vector<uint32_t> indices(signs.size(), 0);
    const float* const row = large.data();
    sum_all_rows(terms.stride, signs.size(), &row, indices.data(), signs.data(), total.data());
    for (size_t c = 0; c < terms.stride; ++c) CHECK_EQ(total[c], 0x1p127f);
  }
}

}  // namespace livegnn::row_sum_test
