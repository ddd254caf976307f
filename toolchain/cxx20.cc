// What LiveGNN's sources use of C++20 that older compilers, or their libraries, lack. Whether a compiler accepts this
// file says more than its version. toolchain/machine.py asks before anything is installed, toolchain/machine.cmake
// before anything is built.

#ifdef LIVEGNN_PYTHON_HEADERS
#include <Python.h>
#endif

#include <atomic>
#include <bit>
#include <compare>
#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace {

struct Key {
  int64_t node;
  auto operator<=>(const Key&) const = default;
};

template <std::floating_point T>
  requires(sizeof(T) == sizeof(uint64_t))
uint64_t bits(T value) {
  return std::bit_cast<uint64_t>(value);
}

}  // namespace

int main() {
  std::vector<int64_t> nodes{1, 2, 3};
  std::erase_if(nodes, [](int64_t node) { return node == 2; });
  std::span<int64_t> left(nodes);
  std::atomic_ref<int64_t>(left.front()).fetch_add(1);
  const auto owned = std::make_unique_for_overwrite<uint64_t[]>(std::bit_ceil(left.size()));
  owned[0] = bits(1.5);
  return Key{left.front()} < Key{left.back()} && std::bit_width(owned[0]) > 0 ? 0 : 1;
}
