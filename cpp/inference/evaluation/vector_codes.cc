#include "inference/evaluation/vector_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace livegnn {
namespace {

constexpr uint16_t kAbsent = 0x7fc0;  // the scale of a node without a vector: not a number, and so is its score
constexpr float kLargestCode = 15;
constexpr double kMostWeight = 127;
constexpr size_t kLeastRotated = 64;      // channels: fewer signs would say little
constexpr size_t kPieceBlocks = 64;       // that a thread takes: their scores are in the first cache
constexpr size_t kSampledBlocks = 128;    // on which signs are compared with codes
constexpr size_t kLeastBlocks = 1024;     // of fewer, all codes are read
constexpr size_t kComparedRows = 64;      // the best of the sample
constexpr double kDeviations = 1.5;       // by which signs may be too low
constexpr double kSignNanoseconds = 0.1;  // of a group of a row
constexpr double kCodeNanoseconds = 3;    // of a piece
constexpr float kInfinity = std::numeric_limits<float>::infinity();

size_t rotated_width(size_t width) {
  return std::max(kLeastRotated, (width + kSignGroup - 1) / kSignGroup * kSignGroup);
}

uint16_t nearest_bfloat(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The largest bfloat16 that is no larger.
uint16_t bfloat_below(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits >> 16) + (value < 0 && (bits & 0xffff) != 0 ? 1 : 0));
}

// The smallest bfloat16 that is no smaller, of a number that is not negative.
uint16_t bfloat_above(float value) { return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + 0xffff) >> 16); }

float float_of(uint16_t bfloat) { return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16); }

// Numbers of a query in whole numbers, of which the largest is kMostWeight, and what one of these is.
struct WholeNumbers {
  std::vector<int8_t> values;
  double unit = 0;

  WholeNumbers(std::span<const double> from, size_t count) : values(count, 0) {
    double peak = 0;
    for (double value : from) peak = std::max(peak, std::fabs(value));
    if (!(peak > 0) || !std::isfinite(peak)) return;
    unit = peak / kMostWeight;
    for (size_t c = 0; c < from.size(); ++c) values[c] = static_cast<int8_t>(std::lround(from[c] / unit));
  }
};

}  // namespace

// A query in the numbers of codes and of signs. Both scores are in the unit of the weights of codes: only the order of
// scores counts.
struct VectorCodes::Query {
  std::vector<int8_t> weights;  // of codes
  float sum;
  double unit, offset;  // a score times the unit, and the offset, is an inner product
  double length;        // of the weights, as a query
  std::vector<uint8_t> sums;
  SignQuery signs{};

  Query(const float* query, const VectorCodes& codes) {
    const std::vector<float>&spread = codes.spread_, &center = codes.center_;
    const Rotation& rotation = codes.rotation_;
    std::vector<double> scaled;
    offset = 0;
    for (size_t c = 0; c < spread.size(); ++c) {
      scaled.push_back(static_cast<double>(query[c]) * static_cast<double>(spread[c]));
      offset += static_cast<double>(query[c]) * static_cast<double>(center[c]);
    }
    WholeNumbers whole(scaled, codes.pieces_ * kCodePiece);
    const double total = std::accumulate(whole.values.begin(), whole.values.end(), 0.0);
    sum = static_cast<float>(total);
    unit = whole.unit;
    length = 0;
    for (int8_t weight : whole.values) length += static_cast<double>(weight) * weight;
    length = unit * std::sqrt(length);
    std::vector<float> rotated(rotation.width(), 0.0f);
    for (size_t c = 0; c < scaled.size() && whole.unit > 0; ++c) {
      rotated[c] = static_cast<float>(scaled[c] / whole.unit);
    }
    rotation.apply(rotated.data());
    use_signs(std::vector<double>(rotated.begin(), rotated.end()));
    weights = std::move(whole.values);
  }

  float score(int32_t total, uint16_t step, uint16_t low) const {
    return float_of(step) * static_cast<float>(total) + float_of(low) * sum;
  }

 private:
  void use_signs(const std::vector<double>& rotated) {
    const WholeNumbers whole(rotated, rotated.size());
    std::vector<int> exact(rotated.size() / kSignGroup * kSignSums, 0);
    int largest = 1, magnitude = 0;
    for (size_t at = 0; at < exact.size(); ++at) {
      const int8_t* four = whole.values.data() + at / 16 * 4;
      for (size_t c = 0; c < 4; ++c) {
        // Without a bit a negative weight counts, so that sums are not negative.
        exact[at] += (at >> c & 1) != 0 ? std::max<int>(four[c], 0) : std::max<int>(-four[c], 0);
      }
      largest = std::max(largest, exact[at]);
    }
    for (int8_t weight : whole.values) magnitude += std::abs(weight);
    const double step = std::max(1.0, static_cast<double>(largest) / kMostSignSum);
    for (int one : exact) sums.push_back(static_cast<uint8_t>(std::lround(one / step)));
    // weights · signs is twice the sum, less all magnitudes.
    signs = {sums.data(), static_cast<float>(2 * step * whole.unit), static_cast<float>(magnitude * whole.unit)};
  }
};

struct VectorCodes::Scored {
  float score;
  uint32_t node;

  // Whether it comes before another.
  bool operator<(const Scored& other) const { return score != other.score ? score > other.score : node < other.node; }
};

// The best nodes of one thread, which come in ascending order.
class VectorCodes::Best {
 public:
  explicit Best(size_t count) : count_(count) {}

  void add(float score, uint32_t node) {
    if (!(score > least_)) return;
    found_.push_back({score, node});
    if (found_.size() >= 2 * count_) keep();
  }
  const std::vector<Scored>& found() const { return found_; }

  void keep() {
    if (found_.size() < count_) return;
    const auto last = found_.begin() + static_cast<std::ptrdiff_t>(count_) - 1;
    std::nth_element(found_.begin(), last, found_.end());
    least_ = last->score;  // only a higher score can be one of the best
    found_.resize(count_);
  }

 private:
  size_t count_;
  float least_ = -kInfinity;
  std::vector<Scored> found_;
};

VectorCodes::VectorCodes(std::vector<float> center, std::vector<float> spread, size_t nodes, size_t threads)
    : center_(std::move(center)),
      spread_(std::move(spread)),
      rotation_(rotated_width(center_.size())),
      groups_(rotation_.width() / kSignGroup),
      pieces_((center_.size() + kCodePiece - 1) / kCodePiece),
      signs_(sign_block_size(groups_) / sizeof(float)),
      codes_(pieces_ * kPieceSize / sizeof(float)),
      steps_(1),
      pool_(threads) {
  make_room(nodes);
}

void VectorCodes::make_room(size_t nodes) {
  const size_t before = blocks(), needed = (nodes + kSignRows - 1) / kSignRows;
  if (needed <= before) return;
  signs_.prepare(needed);
  codes_.prepare(needed * kSignRows);
  steps_.prepare(needed * kSignRows);
  signs_.resize(needed);
  codes_.resize(needed * kSignRows);
  steps_.resize(needed * kSignRows);
  signs_.settle();
  codes_.settle();
  steps_.settle();
  for (size_t i = before; i < needed; ++i) std::fill_n(scales(i), kSignRows, kAbsent);
}

void VectorCodes::put(std::span<const uint32_t> nodes, const float* rows) {
  if (nodes.empty()) return;
  std::vector<float> rotated(rotation_.width());
  make_room(*std::ranges::max_element(nodes) + size_t{1});
  for (uint32_t node : nodes) {
    write(node, rows, rotated.data());
    rows += width();
  }
}

void VectorCodes::erase(std::span<const uint32_t> nodes) {
  for (uint32_t node : nodes) {
    if (node / kSignRows < blocks()) scales(node / kSignRows)[node % kSignRows] = kAbsent;
  }
}

// scaled: memory for the channels of the rotation.
void VectorCodes::write(uint32_t node, const float* row, float* scaled) {
  for (size_t c = 0; c < width(); ++c) scaled[c] = spread_[c] > 0 ? (row[c] - center_[c]) / spread_[c] : 0.0f;
  std::fill(scaled + width(), scaled + rotation_.width(), 0.0f);
  const bool written = write_codes(node, scaled);
  uint16_t* scale = &scales(node / kSignRows)[node % kSignRows];
  *scale = written ? write_signs(node, scaled) : kAbsent;
}

// Returns false if the range of the channels is not finite.
bool VectorCodes::write_codes(uint32_t node, const float* scaled) {
  float low = std::numeric_limits<float>::infinity(), high = -low;
  bool finite = true;
  for (size_t c = 0; c < width(); ++c) {
    finite &= std::isfinite(scaled[c]);
    low = std::min(low, scaled[c]);
    high = std::max(high, scaled[c]);
  }
  if (!finite) return false;
  const uint16_t lowest = bfloat_below(low);
  const float base = float_of(lowest), range = (high - base) / kLargestCode;
  if (!std::isfinite(base) || !std::isfinite(range)) return false;
  const uint16_t step = bfloat_above(range);
  const float width_of_step = float_of(step);
  if (!std::isfinite(width_of_step)) return false;
  auto* codes = reinterpret_cast<uint8_t*>(codes_.row(node));
  std::fill_n(codes, pieces_ * kPieceSize, uint8_t{0});
  for (size_t c = 0; c < width(); ++c) {
    const float steps = width_of_step > 0 ? (scaled[c] - base) / width_of_step + 0.5f : 0.0f;
    const auto code = static_cast<uint32_t>(std::min(steps, kLargestCode));
    codes[c / kCodePiece * kPieceSize + c % kPieceSize] |=
        static_cast<uint8_t>(c % kCodePiece < kPieceSize ? code : code << 4);
  }
  auto* both = reinterpret_cast<uint16_t*>(steps_.row(node));
  both[0] = step, both[1] = lowest;
  return true;
}

// Rotates the channels. Returns the scale, kAbsent if it is not finite.
uint16_t VectorCodes::write_signs(uint32_t node, float* scaled) {
  rotation_.apply(scaled);
  double squares = 0, magnitudes = 0;
  uint8_t* signs = block(node / kSignRows) + place_of_row(node % kSignRows);
  for (size_t g = 0; g < groups_; ++g) {
    uint32_t bits = 0;
    for (size_t i = 0; i < kSignGroup; ++i) {
      const double value = static_cast<double>(scaled[g * kSignGroup + i]);
      squares += value * value;
      magnitudes += std::fabs(value);
      bits |= (value >= 0 ? 1u : 0u) << i;
    }
    signs[g * kSignRows] = static_cast<uint8_t>(bits);
  }
  const uint16_t scale = nearest_bfloat(squares > 0 ? squares / magnitudes : 0);
  return std::isfinite(float_of(scale)) ? scale : kAbsent;
}

// total: the weights of the query times the codes.
float VectorCodes::code_score(const Query& query, uint32_t node, int32_t total) const {
  const auto* both = reinterpret_cast<const uint16_t*>(steps_.row(node));
  return query.score(total, both[0], both[1]);
}

// The least score by signs of nodes whose codes are read, so that few of the best are missed: signs and codes are
// compared on the best nodes of a sample.
float VectorCodes::choose_least(const Query& query, size_t count) const {
  if (blocks() < kLeastBlocks || count * kLeastBlocks > blocks() * kSignRows) return -kInfinity;
  struct Both {
    Scored by_codes;
    float by_signs;
  };
  std::vector<Both> sample;
  sample.reserve(kSampledBlocks * kSignRows);
  for (size_t i = 0; i < kSampledBlocks; ++i) {
    const size_t at = (2 * i + 1) * blocks() / (2 * kSampledBlocks);
    float scores[kSignRows], peak;
    const uint8_t* rows[kSignRows];
    int32_t totals[kSignRows];
    for (size_t row = 0; row < kSignRows; ++row) rows[row] = codes(at * kSignRows + row);
    kernels().score_signs(1, groups_, block(at), query.signs, scores, &peak);
    kernels().multiply_codes(kSignRows, pieces_, rows, query.weights.data(), totals);
    for (size_t row = 0; row < kSignRows; ++row) {
      const uint16_t scale = scales(at)[row];
      const auto node = static_cast<uint32_t>(at * kSignRows + row);
      if (scale != kAbsent) sample.push_back({{code_score(query, node, totals[row]), node}, scores[row]});
    }
  }
  const size_t rank = (count * kSampledBlocks + blocks() - 1) / blocks(), best = std::max(kComparedRows, 2 * rank);
  if (sample.size() < 2 * best) return -kInfinity;
  const auto before = [](const Both& a, const Both& b) { return a.by_codes < b.by_codes; };
  std::partial_sort(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(best), sample.end(), before);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < best; ++i) sum += static_cast<double>(sample[i].by_signs) - sample[i].by_codes.score;
  const double mean = sum / static_cast<double>(best);
  for (size_t i = 0; i < best; ++i) {
    const double off = static_cast<double>(sample[i].by_signs) - sample[i].by_codes.score - mean;
    squares += off * off;
  }
  const double deviation = std::sqrt(squares / static_cast<double>(best));
  return static_cast<float>(sample[rank - 1].by_codes.score + mean - kDeviations * deviation);
}

VectorCodes::Found VectorCodes::search(const float* query, size_t count) const {
  if (count == 0 || blocks() == 0) return {};
  const Query whole(query, *this);
  const float least = choose_least(whole, count);
  Found found = search_from(whole, count, least);
  // The sample may have been unlike the others.
  return found.nodes.size() < count && least > -kInfinity ? search_from(whole, count, -kInfinity) : found;
}

VectorCodes::Found VectorCodes::search_from(const Query& query, size_t count, float least) const {
  std::vector<Best> best(pool_.threads(), Best(count));
  const size_t pieces = (blocks() + kPieceBlocks - 1) / kPieceBlocks, all = blocks() * kSignRows;
  const double nanoseconds = kSignNanoseconds * static_cast<double>(groups_ * all) +
                             (least > -kInfinity ? 0 : kCodeNanoseconds * static_cast<double>(pieces_ * all));
  pool_.run(pieces, nanoseconds, [&](size_t piece, size_t lane) {
    constexpr size_t kRows = kPieceBlocks * kSignRows;
    float scores[kRows], peaks[kPieceBlocks];
    uint32_t nodes[kRows];
    const uint8_t* rows[kRows];
    int32_t totals[kRows];
    const size_t first = piece * kPieceBlocks, count = std::min(kPieceBlocks, blocks() - first);
    kernels().score_signs(count, groups_, block(first), query.signs, scores, peaks);
    size_t found = 0;
    for (size_t b = 0; b < count; ++b) {
      if (!(peaks[b] >= least)) continue;
      for (size_t i = b * kSignRows; i < (b + 1) * kSignRows; ++i) {
        if (!(scores[i] >= least)) continue;
        nodes[found] = static_cast<uint32_t>(first * kSignRows + i);
        rows[found] = codes(nodes[found]);
        __builtin_prefetch(rows[found]);
        __builtin_prefetch(steps_.row(nodes[found++]));
      }
    }
    kernels().multiply_codes(found, pieces_, rows, query.weights.data(), totals);
    for (size_t i = 0; i < found; ++i) {
      best[lane].add(code_score(query, nodes[i], totals[i]), nodes[i]);
    }
  });
  Best together(count);
  for (const Best& one : best) {
    for (const Scored& found : one.found()) together.add(found.score, found.node);
  }
  together.keep();
  std::vector<Scored> scored = together.found();
  std::sort(scored.begin(), scored.end(), [](const Scored& a, const Scored& b) { return a.node < b.node; });
  Found found;
  for (const Scored& one : scored) {
    found.nodes.push_back(one.node);
    found.products.push_back(static_cast<double>(one.score) * query.unit + query.offset);
    found.deviation += static_cast<double>(float_of(reinterpret_cast<const uint16_t*>(steps_.row(one.node))[0]));
  }
  // A number that is rounded to steps is off by a twelfth of the square of a step, on average.
  found.deviation *= query.length / (std::sqrt(12.0) * std::max<double>(1, static_cast<double>(scored.size())));
  return found;
}

}  // namespace livegnn
