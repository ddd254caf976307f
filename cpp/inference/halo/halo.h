// The messages between the parts of a graph while they prepare a batch.
//
//   part A   depth 0 ─► rows ─┐ depth 1 ─► rows ─┐ ... ─► totals ─┐ ─► samples ─┐ (if units are measured)
//   part B   depth 0 ─► rows ─┘ depth 1 ─► rows ─┘ ... ─► totals ─┘ ─► samples ─┘
//
// Each part computes the rows of its own nodes. Before a depth it receives the rows which that depth reads of others'
// nodes: whole, as their owner computed them, if the batch changes them or if the part begins to read them. It keeps
// them in the same tables as its own, where steps along edges find them. Features that the batch sets are not sent:
// every part has them with the events.
//
// Invariants: all parts make the same calls in the same order, so their rounds meet. After a batch every row that a
// part reads along its edges has the bits that its owner has. A part that begins to read a row has no old bits of it
// that count: no edge led from it.
//
// Thread safety: the thread that prepares batches; one batch at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "inference/halo/exchange.h"
#include "inference/halo/readers.h"
#include "inference/propagation/prepared_batch.h"
#include "inference/rounding/rounding_state.h"
#include "inference/rows/row_state.h"
#include "store/owners_after.h"

namespace livegnn {

class Halo {
 public:
  // Throws std::invalid_argument if the graph is not a part, or of another number of parts, or if a part cannot run the
  // program. Requires: the rows that the part reads of others' nodes have their owners' bits, or are computed next.
  Halo(const RowState& rows, Exchange* exchange);

  // -- without a batch, while all rows are computed from the graph: the same before each depth but the first, for all
  // rows that others read, and `measure_first` of all sums in the end. Throw ExchangeEnded.

  void exchange_all(size_t depth, RowState* rows);
  void measure_first(RoundingState* rounding, ThreadPool* pool);

  // -- a batch

  // Before the first depth of a batch.
  void begin(const Delta& delta);
  // Before each further depth: completes the rows that it reads along edges. All parts learn of a row that one of them
  // has lost.
  void exchange(size_t depth, PreparedBatch* batch);
  // After the last depth: makes the totals of a batch, which are this part's, those of all parts.
  void gather(PreparedBatch* batch);
  // The same as `measure_after`, for all parts.
  bool measure(const RoundingState& rounding, const BatchChanges& changes, NewScales* fresh);

  // The bytes that other parts have received from this one. Any thread may call it.
  uint64_t sent() const { return exchange_.sent(); }

  void commit() noexcept { readers_.commit(); }
  void abandon() noexcept;

 private:
  // The first row of a step that a part has lost.
  struct Lost {
    uint64_t step = ~uint64_t{0};
    uint32_t node_type = 0, node = 0;
    auto operator<=>(const Lost&) const = default;
  };

  void take_rows(uint32_t value, uint32_t part, FrameReader* from, RowState* rows) const;
  static Lost lost_by(PreparedBatch* batch);
  static void adopt(const Lost& lost, PreparedBatch* batch);
  void write_rows(uint32_t value, const BatchChanges& batch, std::vector<FrameWriter>* frames);
  void put_rows(uint32_t value, const Changes& changes, const std::vector<uint32_t>& places,
                const std::vector<uint32_t>& stored, FrameWriter* frame) const;

  const RowState& rows_;
  const uint32_t self_;
  CountedExchange exchange_;
  const std::vector<std::vector<uint32_t>> values_;  // by depth
  Readers readers_;
  std::optional<OwnersAfter> owners_;  // of the batch that is prepared
  // By part: the changed rows that it reads, by place, and the nodes of other rows that it begins to read.
  std::vector<std::vector<uint32_t>> places_, stored_;
};

}  // namespace livegnn
