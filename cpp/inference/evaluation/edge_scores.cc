#include "inference/evaluation/edge_scores.h"

#include <algorithm>
#include <vector>

#include "inference/evaluation/blocks.h"
#include "inference/evaluation/row_evaluation.h"
#include "inference/evaluation/rows.h"

namespace livegnn {
namespace {

constexpr size_t kPairsAtOnce = 16 * kBlockRows;  // whose rows are read together, which a lazy engine computes together
constexpr float kNoWeight = 1.0f;

// The rows of the ends of some pairs; those of one output at one end are read once.
class EndRows {
 public:
  void read(const EdgeOutput& output, const ScoredPairs& pairs, const ReadOutput& read) {
    memory_.resize(std::max(memory_.size(), output.sources.size()));
    rows_.assign(output.sources.size(), nullptr);
    for (size_t s = 0; s < output.sources.size(); ++s) {
      const auto [side, value] = output.sources[s];
      if (side != MessageSource::kSource && side != MessageSource::kTarget) continue;
      const auto same = [&, side = side, value = value](const MessageSource& other) {
        return other.side == side && other.value == value;
      };
      const auto first = std::find_if(output.sources.begin(), output.sources.end(), same) - output.sources.begin();
      if (static_cast<size_t>(first) < s) {
        rows_[s] = rows_[static_cast<size_t>(first)];
        continue;
      }
      const std::span<const uint32_t> nodes = side == MessageSource::kSource ? pairs.sources : pairs.targets;
      float* const rows = memory_[s].reserve(nodes.size() * output.step.registers[s].width);
      read(nodes, value, rows);
      rows_[s] = rows;
    }
  }

  const float* of(size_t source) const { return rows_[source]; }

 private:
  std::vector<Scratch> memory_;
  std::vector<const float*> rows_;
};

}  // namespace

size_t edge_output_width(const Program& program, size_t edge_output) {
  const RowsStep& step = program.edge_outputs[edge_output].step;
  return step.registers[step.sinks[0].reg].width;
}

bool reads(const EdgeOutput& output, MessageSource::Side side) {
  return std::any_of(output.sources.begin(), output.sources.end(),
                     [&](const MessageSource& source) { return source.side == side; });
}

void score_pairs(const Program& program, size_t edge_output, const ScoredPairs& pairs, const ReadOutput& read,
                 float* out) {
  static thread_local EndRows ends;
  static thread_local std::vector<const float*> sources;
  const EdgeOutput& output = program.edge_outputs[edge_output];
  const size_t width = edge_output_width(program, edge_output);
  sources.resize(output.sources.size() * kBlockRows);
  for (size_t first = 0; first < pairs.sources.size(); first += kPairsAtOnce) {
    const size_t some = std::min(kPairsAtOnce, pairs.sources.size() - first);
    ends.read(output, {pairs.sources.subspan(first, some), pairs.targets.subspan(first, some)}, read);
    for (size_t begin = 0; begin < some; begin += kBlockRows) {
      const size_t count = std::min(kBlockRows, some - begin);
      for (size_t s = 0; s < output.sources.size(); ++s) {
        const size_t stride = output.step.registers[s].width;
        for (size_t i = 0; i < count; ++i) {
          const float** const row = &sources[s * kBlockRows + i];
          if (output.sources[s].side == MessageSource::kFeatures) {
            *row = pairs.features + (first + begin + i) * stride;
          } else if (output.sources[s].side == MessageSource::kWeight) {
            *row = pairs.weights == nullptr ? &kNoWeight : pairs.weights + first + begin + i;
          } else {
            *row = ends.of(s) + (begin + i) * stride;
          }
        }
      }
      run_block(program, output.step, count, sources.data(), out + (first + begin) * width, width);
    }
  }
}

}  // namespace livegnn
