#include "store/graph_share.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace livegnn {
namespace {

// Rows without padding.
std::vector<float> read_rows(const Table& table) {
  std::vector<float> all;
  all.reserve(table.rows() * table.width());
  for (size_t i = 0; i < table.rows() && table.width() > 0; ++i) {
    all.insert(all.end(), table.row(i), table.row(i) + table.width());
  }
  return all;
}

// Numbers the rows of the edges that a part keeps anew, without gaps, in the order of the lists. Returns them in this
// order.
template <class Id>
std::vector<uint32_t> number_rows(size_t rows, GraphStore::Share<Id>* share) {
  std::vector<uint32_t> numbers(rows, kNoRow), kept;
  for (auto* column : {&share->out.rows, &share->in.rows}) {
    for (uint32_t& row : *column) {
      if (numbers[row] == kNoRow) {
        numbers[row] = static_cast<uint32_t>(kept.size());
        kept.push_back(row);
      }
      row = numbers[row];
    }
  }
  return kept;
}

template <class Id>
void take_edges(const Graph::EdgeType& from, uint32_t edge_type, GraphStore::Share<Id> share, Graph* part) {
  const Table& features = from.features.table();
  const std::vector<uint32_t> kept = number_rows(features.rows(), &share);
  part->load_edges(edge_type, share.out, share.in, share.num_edges);
  std::vector<float> values;
  values.reserve(kept.size() * features.width());
  for (uint32_t row : kept) values.insert(values.end(), features.row(row), features.row(row) + features.width());
  part->load_edge_features(edge_type, values.data(), kept.size(), features.width(), {});
}

}  // namespace

void take_share(const Graph& whole, Graph* part) {
  if (part->part == nullptr || whole.part != nullptr) {
    throw std::invalid_argument("a part takes its share of an undivided graph");
  }
  part->latest_time = whole.latest_time;
  for (uint32_t n = 0; n < whole.nodes.size(); ++n) {
    const Graph::NodeType& type = whole.nodes[n];
    if (part->nodes[n].ids.capacity() > 0) throw std::invalid_argument("a part takes its share before it has nodes");
    const std::vector<float> x = read_rows(type.features);
    part->load_nodes(n, type.ids.ids(), type.ids.free_list(), x.data(), type.features.rows(), type.features.width());
  }
  for (uint32_t e = 0; e < whole.edges.size(); ++e) {
    const Graph::EdgeType& type = whole.edges[e];
    const auto owns_source = [&](uint32_t node) { return part->part->owns(type.spec.source_type, node); };
    const auto owns_target = [&](uint32_t node) { return part->part->owns(type.spec.target_type, node); };
    if (type.spec.options.keyed) {
      take_edges(type, e, type.store->keyed_share(owns_source, owns_target), part);
    } else {
      take_edges(type, e, type.store->share(owns_source, owns_target), part);
    }
  }
}

}  // namespace livegnn
