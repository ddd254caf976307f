#include "inference/evaluation/vector_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "program/kernels.h"

namespace livegnn {
namespace {

constexpr uint16_t kAbsent = 0x7fc0;  // the step of a node without a vector: not a number, and so is its score
constexpr float kLargestCode = 15;
constexpr size_t kScoredBlocks = 32;                // at once: their scores are in the first cache
constexpr size_t kPieceBlocks = 8 * kScoredBlocks;  // that a thread takes
constexpr double kNanosecondsPerGroup = 0.1;        // of a row

// The largest bfloat16 that is no larger.
uint16_t bfloat_below(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits >> 16) + (value < 0 && (bits & 0xffff) != 0 ? 1 : 0));
}

// The smallest bfloat16 that is no smaller, of a number that is not negative.
uint16_t bfloat_above(float value) { return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + 0xffff) >> 16); }

float float_of(uint16_t bfloat) { return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16); }

// A query in the numbers of the codes.
struct WholeQuery {
  std::vector<int8_t> weights;
  float unit, sum;
};

WholeQuery whole_query(const float* query, const std::vector<float>& spread, size_t groups) {
  const size_t width = spread.size();
  std::vector<double> weights(groups * kCodeGroup, 0.0);
  for (size_t c = 0; c < width; ++c) weights[c] = static_cast<double>(query[c]) * static_cast<double>(spread[c]);
  // Products of kCodeProducts groups are added in 16 bits. Rounding adds at most half to each weight.
  constexpr size_t kTogether = kCodeProducts * kCodeGroup;
  double largest = 0, peak = 0;
  for (size_t first = 0; first < weights.size(); first += kTogether) {
    double magnitudes = 0;
    for (size_t c = first; c < std::min(weights.size(), first + kTogether); ++c) {
      magnitudes += std::fabs(weights[c]);
      peak = std::max(peak, std::fabs(weights[c]));
    }
    largest = std::max(largest, magnitudes);
  }
  const double unit = std::max(largest / (kMostCodeWeights - kTogether / 2.0), peak / kMostCodeWeight);
  WholeQuery whole{std::vector<int8_t>(weights.size(), 0), static_cast<float>(unit), 0};
  if (!(unit > 0)) return whole;
  int64_t sum = 0;
  for (size_t c = 0; c < weights.size(); ++c) {
    whole.weights[c] = static_cast<int8_t>(std::lround(weights[c] / unit));
    sum += whole.weights[c];
  }
  whole.sum = static_cast<float>(unit * static_cast<double>(sum));
  return whole;
}

struct Scored {
  float score;
  uint32_t node;
};

bool is_better(const Scored& a, const Scored& b) { return a.score != b.score ? a.score > b.score : a.node < b.node; }

// The best nodes of one thread, which come in ascending order.
class Best {
 public:
  explicit Best(size_t count) : count_(count) {}

  // Only a higher score can be one of the best.
  float least() const { return least_; }
  void add(float score, uint32_t node) {
    found_.push_back({score, node});
    if (found_.size() >= 2 * count_) keep();
  }
  const std::vector<Scored>& found() const { return found_; }

  void keep() {
    if (found_.size() < count_) return;
    const auto last = found_.begin() + static_cast<std::ptrdiff_t>(count_) - 1;
    std::nth_element(found_.begin(), last, found_.end(), is_better);
    least_ = last->score;
    found_.resize(count_);
  }

 private:
  size_t count_;
  float least_ = -std::numeric_limits<float>::infinity();
  std::vector<Scored> found_;
};

}  // namespace

VectorCodes::VectorCodes(std::vector<float> center, std::vector<float> spread, size_t nodes, size_t threads)
    : center_(std::move(center)),
      spread_(std::move(spread)),
      groups_(code_groups(center_.size())),
      blocks_(code_block_size(groups_) * sizeof(uint16_t) / sizeof(float)),
      pool_(threads) {
  make_room(nodes);
}

void VectorCodes::make_room(size_t nodes) {
  const size_t before = blocks_.rows(), needed = (nodes + kCodeRows - 1) / kCodeRows;
  if (needed <= before) return;
  blocks_.resize(needed);
  blocks_.settle();
  for (size_t i = before; i < needed; ++i) std::fill_n(block(i) + groups_ * kCodeRows, kCodeRows, kAbsent);
}

void VectorCodes::put(std::span<const uint32_t> nodes, const float* rows) {
  if (nodes.empty()) return;
  std::vector<float> scaled(groups_ * kCodeGroup, 0.0f);
  make_room(*std::ranges::max_element(nodes) + size_t{1});
  for (uint32_t node : nodes) {
    write(node, rows, scaled.data());
    rows += width();
  }
}

void VectorCodes::erase(std::span<const uint32_t> nodes) {
  for (uint32_t node : nodes) {
    if (node / kCodeRows >= blocks_.rows()) continue;
    block(node / kCodeRows)[groups_ * kCodeRows + node % kCodeRows] = kAbsent;
  }
}

// scaled: memory for the channels of all groups.
void VectorCodes::write(uint32_t node, const float* row, float* scaled) {
  uint16_t* to = block(node / kCodeRows) + node % kCodeRows;
  float low = std::numeric_limits<float>::infinity(), high = -low;
  bool finite = true;
  for (size_t c = 0; c < width(); ++c) {
    scaled[c] = (row[c] - center_[c]) / spread_[c];
    finite &= std::isfinite(scaled[c]);
    low = std::min(low, scaled[c]);
    high = std::max(high, scaled[c]);
  }
  const uint16_t lowest = finite ? bfloat_below(low) : kAbsent;
  const float base = float_of(lowest), range = (high - base) / kLargestCode;
  const uint16_t step = std::isfinite(base) && std::isfinite(range) ? bfloat_above(range) : kAbsent;
  const float width_of_step = float_of(step);
  if (!std::isfinite(width_of_step)) {
    to[groups_ * kCodeRows] = kAbsent;
    return;
  }
  for (size_t g = 0; g < groups_; ++g) {
    uint32_t codes = 0;
    for (size_t i = 0; i < kCodeGroup && g * kCodeGroup + i < width(); ++i) {
      const float steps = width_of_step > 0 ? (scaled[g * kCodeGroup + i] - base) / width_of_step + 0.5f : 0.0f;
      codes |= static_cast<uint32_t>(std::min(steps, kLargestCode)) << (4 * i);
    }
    to[g * kCodeRows] = static_cast<uint16_t>(codes);
  }
  to[groups_ * kCodeRows] = step;
  to[(groups_ + 1) * kCodeRows] = lowest;
}

std::vector<uint32_t> VectorCodes::search(const float* query, size_t count) const {
  if (count == 0 || blocks_.rows() == 0) return {};
  const WholeQuery whole = whole_query(query, spread_, groups_);
  const CodeQuery codes{whole.weights.data(), whole.unit, whole.sum};
  const auto score = kernels().score_codes;
  std::vector<Best> best(pool_.threads(), Best(count));
  const size_t pieces = (blocks_.rows() + kPieceBlocks - 1) / kPieceBlocks;
  const double nanoseconds = kNanosecondsPerGroup * static_cast<double>(groups_ * kCodeRows * blocks_.rows());
  pool_.run(pieces, nanoseconds, [&](size_t piece, size_t lane) {
    float scores[kScoredBlocks * kCodeRows], peaks[kScoredBlocks];
    const size_t end = std::min(blocks_.rows(), (piece + 1) * kPieceBlocks);
    for (size_t first = piece * kPieceBlocks; first < end; first += kScoredBlocks) {
      const size_t blocks = std::min(kScoredBlocks, end - first);
      score(blocks, groups_, block(first), codes, scores, peaks);
      for (size_t b = 0; b < blocks; ++b) {
        if (!(peaks[b] > best[lane].least())) continue;
        for (size_t i = 0; i < kCodeRows; ++i) {
          const float found = scores[b * kCodeRows + i];
          if (found > best[lane].least()) {
            best[lane].add(found, static_cast<uint32_t>((first + b) * kCodeRows + i));
          }
        }
      }
    }
  });
  Best all(count);
  for (const Best& one : best) {
    for (const Scored& found : one.found()) all.add(found.score, found.node);
  }
  all.keep();
  std::vector<uint32_t> nodes;
  nodes.reserve(all.found().size());
  for (const Scored& one : all.found()) nodes.push_back(one.node);
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

}  // namespace livegnn
