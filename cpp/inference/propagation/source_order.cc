#include "inference/propagation/source_order.h"

#include <algorithm>
#include <array>
#include <bit>

#include "inference/evaluation/blocks.h"

namespace livegnn {
namespace {

constexpr size_t kFewNumbers = 64;  // so many are sorted faster by comparing them
constexpr int kDigit = 11;          // bits: the counts of all digits fit into the cache beside the numbers

// Sorts different numbers of which the high halves have `bits` bits, and the low halves ascend.
void sort_by_high_half(uint64_t* numbers, size_t count, int bits, std::vector<uint64_t>* spare) {
  if (count <= kFewNumbers) return std::sort(numbers, numbers + count);
  grow(spare, count);
  const int passes = std::max(1, (bits + kDigit - 1) / kDigit), digit = (bits + passes - 1) / passes;
  const uint64_t mask = (uint64_t{1} << digit) - 1;
  std::array<uint32_t, size_t{1} << kDigit> next;
  uint64_t *from = numbers, *to = spare->data();
  for (int shift = 32; shift < 32 + passes * digit; shift += digit) {
    std::fill_n(next.begin(), mask + 1, 0);
    for (size_t i = 0; i < count; ++i) ++next[from[i] >> shift & mask];
    uint32_t before = 0;
    for (size_t d = 0; d <= mask; ++d) {
      const uint32_t equal = next[d];
      next[d] = before;
      before += equal;
    }
    for (size_t i = 0; i < count; ++i) to[next[from[i] >> shift & mask]++] = from[i];
    std::swap(from, to);
  }
  if (from != numbers) std::copy_n(from, count, numbers);
}

}  // namespace

void SourceOrder::sort(const std::vector<uint32_t>& nodes) {
  size_ = nodes.size();
  grow(&numbers_, size_);
  uint32_t all = 0;
  bool sorted = true;
  for (size_t i = 0; i < size_; ++i) {
    numbers_[i] = uint64_t{nodes[i]} << 32 | i;
    all |= nodes[i];
    sorted &= i == 0 || nodes[i - 1] < nodes[i];
  }
  if (!sorted) sort_by_high_half(numbers_.data(), size_, std::bit_width(all), &spare_);
}

}  // namespace livegnn
