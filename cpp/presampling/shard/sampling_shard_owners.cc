// Seeds that change hands between serving workers while events go on.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "presampling/shard/sampling_shard.h"

namespace livegnn {
namespace {

constexpr size_t kAtOnce = 1024;  // references and rows that are kept before they are passed on

}  // namespace

void SamplingShard::begin_move(Owners next) {
  if (next_owners_) throw std::invalid_argument("seeds are being moved already: end that first");
  if (next.rule() != OwnerRule::kJump) throw std::invalid_argument("seeds are owned by a jump hash of their ids");
  grow_serving(next.workers());
  next_owners_ = std::move(next);
  tell_owners(*next_owners_, owners_, 1);
}

void SamplingShard::end_move(bool taken) {
  if (!next_owners_) throw std::invalid_argument("no seeds are being moved");
  Owners gone = std::move(*next_owners_);
  next_owners_.reset();
  if (taken) std::swap(gone, owners_);
  tell_owners(gone, owners_, -1);
}

// A worker that has a seed by `told` alone gets it, or loses it: its samples of the first hop, what they lead to, and
// its features.
void SamplingShard::tell_owners(const Owners& told, const Owners& other, int64_t change) {
  std::vector<uint64_t> nodes;
  for (uint32_t q = 0; q < plan_.size(); ++q) {
    if (!plan_[q].of_seeds()) continue;
    nodes.clear();
    cells_[q]->for_each([&](uint64_t node, const CellView&) {
      if (told.of_id(node) != other.of_id(node)) nodes.push_back(node);
    });
    std::sort(nodes.begin(), nodes.end());  // as in `remove_sorted`
    for (uint64_t node : nodes) {
      const CellView cell = cells_[q]->find(node);
      const uint32_t worker = told.of_id(node);
      for (uint32_t i = 0; i < cell.size; ++i) refer(q, worker, cell.ids[i], change);
      touched_samples_.push_back({q, worker, node});
      if (references_.size() >= kAtOnce) complete();
    }
  }
  complete();
  const uint32_t type = plan_.seed_type();
  for (uint32_t row = 0; row < features_[type]->size(); ++row) {
    const uint64_t node = features_[type]->node_of(row);
    if (told.of_id(node) != other.of_id(node)) touched_features_.push_back({type, told.of_id(node), node});
    if (touched_features_.size() >= kAtOnce) complete();
  }
  complete();
  settle();
}

// Another worker may know of serving workers of which this one was not told yet.
void SamplingShard::grow_serving(uint32_t workers) {
  while (serving_.size() < workers) serving_.emplace_back(options_.worker, static_cast<uint32_t>(serving_.size()));
}

}  // namespace livegnn
