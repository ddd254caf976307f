#include "inference/rounding/rounding.h"

#include <cmath>
#include <limits>
#include <random>

#include "testing/testing.h"

namespace livegnn::rounding_test {
namespace {

Bounds packed_and_unpacked(const Bounds& bounds) {
  float cell = 0;
  pack(bounds, &cell);
  return unpack(&cell);
}

TEST(packed_bounds_are_no_smaller_and_hardly_larger) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> exponent(-79, 47), fraction(1, 2);
  for (int i = 0; i < 100000; ++i) {
    const Bounds bounds{std::ldexp(fraction(random), static_cast<int>(exponent(random))),
                        std::ldexp(fraction(random), static_cast<int>(exponent(random)))};
    const Bounds found = packed_and_unpacked(bounds);
    CHECK(found.own >= bounds.own && found.own <= bounds.own * (1 + 1.0f / 512));
    CHECK(found.moved >= bounds.moved && found.moved <= bounds.moved * (1 + 1.0f / 512));
  }
}

TEST(what_is_packed_once_more_stays) {
  for (uint32_t code = 0; code <= 0xffff; ++code) CHECK_EQ(encode_bound(decode_bound(code)), code);
}

TEST(packed_bounds_have_an_order) {
  for (uint32_t code = 1; code <= 0xffff; ++code) CHECK(decode_bound(code) > decode_bound(code - 1));
}

TEST(bounds_at_the_ends) {
  const float endless = std::numeric_limits<float>::infinity(), least = std::ldexp(1.0f, -80);
  CHECK_EQ(packed_and_unpacked({0, 0}).own, 0.0f);
  CHECK_EQ(packed_and_unpacked({least, std::ldexp(1.0f, -140)}).moved, 0.0f);
  CHECK_EQ(packed_and_unpacked({endless, 1e30f}).own, endless);
  CHECK_EQ(packed_and_unpacked({endless, 1e30f}).moved, endless);
  CHECK_EQ(packed_and_unpacked({std::nanf(""), 0}).own, endless);
}

// A sum that has just been taken is good, and one that was touched often is not, if its messages are far from 0.
TEST(sums_far_from_0_are_touched_a_few_times) {
  for (const size_t terms : {size_t{9}, size_t{40}, size_t{128}, size_t{1000}, size_t{1000000}}) {
    for (const float peak : {1e-3f, 1.0f, 1e3f}) {
      float cell = 0;
      const float row = peak * static_cast<float>(terms);
      begin_bounds(row, terms, &cell);
      CHECK(is_good(unpack(&cell), row, 0, true, [&] { return terms; }));
      size_t touches = 0;
      Bounds bounds{};
      do {
        bounds = touch_bounds(&cell, 1, row, 0, 1, &cell);
        ++touches;
      } while (is_good(bounds, row, 0, true, [&] { return terms; }));
      CHECK(touches <= 2 + terms / 8 && touches <= 400 && touches > std::min<size_t>(terms / 16, 200));
    }
  }
}

// Steps too small for the fraction, one after the other: what is kept is never less than their sum.
TEST(small_steps_add_up) {
  for (const float step : {3e-7f, 1e-5f, 1e-3f}) {
    float cell = 0;
    pack({1, 1}, &cell);
    double sum = 1;
    for (int i = 0; i < 10000; ++i) {
      const Bounds before = unpack(&cell);
      pack({before.own + step, before.moved + step}, &cell);
      sum += static_cast<double>(step);
      CHECK(static_cast<double>(unpack(&cell).own) >= sum * (1 - 1e-6));
    }
  }
}

}  // namespace
}  // namespace livegnn::rounding_test
