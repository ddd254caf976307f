// Messages that depend on more than their source: attention, gates, edge features (NeutronRT, sections IV.A to IV.C).
//
// A batch reaches a target in one of two ways. If a row of the target itself that its messages read has changed, all of
// them have, and its aggregate is computed from all its in-edges (a constrained model). Otherwise only the messages
// along changed edges and from changed sources are taken back and added again. The former is done too where it is
// cheaper.
//
// Drift: as in sums; a softmax has a bound for each head's sums and one for each of its contexts.
//
// Thread safety: as of every propagation.
#pragma once

#include <vector>

#include "inference/message_sums.h"
#include "inference/propagation.h"

namespace livegnn {

class MessagePropagation final : public Propagation {
 public:
  MessagePropagation(const State& state, size_t position, ThreadPool* pool);

  void initialize(State* state, Whole* whole) const override;
  void prepare(const NodeRows* reader, Preparation* prepared) const override;
  Scrubbed scrub(std::span<const uint32_t> nodes) const override;

 private:
  struct Batch;   // what blocks of targets share
  struct InEdge;  // one of a node that is looked over

  bool has_context() const { return step_.context != kNoIndex; }
  bool is_sum() const { return step_.aggregate == Aggregate::kSum; }
  bool is_of_source(size_t source) const { return program_.sources[source].side == MessageSource::kSource; }
  // Where the sources of the program that are rows of nodes lie.
  std::vector<Rows> source_rows() const;

  void update_block(Batch* batch, size_t begin, size_t end) const;
  // Adds what the batch changes of a target; false if it has to be computed anew.
  bool add_changes(Batch* batch, MessageSums* sums, size_t place, size_t t) const;
  // Adds all messages of a target as they will be.
  void recompute(Batch* batch, MessageSums* sums, size_t place, size_t t) const;
  void write(Batch* batch, MessageSums* sums, size_t place, size_t t) const;
  // Adds what has come and gone to the rows as they were. False if they are to be computed anew instead.
  bool apply(Batch* batch, MessageSums* sums, size_t place, size_t t) const;
  bool apply_heads(Batch* batch, MessageSums* sums, size_t place, size_t t) const;

  // MessageSums the magnitudes of a node's messages, channel by channel.
  void add_reach(const std::vector<InEdge>& in, const std::vector<float>& context, const std::vector<Rows>& stored,
                 MessageSums* sums, std::vector<double>* reach) const;
  double difference_of(uint32_t node, size_t terms, const std::vector<float>& row, const std::vector<float>& context,
                       const std::vector<float>& units, const std::vector<double>& reach) const;

  const MessageProgram& program_;
  const size_t heads_;
  const double message_cost_;  // nanoseconds
};

}  // namespace livegnn
