#include "sampling/divided_sample.h"

#include <algorithm>

namespace livegnn {
namespace {

SubgraphRequest with_seeds(SubgraphRequest request, const std::vector<std::pair<uint32_t, std::vector<int64_t>>>& seeds,
                           std::span<const double> until) {
  for (const auto& [type, ids] : seeds) request.seeds.push_back({type, ids});
  request.until = until;
  return request;
}

}  // namespace

DividedSample::DividedSample(Sampler* sampler, const Graph& graph, SubgraphRequest request,
                             std::vector<std::pair<uint32_t, std::vector<int64_t>>> seeds, std::vector<double> until)
    : graph_(graph),
      seeds_(std::move(seeds)),
      until_(std::move(until)),
      request_(with_seeds(std::move(request), seeds_, until_)),
      commits_(graph.part->commits()),
      scratch_(sampler),
      sample_(graph, request_),
      features_(graph.nodes.size()) {
  sample_.begin(scratch_.scratch.get());
}

std::optional<std::vector<Frame>> DividedSample::ask() {
  if (!goes_on()) return std::nullopt;
  for (const size_t hops = sample_.num_hops(); hop_ < hops; ++hop_) {
    const std::vector<Frontier> frontiers = sample_.frontiers(hop_);
    if (!frontiers.empty()) {
      want_hop(frontiers);
      return questions_->ask();
    }
    sample_.make_hop(hop_, scratch_.scratch.get(), [](const Frontier&) { return DrawnBlocks{0, 0, 1}; });
  }
  if (!want_rows()) return std::vector<Frame>();
  return questions_->ask();
}

void DividedSample::want_hop(const std::vector<Frontier>& frontiers) {
  questions_.emplace(graph_);
  std::vector<double> until;
  for (const Frontier& frontier : frontiers) {
    const PlannedHop& one = sample_.query(frontier.query);
    until.clear();
    const size_t bounds = sample_.num_bounds(frontier);
    for (size_t i = 0; i < bounds; ++i) until.push_back(sample_.bound(frontier, i));
    EdgeColumns wanted = sample_.wanted(frontier.query);
    wanted.featured = wanted.featured && request_.attributes;
    questions_->want({one.edge_type, one.incoming, one.strategy, wanted, request_.seed, one.purpose, frontier.place,
                      sample_.keys_of(frontier), until});
  }
}

// Whether there are any.
bool DividedSample::want_rows() {
  if (!request_.attributes || wants_rows_) return false;
  wants_rows_ = true;
  questions_.emplace(graph_);
  bool any = false;
  for (uint32_t type = 0; type < features_.size(); ++type) {
    const size_t width = graph_.nodes[type].features.width(), count = sample_.nodes(type).size();
    features_[type].open(count * width);
    if (width == 0 || count == 0) continue;
    questions_->want_rows(type, sample_.nodes(type));
    any = true;
  }
  return any;
}

bool DividedSample::take(PartAnswers answers) {
  if (!goes_on() || !questions_->begin_answers(answers)) return false;
  if (wants_rows_) {
    for (auto& column : features_) {
      if (column.size() > 0) questions_->take_rows(column.data());
    }
    return true;
  }
  SampleScratch* scratch = scratch_.scratch.get();
  sample_.make_hop(hop_++, scratch, [&](const Frontier& frontier) {
    const size_t block = edge_features_.size();
    if (scratch->blocks.size() <= block) scratch->blocks.resize(block + 1);
    questions_->take(&scratch->blocks[block], &edge_features_.emplace_back());
    return DrawnBlocks{block, 1, frontier.keys.end - frontier.keys.begin};
  });
  return true;
}

std::optional<Subgraph> DividedSample::finish() {
  if (!goes_on()) return std::nullopt;
  Subgraph out = sample_.finish(scratch_.scratch.get(), false);
  for (size_t t = 0; t < features_.size(); ++t) out.nodes[t].features = std::move(features_[t]);
  for (const SubgraphSample::Drawn& drawn : sample_.drawn()) {
    if (drawn.blocks.count == 0) continue;
    const auto& values = edge_features_[drawn.blocks.first];
    Subgraph::Edges& to = out.edges[drawn.output];
    const size_t width = graph_.edges[to.edge_type].spec.width;
    if (!values.empty()) std::copy(values.begin(), values.end(), to.features.data() + drawn.first_edge * width);
  }
  return out;
}

DividedNeighbors::DividedNeighbors(const Graph& graph, const NeighborRequest& request, std::span<const int64_t> ids)
    : graph_(graph), commits_(graph.part->commits()), questions_(graph) {
  check_strategy(graph, request.edge_type, request.incoming, request.strategy, !request.until.empty());
  check_bounds(request.until, ids.size());
  const EdgeTypeSpec& spec = graph.edges[request.edge_type].spec;
  neighbor_type_ = request.incoming ? spec.source_type : spec.target_type;
  std::vector<uint32_t> nodes;
  resolve(graph, request.incoming ? spec.target_type : spec.source_type, ids, &nodes);
  const EdgeColumns columns = spec.options.columns;
  questions_.want({request.edge_type,
                   request.incoming,
                   request.strategy,
                   {request.wanted.weighted && columns.weighted, request.wanted.timed && columns.timed, false},
                   request.seed,
                   0,
                   0,
                   nodes,
                   request.until});
}

std::optional<NeighborSample> DividedNeighbors::finish(PartAnswers answers) {
  if (graph_.part->commits() != commits_ || !questions_.begin_answers(answers)) return std::nullopt;
  NeighborColumns drawn;
  std::vector<float> features;
  questions_.take(&drawn, &features);
  NeighborSample out;
  out.rowptr.open(drawn.counts.size() + 1);
  out.rowptr[0] = 0;
  for (size_t i = 0; i < drawn.counts.size(); ++i) out.rowptr[i + 1] = out.rowptr[i] + drawn.counts[i];
  out.ids.open(drawn.ids.size());
  write_ids(graph_.nodes[neighbor_type_].ids, drawn.ids, out.ids.data());
  out.weight.open(drawn.weights.size());
  std::copy(drawn.weights.begin(), drawn.weights.end(), out.weight.data());
  out.time.open(drawn.times.size());
  std::copy(drawn.times.begin(), drawn.times.end(), out.time.data());
  return out;
}

}  // namespace livegnn
