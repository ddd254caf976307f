// Samples of the messages of all parts of a graph, which are those of the undivided graph (rounding/sample.h).
//
//   own nodes that are tried ─► found by all parts ─► chosen, by each part alike ─► messages of own ones ─► of all
//
// Invariant: all parts make the same calls in the same order, and receive the same samples.
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "inference/halo/exchange.h"
#include "inference/rounding/sample_reader.h"
#include "store/owners_after.h"

namespace livegnn {

class GatheredSamples {
 public:
  // On the result of a batch, or without one, with null, on the rows as they are. Requires: all arguments outlive it.
  // Throws ExchangeEnded, as all functions.
  GatheredSamples(const RowState& rows, const RoundingState& rounding, const BatchChanges* changes,
                  const OwnersAfter& owners, Exchange* exchange);

  // A few messages of each target of a sum, and as many as a sample may have. A sample is valid until the next call of
  // `many` for the sum; one of a few, as long as this object.
  const MessageSample& few(size_t propagation) const { return sums_.at(propagation).few; }
  MessageSample many(size_t propagation);

 private:
  struct Sum {
    SampleReader reader;
    uint32_t node_type;
    size_t width;
    std::vector<SampledTarget> targets;  // found ones, and then those of this part that were chosen
    MessageSample own_few, own_many, few;
    std::vector<MessageSample> received_few, received_many;
    std::vector<Frame> kept;  // what others sent of `many`
  };

  void choose_together();

  const OwnersAfter& owners_;
  Exchange& exchange_;
  std::map<size_t, Sum> sums_;  // by propagation
  std::vector<Frame> kept_;     // what others sent of the samples of few messages
};

}  // namespace livegnn
