// Places nodes as they arrive, each once, where its neighbours are and room is (Fennel: Tsourakakis, Gkantsidis,
// Radunovic, Vojnovic: Fennel, streaming graph partitioning for massive scale graphs, WSDM 2014; gamma is 1.5).
//
//   score(v, p) = edges of v to nodes of p - penalty * sqrt(load[p]),  penalty = 1.5 * sqrt(parts) * m / n^1.5
//
// The best score wins among the parts with room; then the smallest load, then the smallest number. `load` and `n` count
// nodes of the type of v, `m` half of the ends of edges at such nodes, both with the whole batch. A part has room below
// 1.05 n / parts, and below n / parts rounded up where that is more; so if nodes only arrive, no part exceeds its share
// by 5 %, or by less than a node.
//
// The arithmetic is + - * / and sqrt on doubles, without contraction: the same on every machine, so a replay of the
// same batches places the same. What was placed is forgotten but for the loads.
// Invariants: a function of the batches in their order; `place` changes nothing.
// Thread safety: any number of readers, or one writer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace livegnn {

// The rule for the nodes of one type.
class FennelRule {
 public:
  FennelRule(uint32_t parts, uint64_t nodes, uint64_t ends)
      : penalty_(nodes == 0 ? 0.0
                            : 1.5 * std::sqrt(static_cast<double>(parts)) * (0.5 * static_cast<double>(ends)) /
                                  (static_cast<double>(nodes) * std::sqrt(static_cast<double>(nodes)))),
        most_(std::max(nodes * 21 / (uint64_t{parts} * 20), (nodes + parts - 1) / parts)) {}

  // Most nodes of a part.
  uint64_t most() const { return most_; }
  double score(int64_t edges, uint64_t load) const {
    return static_cast<double>(edges) - penalty_ * std::sqrt(static_cast<double>(load));
  }

 private:
  double penalty_;
  uint64_t most_;
};

// The numbers of edges of one node to the nodes of each part.
class Tally {
 public:
  explicit Tally(uint32_t parts) : edges_(parts) {}

  void add(uint32_t part, int64_t edges) {
    if (edges_[part] == 0) touched_.push_back(part);
    edges_[part] += edges;
  }
  int64_t operator[](uint32_t part) const { return edges_[part]; }
  void clear() {
    for (uint32_t part : touched_) edges_[part] = 0;
    touched_.clear();
  }
  // The best part with room, by the rule. Requires: there is one.
  uint32_t best(const FennelRule& rule, std::span<const uint64_t> load) const;

 private:
  std::vector<int64_t> edges_;
  std::vector<uint32_t> touched_;
};

// The nodes that a batch adds, numbered from 0 in their order, and their edges.
struct Arrivals {
  std::span<const uint32_t> types;
  std::span<const uint32_t> tied;           // for each edge to a node that was placed before: the new node
  std::span<const uint16_t> owners;         // and the other's owner
  std::span<const uint32_t> first, second;  // edges between two new nodes
  std::span<const int64_t> ends;            // by type: by how many the ends of edges at its nodes become more, in all
};

// What a batch has changed: nodes by type and part, [types, parts], and ends of edges by type.
struct LoadChange {
  std::span<const int64_t> nodes, ends;
};

class Fennel {
 public:
  // Throws std::invalid_argument.
  Fennel(uint32_t parts, size_t num_types);

  uint32_t parts() const { return parts_; }
  size_t num_types() const { return ends_.size(); }
  std::span<const uint64_t> load(size_t type) const { return {load_.data() + type * parts_, parts_}; }
  uint64_t ends(size_t type) const { return ends_[type]; }

  // The parts of the new nodes. Throws std::invalid_argument if columns do not fit together, or numbers are out of
  // range.
  std::vector<uint16_t> place(const Arrivals& arrivals) const;
  // Nodes are added to parts, or leave them, and ends of edges become more or fewer. Throws std::invalid_argument, and
  // changes nothing, if columns have other sizes, or a count would become negative.
  void add(const LoadChange& change);
  // The same of nodes alone. Requires: no count becomes negative.
  void add_nodes(std::span<const int64_t> nodes) noexcept;
  // How many ends of edges there are at nodes of each type. Throws std::invalid_argument.
  void set_ends(std::span<const int64_t> ends);

 private:
  void check(const Arrivals& arrivals) const;

  uint32_t parts_;
  std::vector<uint64_t> load_;  // [types, parts]
  std::vector<uint64_t> ends_;  // by type
};

}  // namespace livegnn
