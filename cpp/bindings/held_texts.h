// Texts of a list of Python that another thread may change: held, and read without the GIL if they are long.
//
// Thread safety: made and destroyed with the GIL; the texts do not change.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>
#include <vector>

#include "bindings/locks.h"

namespace livegnn::bindings {

class HeldTexts {
 public:
  explicit HeldTexts(nb::list texts) {
    for (nb::handle one : texts) size_ += held_.emplace_back(nb::cast<nb::bytes>(one)).size();
  }
  size_t count() const { return held_.size(); }
  // Calls `take` with each text, in order, until it returns false.
  template <class Take>
  void read(const Take& take) const {
    run(size_ > kMuchText, [&] {
      for (const nb::bytes& one : held_) {
        if (!take(std::string_view(one.c_str(), one.size()))) return;
      }
    });
  }

 private:
  static constexpr size_t kMuchText = 1 << 15;  // bytes, some tens of microseconds

  std::vector<nb::bytes> held_;
  size_t size_ = 0;
};

}  // namespace livegnn::bindings
