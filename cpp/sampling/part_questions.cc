#include "sampling/part_questions.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace livegnn {
namespace {

[[noreturn]] void refuse_answer(const char* what) {
  throw std::runtime_error(std::string("a part of the graph must answer the question that it was asked, got ") + what);
}

template <class T>
T* copy_next(const T** from, size_t count, T* to) {
  to = std::copy_n(*from, count, to);
  *from += count;
  return to;
}

}  // namespace

PartQuestions::PartQuestions(const Graph& graph)
    : graph_(graph), commits_(graph.part->commits()), questions_(graph.part->parts()), shares_(graph.part->parts()) {}

// Notes the owners of a run of nodes, and each part's share of it.
void PartQuestions::divide(uint32_t node_type, std::span<const uint32_t> nodes) {
  std::fill(shares_.begin(), shares_.end(), 0);
  const size_t first = owners_.size();
  owners_.resize(first + nodes.size());
  uint16_t* to = owners_.data() + first;
  for (uint32_t node : nodes) {
    const uint32_t owner = graph_.part->owner(node_type, node);
    if (owner >= shares_.size()) refuse_answer("a node that there is not");
    ++shares_[owner];
    *to++ = static_cast<uint16_t>(owner);
  }
}

// A part's question, with room for this many bytes more.
FrameWriter* PartQuestions::begin_run(size_t part, Wanted wanted, size_t bytes) {
  FrameWriter* question = &questions_[part];
  question->reserve(sizeof(Question) + sizeof(wanted) + bytes + 64);
  if (question->empty()) question->put(Question{commits_});
  question->put(wanted);
  return question;
}

void PartQuestions::want(const DrawsOfNodes& draws) {
  const EdgeTypeSpec& spec = graph_.edges[draws.edge_type].spec;
  WantedDraws wanted{draws.seed,
                     draws.purpose,
                     0,
                     static_cast<uint32_t>(draws.until.size()),
                     draws.edge_type,
                     draws.strategy.count,
                     draws.incoming,
                     static_cast<uint8_t>(draws.strategy.by),
                     draws.strategy.replace,
                     draws.wanted.weighted,
                     draws.wanted.timed,
                     draws.wanted.featured};
  runs_.push_back({owners_.size(), draws.nodes.size(), wanted, draws.incoming ? spec.source_type : spec.target_type,
                   draws.wanted.featured ? spec.width : 0});
  divide(draws.incoming ? spec.target_type : spec.source_type, draws.nodes);
  const bool each = draws.until.size() > 1;
  struct Share {
    uint32_t *nodes, *places;
    double* until;
  };
  std::vector<Share> shares(questions_.size());
  for (size_t p = 0; p < questions_.size(); ++p) {
    const size_t count = shares_[p], bounds = each ? count : draws.until.size();
    if (count == 0) continue;
    FrameWriter* question = begin_run(p, Wanted::kDraws, sizeof(wanted) + 8 * (count + bounds));
    wanted.nodes = static_cast<uint32_t>(count);
    wanted.bounds = static_cast<uint32_t>(bounds);
    question->put(wanted);
    shares[p] = {question->open<uint32_t>(count), question->open<uint32_t>(count), question->open<double>(bounds)};
    if (!each) std::copy(draws.until.begin(), draws.until.end(), shares[p].until);
  }
  const uint16_t* owners = owners_.data() + runs_.back().first_owner;
  for (size_t i = 0; i < draws.nodes.size(); ++i) {
    Share& share = shares[owners[i]];
    *share.nodes++ = draws.nodes[i];
    *share.places++ = static_cast<uint32_t>(draws.first_place + i);
    if (each) *share.until++ = draws.until[i];
  }
}

void PartQuestions::want_rows(uint32_t node_type, std::span<const uint32_t> nodes) {
  runs_.push_back({owners_.size(), nodes.size(), {}, node_type, graph_.nodes[node_type].features.width()});
  divide(node_type, nodes);
  std::vector<uint32_t*> shares(questions_.size());
  for (size_t p = 0; p < questions_.size(); ++p) {
    if (shares_[p] == 0) continue;
    FrameWriter* question = begin_run(p, Wanted::kRows, sizeof(WantedRows) + 4 * shares_[p]);
    question->put(WantedRows{node_type, static_cast<uint32_t>(shares_[p])});
    shares[p] = question->open<uint32_t>(shares_[p]);
  }
  const uint16_t* owners = owners_.data() + runs_.back().first_owner;
  for (size_t i = 0; i < nodes.size(); ++i) *shares[owners[i]]++ = nodes[i];
}

std::vector<Frame> PartQuestions::ask() {
  std::vector<Frame> frames;
  for (FrameWriter& question : questions_) frames.push_back(question.take());
  return frames;
}

bool PartQuestions::begin_answers(std::span<const std::span<const std::byte>> answers) {
  if (answers.size() != questions_.size()) refuse_answer("answers of another number of parts");
  for (const auto& answer : answers) {
    answers_.emplace_back(answer);
    if (!answer.empty() && answers_.back().get<Answer>().commits != commits_) return false;
  }
  return true;
}

// The owners of its nodes.
std::span<const uint16_t> PartQuestions::next_run(const Run** run) {
  *run = &runs_[taken_++];
  const auto owners = std::span<const uint16_t>(owners_).subspan((*run)->first_owner, (*run)->nodes);
  std::fill(shares_.begin(), shares_.end(), 0);
  for (uint16_t owner : owners) ++shares_[owner];
  return owners;
}

PartQuestions::Cursor PartQuestions::open(FrameReader* answer, size_t nodes, const Run& run, size_t* total) const {
  const size_t size = answer->get<uint64_t>();
  const auto counts = answer->get_all<uint32_t>(nodes);
  uint64_t sum = 0;
  for (uint32_t count : counts) sum += count;
  if (sum != size) refuse_answer("other counts");
  const auto ids = answer->get_all<uint32_t>(size);
  uint32_t greatest = 0;
  for (uint32_t id : ids) greatest = std::max(greatest, id);
  if (!ids.empty() && greatest >= graph_.nodes[run.type].ids.capacity()) refuse_answer("a node that there is not");
  Cursor at;
  at.counts = counts.data();
  at.ids = ids.data();
  if (run.draws.weights != 0) at.weights = answer->get_all<float>(size).data();
  if (run.draws.times != 0) at.times = answer->get_all<double>(size).data();
  if (run.draws.features != 0) at.features = answer->get_all<float>(size * run.width).data();
  *total += size;
  return at;
}

void PartQuestions::take(NeighborColumns* to, std::vector<float>* features) {
  const Run* run;
  const auto owners = next_run(&run);
  std::vector<Cursor> cursors(questions_.size());
  size_t total = 0;
  for (size_t p = 0; p < cursors.size(); ++p) {
    if (shares_[p] > 0) cursors[p] = open(&answers_[p], shares_[p], *run, &total);
  }
  to->clear();
  to->counts.resize(owners.size());
  to->ids.resize(total);
  if (run->draws.weights != 0) to->weights.resize(total);
  if (run->draws.times != 0) to->times.resize(total);
  if (run->draws.features != 0) features->resize(total * run->width);
  uint32_t *counts = to->counts.data(), *ids = to->ids.data();
  float *weights = to->weights.data(), *values = features->data();
  double* times = to->times.data();
  for (uint16_t owner : owners) {
    Cursor& at = cursors[owner];
    const uint32_t count = *counts++ = *at.counts++;
    ids = copy_next(&at.ids, count, ids);
    if (at.weights != nullptr) weights = copy_next(&at.weights, count, weights);
    if (at.times != nullptr) times = copy_next(&at.times, count, times);
    if (at.features != nullptr) values = copy_next(&at.features, count * run->width, values);
  }
}

void PartQuestions::take_rows(float* to) {
  const Run* run;
  const auto owners = next_run(&run);
  std::vector<const float*> rows(questions_.size());
  for (size_t p = 0; p < rows.size(); ++p) {
    if (shares_[p] > 0) rows[p] = answers_[p].get_all<float>(shares_[p] * run->width).data();
  }
  for (uint16_t owner : owners) to = copy_next(&rows[owner], run->width, to);
}

}  // namespace livegnn
