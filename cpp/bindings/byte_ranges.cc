#include "memory/byte_ranges.h"

#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/locks.h"
#include "bindings/module.h"
#include "hashing/bytes_hash.h"

namespace livegnn::bindings {
namespace {

constexpr size_t kMuch = 1 << 16;  // bytes, some tens of microseconds

std::span<const int64_t> span_of(const In<int64_t>& array) { return {array.data(), array.shape(0)}; }

Bytes check(const In<unsigned char>& bytes, const In<int64_t>& starts, const In<int64_t>& lengths) {
  if (starts.shape(0) != lengths.shape(0) || !are_within(bytes.shape(0), span_of(starts), span_of(lengths))) {
    throw std::invalid_argument("each range must have a start and a length and lie within the bytes");
  }
  return {bytes.data(), bytes.shape(0)};
}

nb::object gather(In<unsigned char> bytes, In<int64_t> starts, In<int64_t> lengths) {
  const Bytes from = check(bytes, starts, lengths);
  const auto asked = span_of(lengths);
  auto out = array<unsigned char>(static_cast<size_t>(std::accumulate(asked.begin(), asked.end(), int64_t{0})));
  run(out.shape(0) > kMuch, [&] { gather_ranges(from, span_of(starts), asked, out.data()); });
  return nb::cast(out);
}

void copy_each(In<unsigned char> bytes, In<int64_t> starts, In<int64_t> lengths, Into<unsigned char> out,
               In<int64_t> places) {
  const Bytes from = check(bytes, starts, lengths);
  if (places.shape(0) != starts.shape(0) || !are_within(out.shape(0), span_of(places), span_of(lengths))) {
    throw std::invalid_argument("each range must have a place, and lie within the array that it is copied to");
  }
  run(from.size() > kMuch, [&] { copy_ranges(from, span_of(starts), span_of(lengths), out.data(), span_of(places)); });
}

nb::object checksum(In<unsigned char> bytes, In<int64_t> starts, In<int64_t> lengths) {
  const Bytes from = check(bytes, starts, lengths);
  auto out = array<uint32_t>(starts.shape(0));
  run(from.size() > kMuch, [&] { checksum_ranges(from, span_of(starts), span_of(lengths), out.data()); });
  return nb::cast(out);
}

// The bytes of a Python object, held as long as this one lives.
class HeldBuffer {
 public:
  explicit HeldBuffer(nb::handle from) {
    if (PyObject_GetBuffer(from.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  HeldBuffer(HeldBuffer&& other) noexcept : view_(std::exchange(other.view_, Py_buffer{})) {}
  ~HeldBuffer() { PyBuffer_Release(&view_); }

  Bytes bytes() const { return {static_cast<const unsigned char*>(view_.buf), static_cast<size_t>(view_.len)}; }

 private:
  Py_buffer view_{};
};

uint64_t hash_all(nb::list of) {
  std::vector<HeldBuffer> buffers;
  buffers.reserve(of.size());
  size_t size = 0;
  for (nb::handle one : of) size += buffers.emplace_back(one).bytes().size();
  BytesHash result;
  run(size > kMuch, [&] {
    for (const HeldBuffer& buffer : buffers) result.add(buffer.bytes().data(), buffer.bytes().size());
  });
  return result.value();
}

}  // namespace

void bind_byte_ranges(nb::module_& module) {
  module.def("gather_ranges", &gather);
  module.def("copy_ranges", &copy_each);
  module.def("checksum_ranges", &checksum);
  module.def("hash_buffers", &hash_all);
}

}  // namespace livegnn::bindings
