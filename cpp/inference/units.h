// The units in which rounding is bounded: what messages typically are, channel by channel.
//
// A scale is the median of a channel's magnitudes over a sample of messages, those that are 0 left aside; 0 where all
// are, many more than at first having been looked at, and then the unit is a hundredth of the smallest: what messages
// that have gone left in a sum is large beside none. If there are no messages but 0, any rounding is too large. It is
// measured when the engine is made, after 1, 4, 16, ..., 1024, 2048, 3072, ... batches, since a graph may begin with
// nothing, and when an eighth as many messages were added or taken back as there are. It stays what it is while the
// graph only varies by less than a factor of four.
//
// A unit that is too small has rows summed anew without need, one that is too large has them be wrong. So a scale falls
// at once, and rises by no more than that factor each time. What it is measured on is what the batch at hand comes to,
// before it is committed. Where a scale has fallen, the bounds of rows grow by as much: the batch is prepared once
// more, in new units, together with the rows that are past their bounds then (`NewUnit::overdue`). So nobody sees a row
// whose rounding a unit has hidden, and what would be is what will be, to the bit.
//
// The sample (measurement.h) is a function of the graph and the batch, and the moment one of the number of batches: a
// replay gives the same bits. A lazy engine measures only in a batch that it computes at once, when it is settled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/table.h"

namespace livegnn {

class ThreadPool;
struct Preparation;
struct State;

// Of the messages of one sum.
struct Unit {
  std::vector<float> scales;  // by channel, 0 where it has had no messages but 0
  FloatBlock inverses;        // one over each scale, padded
  float mean = 0;             // typical mean of messages, in these; 0 where others than means are read

  // Of channels that have had no messages yet; none of a maximum.
  void begin(size_t width);
  void set(std::span<const float> measured, float typical_mean) noexcept;
  // The scales, and behind them the mean; nothing of a maximum.
  std::vector<float> saved() const;
  // False, and nothing done, if they cannot be that.
  bool load(std::span<const float> from);
};

// How many batches were committed, how many had been when scales were last measured, and how many messages batches have
// touched since.
struct Moments {
  size_t batches = 0, measured = 0, touched = 0;
};

// What rounding is bounded with while a batch is prepared.
struct UnitInUse {
  const float* inverse;
  float mean, shrunk;  // units are `shrunk` times smaller than those in which kept bounds are
};
UnitInUse unit_in_use(const State& state, const Preparation& prepared, size_t propagation);

void invert_scales(std::span<const float> scales, float* inverses) noexcept;
// Channels without a scale get a unit.
void fill_scales(std::vector<float>* scales);

// Of all sums, which have just been computed.
void measure_first(State* state, ThreadPool* pool);
void forget_units(const State& state, Preparation* prepared);
bool is_measured_after(const State& state, const Preparation& prepared);
// Whether any unit is a smaller one, so that rows which the batch has not reached may be past their bounds.
bool measure_after(const State& state, Preparation* prepared);
// Needs no memory, as little as the commit of which it is a part. Bounds in the table are put into new units after it
// has its new size, and before those that are already in them are written.
void commit_units(const Preparation& prepared, State* state) noexcept;

}  // namespace livegnn
