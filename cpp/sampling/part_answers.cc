#include <algorithm>
#include <stdexcept>

#include "sampling/part_letters.h"
#include "sampling/sampling_scratch.h"

namespace livegnn {
namespace {

template <class T, class Of>
void put_blocks(std::span<const NeighborColumns> blocks, size_t total, const Of& of, FrameWriter* to) {
  T* at = to->open<T>(total);
  for (const NeighborColumns& block : blocks) at = std::copy(of(block).begin(), of(block).end(), at);
}

void put_drawn(std::span<const NeighborColumns> blocks, const WantedDraws& wanted, const Table& features,
               FrameWriter* to) {
  size_t total = 0;
  for (const NeighborColumns& block : blocks) total += block.ids.size();
  const size_t width = wanted.features != 0 ? features.width() : 0;
  to->reserve(64 + wanted.nodes * 4 + total * (4 + 4 * wanted.weights + 8 * wanted.times + 4 * width));
  to->put<uint64_t>(total);
  put_blocks<uint32_t>(blocks, wanted.nodes, [](const auto& block) { return std::span(block.counts); }, to);
  put_blocks<uint32_t>(blocks, total, [](const auto& block) { return std::span(block.ids); }, to);
  if (wanted.weights != 0) {
    put_blocks<float>(blocks, total, [](const auto& block) { return std::span(block.weights); }, to);
  }
  if (wanted.times != 0) {
    put_blocks<double>(blocks, total, [](const auto& block) { return std::span(block.times); }, to);
  }
  if (wanted.features == 0) return;
  float* rows = to->floats(total * width);
  for (const NeighborColumns& block : blocks) {
    write_features(features, block.rows, rows);
    rows += block.rows.size() * width;
  }
}

// Answers one question after the other to what a part is asked.
class Answering {
 public:
  Answering(const Graph& graph, SampleScratch* scratch, size_t threads)
      : graph_(graph), scratch_(scratch), workers_(threads) {}

  void draws(FrameReader* asked, FrameWriter* answer) {
    const auto wanted = asked->get<WantedDraws>();
    const NeighborStrategy strategy{static_cast<SampleBy>(wanted.by), wanted.replace != 0, wanted.count};
    const bool incoming = wanted.incoming != 0;
    check_strategy(graph_, wanted.edge_type, incoming, strategy, wanted.bounds > 0);
    const Graph::EdgeType& type = graph_.edges[wanted.edge_type];
    const auto nodes = nodes_of(incoming ? type.spec.target_type : type.spec.source_type, wanted.nodes, asked);
    const auto places = asked->get_all<uint32_t>(wanted.nodes);
    const auto until = asked->get_all<double>(wanted.bounds);
    if (until.size() > 1 && until.size() != nodes.size()) throw std::runtime_error("a question of other bounds");
    const EdgeColumns columns{wanted.weights != 0, wanted.times != 0, wanted.features != 0};
    const auto task = draws_from(graph_, wanted.edge_type, incoming, strategy, columns, wanted.seed, wanted.purpose);
    scratch_->draw_blocks(
        task, nodes, until.size(), [&](size_t i) { return until[i]; }, 0, Places(places.data()), &workers_);
    const auto blocks = std::span<const NeighborColumns>(scratch_->blocks);
    put_drawn(blocks.first(SampleScratch::num_blocks(nodes.size())), wanted, type.features.table(), answer);
  }

  void rows(FrameReader* asked, FrameWriter* answer) const {
    const auto wanted = asked->get<WantedRows>();
    check_node_type(graph_, wanted.node_type);
    const NodeFeatures& features = graph_.nodes[wanted.node_type].features;
    const auto nodes = nodes_of(wanted.node_type, wanted.nodes, asked);
    const size_t floats = nodes.size() * features.width();
    answer->reserve(floats * sizeof(float) + 8);
    write_features(features, nodes, answer->floats(floats));
  }

 private:
  std::span<const uint32_t> nodes_of(uint32_t type, size_t count, FrameReader* asked) const {
    const auto nodes = asked->get_all<uint32_t>(count);
    uint32_t greatest = 0;
    for (uint32_t node : nodes) greatest = std::max(greatest, node);
    if (count > 0 && greatest >= graph_.nodes[type].ids.capacity())
      throw std::runtime_error("a question about no node");
    return nodes;
  }

  const Graph& graph_;
  SampleScratch* scratch_;
  Workers workers_;
};

}  // namespace

Frame Sampler::answer(std::span<const std::byte> question, size_t threads) {
  FrameReader asked(question);
  FrameWriter answer;
  const auto commits = asked.get<Question>().commits;
  answer.put(Answer{graph_.part->commits()});
  if (commits != graph_.part->commits()) return answer.take();
  Lease scratch(this);
  Answering answering(graph_, scratch.scratch.get(), threads);
  while (!asked.at_end()) {
    if (asked.get<Wanted>() == Wanted::kDraws) {
      answering.draws(&asked, &answer);
    } else {
      answering.rows(&asked, &answer);
    }
  }
  return answer.take();
}

}  // namespace livegnn
