// Evaluates messages, a block of edges at a time, and adds them up by target.
//
// A softmax keeps sums of exp(logit - reference) beside a reference logit for each head. A reference need not be the
// largest logit, only near enough: where a logit exceeds it by more than the headroom it takes its place and the sums
// are scaled down; and where the logits that made it large have left, what remains of the sums is small beside their
// error bounds, and their owner computes them anew.
//
// Sums that are not finite are taken once more, `widely`: the program's operations in float64, and the terms scaled
// down, so that as many as there may be fit (row_sum.h). A softmax keeps the scaled sums, of messages and of weights,
// since only their quotient need fit; who reads them knows them by the latter, which are smaller than any others
// (`is_wide`). Other sums are scaled up again, and are finite wherever they fit.
//
// Invariants: a message's row, and so its part of a sum, does not depend on the block in which it was evaluated; sums
// are taken in the order of `add`, in blocks (row_sum.h). All messages of a target are added one after the other. A
// target that nothing was added to has no messages, and sums of no meaning.
// Thread safety: none; every thread has its own.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "inference/error_bounds.h"
#include "inference/row_evaluation.h"
#include "inference/state.h"
#include "program/kernels.h"
#include "program/row_sum.h"

namespace livegnn {

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

  // By what the magnitudes in `reach` are multiplied, channel by channel; null for a maximum.
  void set_units(const float* inverse) { inverse_ = inverse; }

  // Sums for targets 0 to `count`, all nothing.
  void open(size_t count, bool widely = false) {
    widely_ = widely;
    unit_ = widely && step_.aggregate == Aggregate::kSum ? kWide : 1.0f;
    sums_.assign(count * stride_, step_.aggregate == Aggregate::kMax ? -std::numeric_limits<float>::infinity() : 0.0f);
    references_.assign(count * heads_, kLowest);
    factors_.assign(count * heads_, 1);
    headroom_.assign(count, kFirstHeadroom);
    reaches_.assign(count * 2 * heads_, 0);
    messages_.assign(count, 0);
    current_ = kNobody;
  }

  // The sums of a target go on from ones with these reference logits.
  void resume(size_t target, const float* references) {
    std::copy_n(references, heads_, references_.begin() + static_cast<ptrdiff_t>(target * heads_));
    headroom_[target] = kHeadroom;
  }

  // Adds (sign 1) or takes back (sign -1) a message. `locate(i)` is the row of source i of the program, for those that
  // are rows of nodes; the edge's features must outlive the next call of `finish`.
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

  // After this the sums hold everything that was added.
  void finish() {
    evaluate();
    close();
    current_ = kNobody;
    if (unit_ == 1 || program_.softmax) return;
    for (float& sum : sums_) sum = std::ldexp(sum, kWideBits);
  }

  // All sums of targets `begin` to `end`, each of which `add` adds with its place from `begin` on, and `write` takes:
  // once, or once more if it is not finite.
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

  // Whether a sum is to be taken as it is; only what was not summed widely is not.
  bool fits(size_t target) { return widely_ || messages_[target] == 0 || kernels().finite(stride_, sum(target)); }

  float* sum(size_t target) { return sums_.data() + target * stride_; }
  float* context(size_t target) { return sum(target) + width_; }
  float* references(size_t target) { return references_.data() + target * heads_; }
  // By how much the sums from before must be scaled, by head.
  const float* factors(size_t target) const { return factors_.data() + target * heads_; }
  // Bounds on the magnitudes that went into the sums, in units of columns, and into the contexts, by head.
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

  // Makes room for one more message of a target: in a block of its own, if the last one is full.
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

  // Weights of logits far below their reference. The kernel's exponential ends at e^-87, which a message of 1e38 makes
  // a number; so it is taken as far as float32 goes. And what is added beside one reference and taken back beside
  // another differs by the rounding of the logits' differences, and by that of weights without all their bits: both
  // are a part of the reach.
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

  // Makes `logit` the reference of a head of the target at hand.
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

  // A weight may be e^kHeadroom, far from where float32 ends. Sums that begin take another reference sooner, but not at
  // every logit that is larger by next to nothing: logits may ascend, and each time everything is rounded.
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
  std::vector<uint32_t> ties_;  // which nobody reads
  float weights_[kBlockRows], factor_[kBlockRows];
  uint32_t target_[kBlockRows];
  bool widely_ = false;
  float unit_ = 1;
  size_t filled_ = 0;
  size_t current_ = kNobody, in_block_ = 0;  // the target at hand, and how many messages its last block holds
  BlockSums full_;                           // its full ones
  std::vector<float> sums_;                  // by target: the last block of its sums, and behind them of its contexts
  std::vector<float> references_, factors_, headroom_, reaches_;
  std::vector<size_t> messages_;
};

// One for each thread and step: its sums belong to whoever asks until somebody on the same thread asks again.
// `inverse`: units.h.
MessageSums& sums_of(const State& state, const PropagateStep& step, const float* inverse);

// Turns sums of all messages of a target into its rows.
void write_sums(const Program& program, const PropagateStep& step, MessageSums* sums, size_t target, float* row,
                float* context);

}  // namespace livegnn
