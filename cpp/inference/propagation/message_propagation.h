// Messages that depend on more than their source: attention, gates, edge features (NeutronRT, sections IV.A to IV.C).
//
// A batch reaches a target in one of two ways. If a row of the target itself that its messages read has changed, all
// its messages change, and its aggregate is computed from all its in-edges (a constrained model). Otherwise only the
// messages along changed edges and from changed sources are subtracted and added again. A target of the second kind is
// also computed from all its in-edges if that is cheaper.
//
// Drift: as in sums; a softmax has one bound for each head's sums and one for each of its contexts.
//
// Thread safety: the same as for every propagation.
#pragma once

#include <vector>

#include "inference/evaluation/message_sums.h"
#include "inference/propagation/propagation.h"

namespace livegnn {

class MessagePropagation final : public Propagation {
 public:
  MessagePropagation(const RowState& state, const RoundingState& rounding, size_t position, ThreadPool* pool);

  void initialize(RowState* state, RoundingState* rounding, Whole* whole) const override;
  void prepare(const NodeRows* reader, PreparedBatch* prepared) const override;
  Scrubbed scrub(std::span<const uint32_t> nodes) const override;

 private:
  struct Batch;   // state that blocks of targets share
  struct InEdge;  // an in-edge of a node that is being scrubbed

  bool has_context() const { return step_.context != kNoIndex; }
  bool is_sum() const { return step_.aggregate == Aggregate::kSum; }
  bool is_of_source(size_t source) const { return program_.sources[source].side == MessageSource::kSource; }
  // The rows of the program's node sources.
  std::vector<Rows> source_rows() const;

  void update_block(Batch* batch, size_t begin, size_t end) const;
  // Adds what the batch changes in a target; false if it must be computed again from all its in-edges.
  bool add_changes(Batch* batch, MessageSums* sums, size_t place, size_t t) const;
  // Adds all messages that a target has after the batch.
  void recompute(Batch* batch, MessageSums* sums, size_t place, size_t t) const;
  void write(Batch* batch, MessageSums* sums, size_t place, size_t t) const;
  // Adds the sums of added and removed messages to the old rows. False if the rows must be computed again instead.
  bool apply(Batch* batch, MessageSums* sums, size_t place, size_t t) const;
  bool apply_heads(Batch* batch, MessageSums* sums, size_t place, size_t t) const;

  // The typical magnitudes of messages now, by channel; 0 for a maximum.
  std::vector<float> measured_units() const;
  // Adds up the magnitudes of a node's messages, channel by channel.
  void add_reach(const std::vector<InEdge>& in, const std::vector<float>& context, const std::vector<Rows>& stored,
                 MessageSums* sums, std::vector<double>* reach) const;
  double difference_of_context(uint32_t node, const std::vector<float>& context) const;
  double difference_of(uint32_t node, size_t terms, const std::vector<float>& row, const std::vector<float>& context,
                       const std::vector<float>& units, const std::vector<double>& reach) const;

  const MessageProgram& program_;
  const size_t heads_;
  const double message_cost_;  // nanoseconds
};

}  // namespace livegnn
