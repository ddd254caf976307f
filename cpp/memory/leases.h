// Objects that hold working memory: one is taken for each use, and comes back for the next.
//
// Invariant: an object is idle, or belongs to who took it.
// Thread safety: any number of threads may take and give back; the pool must outlive all leases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace livegnn {

// `T` has `size_t bytes() const`. One that has `void restore() noexcept` is restored when it comes back.
template <class T>
class Leases {
 public:
  struct Return {
    Leases* to = nullptr;
    void operator()(T* one) const noexcept { to->give_back(std::unique_ptr<T>(one)); }
  };
  // Gives the object back when it is destroyed.
  using Lease = std::unique_ptr<T, Return>;

  // Of objects that come back, so many are kept, and none that is larger.
  explicit Leases(size_t most_idle = SIZE_MAX, size_t most_bytes = SIZE_MAX)
      : most_idle_(most_idle), most_bytes_(most_bytes) {}
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;

  // One that is idle, or what `make()` returns: a std::unique_ptr.
  template <class Make>
  Lease take(const Make& make) {
    std::unique_ptr<T> taken;
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        taken = std::move(idle_.back().one);
        bytes_ -= idle_.back().bytes;
        idle_.pop_back();
      }
    }
    if (taken == nullptr) taken = make();
    return {taken.release(), Return{this}};
  }
  Lease take() {
    return take([] { return std::make_unique<T>(); });
  }

  size_t bytes() const {  // of those that are idle
    std::lock_guard lock(mutex_);
    return bytes_;
  }

  // Frees those that are idle.
  void release() {
    std::vector<Idle> freed;
    std::lock_guard lock(mutex_);
    freed.swap(idle_);
    bytes_ = 0;
  }

 private:
  struct Idle {
    std::unique_ptr<T> one;
    size_t bytes;
  };

  void give_back(std::unique_ptr<T> one) noexcept {
    if constexpr (requires { one->restore(); }) one->restore();
    const size_t bytes = one->bytes();
    std::lock_guard lock(mutex_);
    if (idle_.size() >= most_idle_ || bytes > most_bytes_) return;
    try {
      idle_.push_back({std::move(one), bytes});
      bytes_ += bytes;
    } catch (const std::bad_alloc&) {
      // Whoever asks next makes another.
    }
  }

  size_t most_idle_, most_bytes_;
  mutable std::mutex mutex_;
  std::vector<Idle> idle_;
  size_t bytes_ = 0;
};

}  // namespace livegnn
