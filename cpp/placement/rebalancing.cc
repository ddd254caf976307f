#include "placement/rebalancing.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ids/owners.h"
#include "placement/fennel.h"

namespace livegnn {
namespace {

// The loads of one type.
struct TypeLoads {
  FennelRule rule;
  std::vector<uint64_t> load;
};

std::vector<TypeLoads> loads_of(const Division& division, std::span<const uint16_t> owners) {
  std::vector<TypeLoads> loads;
  for (size_t type = 0; type + 1 < division.type_starts.size(); ++type) {
    std::vector<uint64_t> load(division.parts);
    uint64_t ends = 0;
    for (int64_t node = division.type_starts[type]; node < division.type_starts[type + 1]; ++node) {
      ++load[owners[node]];
      division.lists.for_each(node, [&](size_t, int64_t weight) { ends += static_cast<uint64_t>(weight); });
    }
    const auto nodes = static_cast<uint64_t>(division.type_starts[type + 1] - division.type_starts[type]);
    loads.push_back({FennelRule(division.parts, nodes, ends), std::move(load)});
  }
  return loads;
}

void tally_neighbors(const Division& division, std::span<const uint16_t> owners, size_t node, Tally* tally) {
  tally->clear();
  division.lists.for_each(node, [&](size_t neighbor, int64_t weight) { tally->add(owners[neighbor], weight); });
}

// Where a node would be placed if it arrived now, and what it gains by that.
std::pair<double, uint32_t> best_move(const Division& division, std::span<const uint16_t> owners, size_t node,
                                      TypeLoads* of, Tally* tally) {
  tally_neighbors(division, owners, node, tally);
  const uint16_t own = owners[node];
  --of->load[own];
  const uint32_t best = tally->best(of->rule, of->load);
  const double gain = of->rule.score((*tally)[best], of->load[best]) - of->rule.score((*tally)[own], of->load[own]);
  ++of->load[own];
  return {gain, best};
}

// Edges that a node loses if it leaves its part for the best other one with room; the part.
std::pair<int64_t, uint32_t> least_loss(const Tally& tally, const TypeLoads& of, uint16_t own) {
  uint32_t best = UINT32_MAX;
  for (uint32_t part = 0; part < of.load.size(); ++part) {
    if (part == own || of.load[part] >= of.rule.most()) continue;
    if (best == UINT32_MAX || tally[part] > tally[best] ||
        (tally[part] == tally[best] && of.load[part] < of.load[best])) {
      best = part;
    }
  }
  return {tally[own] - tally[best], best};
}

size_t even_out_type(const Division& division, size_t type, TypeLoads* of, std::span<uint16_t> owners) {
  std::vector<std::pair<int64_t, size_t>> losses;
  Tally tally(division.parts);
  for (auto node = static_cast<size_t>(division.type_starts[type]);
       node < static_cast<size_t>(division.type_starts[type + 1]); ++node) {
    if (of->load[owners[node]] <= of->rule.most()) continue;
    tally_neighbors(division, owners, node, &tally);
    losses.emplace_back(least_loss(tally, *of, owners[node]).first, node);
  }
  std::sort(losses.begin(), losses.end());
  size_t moved = 0;
  for (const auto& [loss, node] : losses) {
    const uint16_t own = owners[node];
    if (of->load[own] <= of->rule.most()) continue;
    tally_neighbors(division, owners, node, &tally);
    const uint32_t to = least_loss(tally, *of, own).second;
    --of->load[own];
    ++of->load[to];
    owners[node] = static_cast<uint16_t>(to);
    ++moved;
  }
  return moved;
}

}  // namespace

void Division::check(std::span<const uint16_t> owners) const {
  if (parts == 0 || parts > Owners::kMaxWorkers) {
    throw std::invalid_argument("there can be from 1 to " + std::to_string(Owners::kMaxWorkers) + " parts, not " +
                                std::to_string(parts));
  }
  check_adjacency(lists, owners.size());
  if (type_starts.empty() || type_starts.front() != 0 || type_starts.back() != static_cast<int64_t>(owners.size()) ||
      !std::is_sorted(type_starts.begin(), type_starts.end())) {
    throw std::invalid_argument("the types have other nodes than there are");
  }
  if (std::ranges::any_of(owners, [&](uint16_t owner) { return owner >= parts; })) {
    throw std::invalid_argument("an owner is none of " + std::to_string(parts) + " parts");
  }
}

size_t even_out(const Division& division, std::span<uint16_t> owners) {
  division.check(owners);
  std::vector<TypeLoads> loads = loads_of(division, owners);
  size_t moved = 0;
  for (size_t type = 0; type < loads.size(); ++type) moved += even_out_type(division, type, &loads[type], owners);
  return moved;
}

size_t refine(const Division& division, std::span<const int64_t> nodes, size_t passes, size_t budget,
              std::span<uint16_t> owners) {
  division.check(owners);
  for (int64_t node : nodes) {
    if (node < 0 || static_cast<size_t>(node) >= owners.size()) throw std::invalid_argument("there is no such node");
  }
  std::vector<TypeLoads> loads = loads_of(division, owners);
  const auto loads_at = [&](int64_t node) {
    const auto next = std::upper_bound(division.type_starts.begin(), division.type_starts.end(), node);
    return &loads[next - division.type_starts.begin() - 1];
  };
  Tally tally(division.parts);
  std::vector<std::pair<double, int64_t>> gains;
  size_t moved = 0;
  for (size_t pass = 0; pass < passes && moved < budget; ++pass) {
    gains.clear();
    for (int64_t node : nodes) {
      const auto [gain, to] = best_move(division, owners, node, loads_at(node), &tally);
      if (to != owners[node] && gain > 0) gains.emplace_back(-gain, node);
    }
    std::sort(gains.begin(), gains.end());
    const size_t before = moved;
    for (const auto& [_, node] : gains) {
      TypeLoads* const of = loads_at(node);
      const auto [gain, to] = best_move(division, owners, node, of, &tally);
      if (to == owners[node] || gain <= 0) continue;
      --of->load[owners[node]];
      ++of->load[to];
      owners[node] = static_cast<uint16_t>(to);
      if (++moved == budget) break;
    }
    if (moved == before) break;
  }
  return moved;
}

}  // namespace livegnn
