#include "store/event_checks.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>
#include <string>

#include "store/graph.h"

namespace livegnn {
namespace {

[[noreturn]] void refuse_value(const std::string& what, double value, const std::string& place, const Holders& of,
                               size_t at) {
  throw EventError(BadEvent::kNotFinite, what + ", got " + std::to_string(value) + place, of.ids[at], of.type,
                   of.targets == nullptr ? kNoId : of.targets[at]);
}

}  // namespace

void check_weight(float weight, const char* what, const Holders& of, size_t at) {
  if (std::abs(weight) <= kMaxWeight) return;
  refuse_value(std::string(what) + " must be finite, and at most 2^96 so that sums of it are", weight, "", of, at);
}

void check_sum(float old, float more, const Holders& of, size_t at) {
  const float sum = old + more;
  const bool whole = old == std::trunc(old) && more == std::trunc(more);
  const bool lost = more != 0 && sum == old;
  if (!lost && !(whole && double{old} + double{more} != double{sum})) return;
  const float step = std::nextafter(std::abs(old), kMaxWeight) - std::abs(old);
  std::ostringstream what;
  what << std::setprecision(std::numeric_limits<float>::max_digits10) << "weights that add up must not be lost in "
       << "rounding, got " << more << " to be added to " << old
       << ": put weights together until they are a multiple of " << step << ", and add them as one,";
  throw EventError(BadEvent::kInexact, what.str(), of.ids[at], of.type, of.targets[at]);
}

double check_times(const double* time, size_t count, const char* what, const Holders& of) {
  double latest = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; time != nullptr && i < count; ++i) {
    if (!std::isfinite(time[i])) refuse_value(std::string(what) + " must be finite", time[i], "", of, i);
    latest = std::max(latest, time[i]);
  }
  return latest;
}

void check_rows(const float* x, size_t width, size_t count, size_t expected, const char* what, const Holders& of) {
  if (width != expected) {
    throw EventError(BadEvent::kWidth, std::string(what) + " must be " + std::to_string(expected) + " wide, got " +
                                           std::to_string(width));
  }
  for (size_t i = 0; i < width * count; ++i) {
    if (std::isfinite(x[i])) continue;
    refuse_value(std::string(what) + " must be finite", x[i], " in column " + std::to_string(i % width), of, i / width);
  }
}

}  // namespace livegnn
