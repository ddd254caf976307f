// Evaluates messages, one block of edges at a time, and adds them up by target.
//
// A softmax keeps sums of exp(logit - reference) together with a reference logit for each head. A reference need not be
// the largest logit, only near it. If a logit exceeds it by more than the headroom, that logit becomes the reference
// and the sums are scaled down. If the logits that made the reference large are removed, the remaining sums are small
// compared with their error bounds, and their owner computes them again.
//
// Sums that are not finite are computed a second time, `widely`: the program's operations run in float64, and the terms
// are scaled down so that any possible number of them fits (row_sum.h). A softmax keeps the scaled sums, of messages
// and of weights, because only their quotient must fit. Readers recognise them by the sum of weights, which is smaller
// than that of any others (`is_wide`). Other sums are scaled up again, and are finite whenever they fit.
//
// Invariants: a message's row, and so its term in a sum, does not depend on the block in which it was evaluated. Sums
// are taken in the order of `add`, in blocks (row_sum.h). All messages of a target are added one after the other. A
// target to which nothing was added has no messages, and its sums are undefined.
// Thread safety: none; every thread has its own object.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "inference/evaluation/row_evaluation.h"
#include "program/kernels.h"
#include "program/row_sum.h"

namespace livegnn {

// Number of heads in a step whose messages have a program.
size_t heads_of(const Program& program, const PropagateStep& step);

class MessageSums {
 public:
  struct Edge {
    float weight;
    const float* features;
  };

  MessageSums(const Program& program, const PropagateStep& step)
      : all_(program),
        step_(step),
        program_(program.messages[step.message]),
        heads_(heads_of(program, step)),
        width_(program_.step.registers[program_.message].width),
        channels_(width_ / heads_),
        stride_(width_ + heads_),
        buffers_(memory_.open(program_.step)) {
    sources_.resize(program_.sources.size() * kBlockRows);
    scaled_.resize(heads_);
    ties_.resize(width_);
  }

  size_t heads() const { return heads_; }
  size_t channels() const { return channels_; }
  size_t width() const { return width_; }

  // Factors for the magnitudes in `reach`, one per channel; null for a maximum.
  void set_units(const float* inverse) { inverse_ = inverse; }

  // Starts empty sums for targets 0 to `count`.
  void open(size_t count, bool widely = false) {
    widely_ = widely;
    unit_ = widely && step_.aggregate == Aggregate::kSum ? kWide : 1.0f;
    sums_.assign(count * stride_, step_.aggregate == Aggregate::kMax ? -std::numeric_limits<float>::infinity() : 0.0f);
    references_.assign(count * heads_, kLowest);
    factors_.assign(count * heads_, 1);
    headroom_.assign(count, kFirstHeadroom);
    reaches_.assign(count * 2 * heads_, 0);
    messages_.assign(count, 0);
    filled_ = 0;  // what was added before a function of the model failed
    current_ = kNobody;
  }

  // Continues the sums of a target from earlier sums with these reference logits.
  void resume(size_t target, const float* references) {
    std::copy_n(references, heads_, references_.begin() + static_cast<ptrdiff_t>(target * heads_));
    headroom_[target] = kHeadroom;
  }

  // Adds (sign 1) or subtracts (sign -1) a message. `locate(i)` returns the row of the program's source i, and is
  // called for sources that are rows of nodes. The edge's features must stay valid until the next call of `finish`.
  template <class Locate>
  void add(size_t target, float sign, const Edge& edge, const Locate& locate) {
    for (size_t i = 0; i < program_.sources.size(); ++i) {
      const float*& row = sources_[i * kBlockRows + filled_];
      switch (program_.sources[i].side) {
        case MessageSource::kFeatures:
          row = edge.features;
          break;
        case MessageSource::kWeight:
          weights_[filled_] = edge.weight;
          row = &weights_[filled_];
          break;
        default:
          row = locate(i);
          for (size_t c = 0; c < program_.step.registers[i].width; c += 16) __builtin_prefetch(row + c);
      }
    }
    factor_[filled_] = unit_ * (step_.weighted ? sign * edge.weight : sign);
    target_[filled_] = static_cast<uint32_t>(target);
    if (++filled_ == kBlockRows) evaluate();
  }

  // Completes the sums: they then hold everything that was added.
  void finish() {
    evaluate();
    close();
    current_ = kNobody;
    if (unit_ == 1 || program_.softmax) return;
    for (float& sum : sums_) sum = std::ldexp(sum, kWideBits);
  }

  // Sums up targets `begin` to `end`. `add` adds all messages of a target, whose place is counted from `begin`; `write`
  // takes the result. A target whose sum is not finite is summed once more, widely, before `write` takes it.
  template <class Add, class Write>
  void sum_up(size_t begin, size_t end, const Add& add, const Write& write) {
    bool lost[kBlockRows] = {}, any = false;
    open(end - begin);
    for (size_t t = begin; t < end; ++t) add(t);
    finish();
    for (size_t t = begin; t < end; ++t) {
      if (fits(t - begin)) {
        write(t);
      } else {
        lost[t - begin] = any = true;
      }
    }
    if (!any) return;
    open(end - begin, true);
    for (size_t t = begin; t < end; ++t) {
      if (lost[t - begin]) add(t);
    }
    finish();
    for (size_t t = begin; t < end; ++t) {
      if (lost[t - begin]) write(t);
    }
  }

  // Whether a sum can be used; false only for a sum that is not finite and was not computed widely.
  bool fits(size_t target) { return widely_ || messages_[target] == 0 || kernels().finite(stride_, sum(target)); }

  float* sum(size_t target) { return sums_.data() + target * stride_; }
  float* context(size_t target) { return sum(target) + width_; }
  float* references(size_t target) { return references_.data() + target * heads_; }
  // Factors by which sums from before `resume` must be scaled, by head.
  const float* factors(size_t target) const { return factors_.data() + target * heads_; }
  // Bounds on the sums of magnitudes: first of the messages, in units of the columns, then of the contexts; by head.
  const float* reach(size_t target) const { return reaches_.data() + target * 2 * heads_; }
  size_t messages(size_t target) const { return messages_[target]; }

 private:
  const float* row_of(uint32_t reg, size_t i) const { return row_in(program_.step, reg, i, sources_.data(), buffers_); }

  void evaluate() {
    if (filled_ == 0) return;
    run_rows(all_, program_.step, filled_, sources_.data(), buffers_, widely_);
    for (size_t i = 0; i < filled_; ++i) add_up(i);
    filled_ = 0;
  }

  // Makes room for one more message of a target; it starts a new block if the last one is full.
  void enter(size_t target) {
    if (target != current_) {
      close();
      current_ = target;
      in_block_ = 0;
      full_.open(stride_);
    } else if (in_block_ == kSumBlock) {
      full_.push(sum(target));
      in_block_ = 0;
    }
    ++in_block_;
  }

  void close() {
    if (current_ != kNobody && !full_.empty()) full_.join(sum(current_));
  }

  void add_up(size_t i) {
    const size_t target = target_[i];
    const float* message = row_of(program_.message, i);
    ++messages_[target];
    if (step_.aggregate == Aggregate::kMax) {
      const uint32_t zero = 0;
      kernels().max_rows(width_, 1, &message, &zero, &factor_[i], sum(target), ties_.data());
      return;
    }
    enter(target);
    float* const reach = reaches_.data() + target * 2 * heads_;
    if (program_.coefficient == kNoIndex) {
      kernels().add_heads(1, width_, message, &factor_[i], inverse_, sum(target), reach);
      *context(target) += factor_[i];
      reach[1] += std::fabs(factor_[i]);
      return;
    }
    const float* coefficients = row_of(program_.coefficient, i);
    float* const context = this->context(target);
    if (program_.softmax) {
      bool is_low = false;
      float* const reference = references_.data() + target * heads_;
      for (size_t h = 0; h < heads_; ++h) {
        if (coefficients[h] > reference[h] + headroom_[target]) rebase(target, h, coefficients[h]);
        scaled_[h] = coefficients[h] - reference[h];
        is_low |= scaled_[h] < kLow;
      }
      const float* logits = scaled_.data();
      kernels().exponential(1, heads_, &logits, scaled_.data(), heads_);
      if (is_low) weigh_low(target, coefficients, message);
      for (size_t h = 0; h < heads_; ++h) scaled_[h] *= factor_[i];
    } else {
      for (size_t h = 0; h < heads_; ++h) scaled_[h] = coefficients[h] * factor_[i];
    }
    for (size_t h = 0; h < heads_; ++h) {
      context[h] += scaled_[h];
      reach[heads_ + h] += std::fabs(scaled_[h]);
    }
    if (channels_ == 1) {
      for (size_t h = 0; h < heads_; ++h) {
        const float part = scaled_[h] * message[h];
        sum(target)[h] += part;
        reach[h] += std::fabs(part) * inverse_[h];
      }
    } else {
      kernels().add_heads(heads_, channels_, message, scaled_.data(), inverse_, sum(target), reach);
    }
  }

  // Weights of logits far below their reference. The kernel's exponential ends at e^-87, which a message of 1e38 scales
  // up to a relevant number, so smaller weights are computed down to the smallest float32. If a message is added
  // relative to one reference and subtracted relative to another, the two terms differ by the rounding of the logit
  // differences, and by the lost bits of denormal weights; both are added to the reach.
  void weigh_low(size_t target, const float* logits, const float* message) {
    const float* const reference = references_.data() + target * heads_;
    float* const reach = reaches_.data() + target * 2 * heads_;
    for (size_t h = 0; h < heads_; ++h) {
      const float below = reference[h] - logits[h];
      if (!(below > -kLow)) continue;
      if (below > kLeast) scaled_[h] = std::exp(-below);
      const float peak = kernels().scaled_peak(channels_, message + h * channels_, inverse_ + h * channels_);
      const float unsure = scaled_[h] * below / 2 + (below > kLeast ? std::numeric_limits<float>::min() : 0.0f);
      reach[h] += unsure * peak;
      reach[heads_ + h] += unsure;
    }
  }

  // Makes `logit` the reference of a head of the current target.
  void rebase(size_t target, size_t head, float logit) {
    float& reference = references_[target * heads_ + head];
    const float factor = reference == kLowest ? 0.0f : std::exp(reference - logit);
    reference = logit;
    float* const sums = sum(target) + head * channels_;
    for (size_t c = 0; c < channels_; ++c) sums[c] *= factor;
    context(target)[head] *= factor;
    full_.scale(head * channels_, channels_, factor);
    full_.scale(width_ + head, 1, factor);
    factors_[target * heads_ + head] *= factor;
    reaches_[target * 2 * heads_ + head] *= factor;
    reaches_[target * 2 * heads_ + heads_ + head] *= factor;
  }

  // A weight may grow to e^kHeadroom, which is far below the float32 limit. New sums change their reference sooner, but
  // not for every slightly larger logit: logits may ascend, and each change rounds everything.
  static constexpr float kHeadroom = 10, kFirstHeadroom = 1;
  static constexpr float kLow = -8, kLeast = 87;
  static constexpr float kLowest = std::numeric_limits<float>::lowest();

  const Program& all_;
  const PropagateStep& step_;
  const MessageProgram& program_;
  static constexpr size_t kNobody = ~size_t{0};

  const size_t heads_, width_, channels_, stride_;
  const float* inverse_ = nullptr;
  RowBuffers memory_;
  float* const* buffers_;
  std::vector<const float*> sources_;
  std::vector<float> scaled_;
  std::vector<uint32_t> ties_;  // not read
  float weights_[kBlockRows], factor_[kBlockRows];
  uint32_t target_[kBlockRows];
  bool widely_ = false;
  float unit_ = 1;
  size_t filled_ = 0;
  size_t current_ = kNobody, in_block_ = 0;  // the current target, and how many messages its last block holds
  BlockSums full_;                           // the full blocks of that target
  std::vector<float> sums_;                  // by target: the last block of its sums, followed by that of its contexts
  std::vector<float> references_, factors_, headroom_, reaches_;
  std::vector<size_t> messages_;
};

// One object for each thread and step: its sums are valid until the next call on the same thread. `serial`: that of the
// state to which the program belongs. `inverse`: see rounding_scales.h.
MessageSums& sums_of(const Program& program, uint64_t serial, const PropagateStep& step, const float* inverse);

// Converts the sums of all messages of a target into its rows.
void write_sums(const Program& program, const PropagateStep& step, MessageSums* sums, size_t target, float* row,
                float* context);

}  // namespace livegnn
