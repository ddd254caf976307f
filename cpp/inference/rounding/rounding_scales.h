// The scales in whose units rounding is bounded: the typical magnitude of messages, channel by channel.
//
// A scale is the median magnitude of a channel over a sample of messages, without those that are 0. It is 0 if all of
// them are 0, also in a larger sample; then the unit is a hundredth of the smallest scale, because the rounding that
// removed messages left in a sum is large compared with nothing. If all messages are 0, any rounding is too large. A
// scale is measured when the engine is made, after 1, 4, 16, ..., 1024, 2048, 3072, ... batches, since a graph may
// begin empty, and when an eighth of all messages have been added or subtracted. It does not change while measurements
// differ from it by less than a factor of four. Whether they do is told by counting; medians are taken if so. Whether
// messages are far from 0 is told at the same times.
//
// A unit that is too small makes rows be summed again needlessly; one that is too large hides errors. So a scale falls
// at once, and rises by no more than that factor at each measurement. It is measured on the result of the current
// batch, before the commit. If a scale falls, the bounds of rows grow by the same factor: the batch is prepared once
// more, in new units, together with the rows that then exceed their bounds (`NewScale::overdue`). So no reader sees a
// row whose rounding error was hidden by a unit, and what-if predictions are bitwise what a commit gives.
//
// The sample (sample.h) is a function of the graph and the batch, and the times of measurement are a function of the
// number of batches and of touched messages: a replay gives the same bits. Scales and times follow from a sample and
// totals of the whole, which may be put together from those of parts of the nodes. A lazy engine measures only in a
// batch that it computes at once, when it is settled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "inference/rounding/measurement.h"
#include "memory/table.h"
#include "store/graph.h"

namespace livegnn {

class ThreadPool;
struct BatchChanges;
struct Effects;
struct RoundingState;
struct RowState;

// The scale of the messages of one sum.
struct RoundingScale {
  std::vector<float> scales;  // by channel, 0 if it has had no messages but 0
  FloatBlock inverses;        // one over each scale, padded
  float mean = 0;             // typical mean of messages in these units; 0 unless only means are read
  bool offset = false;        // whether the messages of a channel are far from 0 compared with how they differ

  // Starts with channels that have had no messages yet; a maximum has no scale.
  void begin(size_t width);
  void set(std::span<const float> measured, float typical_mean, bool is_offset) noexcept;
  // Whether the inverses are those of the scales.
  bool fits() const;
  // The scales, followed by the mean, and by 1 if they are offset, else 0; empty for a maximum.
  std::vector<float> saved() const;
  // Returns false and does nothing if the numbers are not a valid unit.
  bool load(std::span<const float> from);
};

// How many batches were committed, how many had been when scales were last measured, and how many messages batches have
// touched since.
struct Moments {
  size_t batches = 0, measured = 0, touched = 0;
};

// The counts of a batch that decide whether scales are measured after it. Those of the parts of any division of the
// nodes add up to those of the whole.
struct Totals {
  size_t affected = 0;  // nodes whose prediction was computed again
  size_t touched = 0;   // messages that the batch touched
  size_t messages = 0;  // messages of all sums; each changed edge counts as one more

  Totals& operator+=(const Totals& part);
};

// The unit that bounds rounding while a batch is prepared.
struct ScaleInUse {
  const float* inverse;
  float mean;
  bool offset;
  float shrunk;  // units are `shrunk` times smaller than those of the kept bounds
};

// The new scales of a sum that were measured on the result of a batch.
struct NewScale {
  std::vector<float> scales;  // empty if they stay
  FloatBlock inverses;
  float mean = 0;
  bool offset = false;
  float shrunk = 1;               // the factor by which bounds counted in them grow
  std::vector<uint32_t> overdue;  // the rows that then exceed their bounds
};

struct NewScales {
  bool measured = false;
  bool in_use = false;        // rounding is bounded in the units that hold after the batch
  std::vector<NewScale> all;  // by propagation

  const NewScale& of(size_t propagation) const { return all[propagation]; }
  void forget(size_t propagations);
};

ScaleInUse scale_in_use(const RoundingState& rounding, const NewScales& fresh, size_t propagation);

void invert_scales(std::span<const float> scales, float* inverses) noexcept;
// Gives channels without a scale a unit.
void fill_scales(std::vector<float>* scales);

// Measures the units of all sums, which have just been computed.
void measure_first(const RowState& rows, RoundingState* rounding, ThreadPool* pool);
// The same for one sum, from a sample of the nodes of all parts of a graph.
void measure_first_of(const RowState& rows, size_t propagation, const MessageSample& few, RoundingState* rounding,
                      ThreadPool* pool);
Totals totals_of(const RowState& rows, const Delta& delta, const Effects& effects);
bool is_measured_after(const RoundingState& rounding, const Totals& totals);
// The new unit of a sum whose scale is `now`. Returns whether it is smaller, so that rows that the batch has not
// reached may exceed their bounds.
bool renew_scale(const RoundingScale& now, const Measurement& measurement, const Measurement::More& more,
                 NewScale* scale);
// The same on the result of a batch, from samples of all nodes: also finds the rows of these nodes, or of a part of
// them, that then exceed their bounds.
bool measure_scale(const RowState& rows, const RoundingState& rounding, size_t propagation, const MessageSample& few,
                   const Measurement::More& more, NewScale* scale);
// Returns whether any unit is smaller.
bool measure_after(const RowState& rows, const RoundingState& rounding, const BatchChanges& changes, NewScales* fresh);
// Allocates no memory, like the commit that it is part of. Bounds in the table are converted to new units after the
// table has its new size, and before those that are already in new units are written.
void commit_scales(const NewScales& fresh, const Totals& totals, RoundingState* rounding) noexcept;

}  // namespace livegnn
