#include "placement/fennel.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "ids/owners.h"

namespace livegnn {
namespace {

// What is listed for each of `count` nodes, in the order in which it was listed: `items` from starts[node] on.
template <class T>
struct Grouped {
  std::vector<size_t> starts;
  std::vector<T> items;

  template <class KeyOf, class ItemOf>
  Grouped(size_t count, size_t listed, const KeyOf& key_of, const ItemOf& item_of) : starts(count + 2), items(listed) {
    for (size_t i = 0; i < listed; ++i) ++starts[key_of(i) + 2];
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    for (size_t i = 0; i < listed; ++i) items[starts[key_of(i) + 1]++] = item_of(i);
  }
  std::span<const T> of(size_t node) const { return {items.data() + starts[node], starts[node + 1] - starts[node]}; }
};

}  // namespace

uint32_t Tally::best(const FennelRule& rule, std::span<const uint64_t> load) const {
  uint32_t best = UINT32_MAX;
  double best_score = 0;
  for (uint32_t part = 0; part < load.size(); ++part) {
    if (load[part] >= rule.most()) continue;
    const double score = rule.score(edges_[part], load[part]);
    if (best == UINT32_MAX || score > best_score || (score == best_score && load[part] < load[best])) {
      best = part;
      best_score = score;
    }
  }
  return best;
}

Fennel::Fennel(uint32_t parts, size_t num_types) : parts_(parts), load_(parts * num_types), ends_(num_types) {
  if (parts == 0 || parts > Owners::kMaxWorkers) {
    throw std::invalid_argument("there can be from 1 to " + std::to_string(Owners::kMaxWorkers) + " parts, not " +
                                std::to_string(parts));
  }
}

void Fennel::check(const Arrivals& arrivals) const {
  const size_t count = arrivals.types.size();
  if (arrivals.tied.size() != arrivals.owners.size() || arrivals.first.size() != arrivals.second.size() ||
      arrivals.ends.size() != num_types()) {
    throw std::invalid_argument("the columns of new nodes and their edges do not fit together");
  }
  const auto out_of = [](auto numbers, size_t most) {
    return std::ranges::any_of(numbers, [&](size_t number) { return number >= most; });
  };
  if (out_of(arrivals.types, num_types()) || out_of(arrivals.tied, count) || out_of(arrivals.owners, parts_) ||
      out_of(arrivals.first, count) || out_of(arrivals.second, count)) {
    throw std::invalid_argument("a type, a new node or an owner is out of range");
  }
  for (size_t type = 0; type < num_types(); ++type) {
    if (arrivals.ends[type] < 0 && ends_[type] < uint64_t{0} - static_cast<uint64_t>(arrivals.ends[type])) {
      throw std::invalid_argument("more ends of edges are removed than there are");
    }
  }
}

void Fennel::add(const LoadChange& change) {
  const auto fits = [](std::span<const int64_t> by, const std::vector<uint64_t>& to) {
    if (by.size() != to.size()) return false;
    for (size_t i = 0; i < to.size(); ++i) {
      if (by[i] < 0 && to[i] < uint64_t{0} - static_cast<uint64_t>(by[i])) return false;
    }
    return true;
  };
  if (!fits(change.nodes, load_) || !fits(change.ends, ends_)) {
    throw std::invalid_argument("loads are counts by type and part, and ends by type, which never become negative");
  }
  add_nodes(change.nodes);
  for (size_t i = 0; i < ends_.size(); ++i) ends_[i] += static_cast<uint64_t>(change.ends[i]);
}

void Fennel::add_nodes(std::span<const int64_t> nodes) noexcept {
  for (size_t i = 0; i < load_.size(); ++i) load_[i] += static_cast<uint64_t>(nodes[i]);
}

void Fennel::set_ends(std::span<const int64_t> ends) {
  if (ends.size() != num_types() || std::ranges::any_of(ends, [](int64_t count) { return count < 0; })) {
    throw std::invalid_argument("ends of edges are a count for each node type");
  }
  for (size_t type = 0; type < num_types(); ++type) ends_[type] = static_cast<uint64_t>(ends[type]);
}

std::vector<uint16_t> Fennel::place(const Arrivals& arrivals) const {
  check(arrivals);
  const size_t count = arrivals.types.size();
  std::vector<uint64_t> load = load_, nodes(num_types());
  for (size_t type = 0; type < num_types(); ++type) {
    nodes[type] = std::accumulate(load.begin() + type * parts_, load.begin() + (type + 1) * parts_, uint64_t{0});
  }
  for (uint32_t type : arrivals.types) ++nodes[type];
  std::vector<FennelRule> rules;
  for (size_t type = 0; type < num_types(); ++type) {
    rules.emplace_back(parts_, nodes[type], ends_[type] + static_cast<uint64_t>(arrivals.ends[type]));
  }
  const Grouped<uint16_t> ties(
      count, arrivals.tied.size(), [&](size_t i) { return arrivals.tied[i]; },
      [&](size_t i) { return arrivals.owners[i]; });
  // An edge between two new nodes counts for the later one; one of a node to itself counts nowhere.
  const Grouped<uint32_t> pairs(
      count, arrivals.first.size(), [&](size_t i) { return std::max(arrivals.first[i], arrivals.second[i]); },
      [&](size_t i) { return std::min(arrivals.first[i], arrivals.second[i]); });
  std::vector<uint16_t> placed(count);
  Tally tally(parts_);
  for (size_t node = 0; node < count; ++node) {
    for (uint16_t owner : ties.of(node)) tally.add(owner, 1);
    for (uint32_t earlier : pairs.of(node)) {
      if (earlier != node) tally.add(placed[earlier], 1);
    }
    const size_t type = arrivals.types[node];
    const std::span<uint64_t> of_type(load.data() + type * parts_, parts_);
    const uint32_t part = tally.best(rules[type], of_type);
    ++of_type[part];
    placed[node] = static_cast<uint16_t>(part);
    tally.clear();
  }
  return placed;
}

}  // namespace livegnn
