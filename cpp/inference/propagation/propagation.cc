#include "inference/propagation/propagation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "inference/edges/edge_view.h"

namespace livegnn {

bool Propagation::stays(const PreparedBatch& prepared, uint32_t node) const {
  const size_t direction = direction_of(state_.graph, step_);
  const auto& leaving = prepared.changes.moves[direction].leaving;
  return state_.kept_nodes[direction].has(node) && !std::binary_search(leaving.begin(), leaving.end(), node);
}

const std::vector<DirectedChange>& Propagation::changes(const PreparedBatch& prepared) const {
  return prepared.changes.edges[direction_of(state_.graph, step_)];
}

double part_of(double kept, double anew, double scale) {
  // Smaller values may be sums of exponentials that underflowed, in whatever order they were added.
  constexpr double kUnderflow = 1e-30;
  if (std::isfinite(kept) && std::isfinite(anew)) {
    return kept == anew ? 0 : std::fabs(kept - anew) / std::max(scale, kUnderflow);
  }
  const bool same = kept == anew || (std::isnan(kept) && std::isnan(anew));
  return same ? 0 : std::numeric_limits<double>::infinity();
}

}  // namespace livegnn
