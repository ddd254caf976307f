// What the fuzz targets are written with: bytes read as operations, and a failed check that ends the process.
//
// A target is `LLVMFuzzerTestOneInput`, which libFuzzer calls, or `fuzz_main.cpp` where the compiler has none. It
// builds a structure and a plain model of it from the bytes, and compares them after every operation.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include "store/samtree/leaf.h"
#include "testing/testing.h"

namespace livegnn::fuzz {

// Zeros when the bytes are used up, so that every input is one.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool more() const { return at_ < end_; }
  uint8_t byte() { return at_ < end_ ? *at_++ : uint8_t{0}; }
  template <class T>
  T number() {
    T value{};
    for (size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | (static_cast<T>(byte()) << (8 * i)));
    return value;
  }
  // Takes as few bytes as it needs: a change of one byte then changes one operation.
  uint32_t below(uint32_t n) {
    if (n < 2) return 0;
    return (n <= 256 ? byte() : n <= 65536 ? number<uint16_t>() : number<uint32_t>()) % n;
  }
  // One time in n.
  bool once_in(uint32_t n) { return below(n) == 1; }

  // Texts of some parts, so that few bytes make a text of a form, and any bytes between them.
  template <size_t n>
  std::string text(const std::string_view (&parts)[n]) {
    std::string bytes;
    while (more() && !once_in(24)) {
      const uint32_t part = below(32);
      if (part < n) {
        bytes += parts[part];
      } else {
        bytes += static_cast<char>(byte());
      }
    }
    return bytes;
  }

  // As the store takes them: plain ones, but also zeros, negative ones, and ones that differ by many orders of
  // magnitude.
  float weight() {
    const uint8_t kind = byte();
    if (kind < 128) return static_cast<float>(kind) / 16;
    if (kind < 144) return 0;
    if (kind < 160) return -1;
    if (kind < 224) return std::ldexp(1.0f + static_cast<float>(byte()) / 256, kind - 192);
    const auto bits = number<uint32_t>();
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return std::abs(value) <= kMaxWeight ? value : 1.0f;
  }

 private:
  const uint8_t *at_, *end_;
};

// An id as streams have them: near each other, far apart, and at the ends of what there is.
template <class Id>
Id read_id(Input* input) {
  const uint8_t kind = input->byte();
  if (kind < 160) return static_cast<Id>(input->below(256));
  if (kind < 200) return static_cast<Id>(input->below(65536));
  if (kind < 220) return static_cast<Id>((Id{1} << (kind % (8 * sizeof(Id)))) - 1 + input->below(3));
  if (kind < 230) return static_cast<Id>(Id{0} - 1 - input->below(8));
  return input->number<Id>();
}

inline EdgeValue read_value(Input* input) {
  const float weight = input->weight();
  return {weight, static_cast<double>(input->byte()), input->byte()};
}

template <class Body>
int run(const Body& body, const uint8_t* data, size_t size) {
  try {
    Input input(data, size);
    body(&input);
    return 0;
  } catch (const testing::Failure& failure) {
    std::fprintf(stderr, "%s\n", failure.what.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "threw %s\n", error.what());
  }
  std::abort();
}

}  // namespace livegnn::fuzz

#define FUZZ(body)                                                          \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    return livegnn::fuzz::run(body, data, size);                            \
  }
