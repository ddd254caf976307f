// Searches among vectors in codes, beside the products of all vectors.
#include "inference/evaluation/vector_codes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "program/kernels.h"
#include "testing/testing.h"

namespace livegnn::vector_codes_test {

using namespace testing;

using Vectors = std::map<uint32_t, std::vector<float>>;

double product(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The best nodes, ascending; of equal ones those with lower numbers.
std::vector<uint32_t> best_of(const Vectors& vectors, const std::vector<float>& query, size_t count) {
  std::vector<std::pair<double, uint32_t>> order;
  for (const auto& [node, vector] : vectors) order.emplace_back(-product(query, vector), node);
  std::sort(order.begin(), order.end());
  order.resize(std::min(count, order.size()));
  std::vector<uint32_t> nodes;
  for (const auto& one : order) nodes.push_back(one.second);
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

// Vectors of few directions, so that products differ by far more than codes are off.
std::vector<float> plain_vector(size_t width, Random* random) {
  std::vector<float> vector(width, 0.0f);
  const float length = static_cast<float>(1 + random->below(1000));
  for (float& value : vector) value = length;
  return vector;
}

void check_plain_vectors(size_t width, size_t threads, Random* from) {
  Random& random = *from;
  VectorCodes codes(std::vector<float>(width, 0.0f), std::vector<float>(width, 1.0f), random.below(6000), threads);
  Vectors vectors;
  const std::vector<float> along(width, 1.0f), against(width, -1.0f);
  CHECK(codes.search(along.data(), 3).nodes.empty());
  for (size_t round = 0; round < 6; ++round) {
    std::vector<uint32_t> nodes, gone;
    std::vector<float> rows;
    for (size_t i = random.below(300); i > 0; --i) {
      const uint32_t node = random.index(5000 * (round + 1));
      nodes.push_back(node);
      vectors[node] = plain_vector(width, &random);
      rows.insert(rows.end(), vectors[node].begin(), vectors[node].end());
    }
    codes.put(nodes, rows.data());
    for (size_t i = random.below(100); i > 0; --i) gone.push_back(random.index(5000 * (round + 2)));
    for (uint32_t node : gone) vectors.erase(node);
    codes.erase(gone);
    for (size_t count : {size_t{1}, size_t{7}, size_t{300}, vectors.size() + 5}) {
      for (const std::vector<float>& query : {along, against}) {
        const std::vector<uint32_t> found = codes.search(query.data(), count).nodes;
        const std::vector<uint32_t> best = best_of(vectors, query, count);
        CHECK_EQ(found.size(), best.size());
        CHECK(std::ranges::is_sorted(found));
        double least = 1e30;
        for (uint32_t node : best) least = std::min(least, product(vectors[node], query));
        // Scales have eight bits.
        for (uint32_t node : found) CHECK(product(vectors.at(node), query) >= least - std::fabs(least) / 64);
      }
    }
    CHECK(codes.search(along.data(), 0).nodes.empty());
  }
}

TEST(vector_codes_find_the_best_of_plain_vectors) {
  Random random;
  for (size_t width : {1u, 5u, 64u, 256u}) check_plain_vectors(width, 1 + random.below(3), &random);
}

// Two channels are far off and wide, as biases may be; more than 256 channels are added in parts.
TEST(vector_codes_find_nearly_the_best_of_any_vectors) {
  Random random;
  for (size_t width : {3u, 64u, 300u}) {
    std::vector<float> center(width, 0.0f), spread(width, 1.0f);
    center[0] = 1000, spread[1] = 50;
    std::vector<uint32_t> nodes(6000);
    std::iota(nodes.begin(), nodes.end(), 0u);
    std::vector<float> rows;
    Vectors vectors;
    for (uint32_t node : nodes) {
      std::vector<float> vector = random.floats(width);
      for (size_t c = 0; c < width; ++c) vector[c] = vector[c] * spread[c] + center[c];
      rows.insert(rows.end(), vector.begin(), vector.end());
      vectors[node] = vector;
    }
    VectorCodes one(center, spread, 0, 1), several(center, spread, nodes.size(), 3);
    one.put(nodes, rows.data());
    several.put(nodes, rows.data());
    size_t found = 0;
    for (size_t i = 0; i < 20; ++i) {
      std::vector<float> query = random.floats(width);
      const std::vector<uint32_t> best = best_of(vectors, query, 10), near = one.search(query.data(), 40).nodes;
      CHECK_EQ(near.size(), 40u);
      CHECK(near == several.search(query.data(), 40).nodes);
      found += static_cast<size_t>(
          std::ranges::count_if(best, [&](uint32_t node) { return std::ranges::binary_search(near, node); }));
    }
    CHECK(found >= 190);
  }
}

// Of so many vectors, most are left out by their signs alone. Of the second kind are ten groups of nodes; of the last,
// one channel counts for more than all others.
TEST(vector_codes_find_nearly_the_best_of_many_vectors) {
  constexpr size_t kWidth = 24;
  for (size_t kind : {0u, 1u, 2u}) {
    Random random;
    std::vector<uint32_t> nodes(80'000);
    std::iota(nodes.begin(), nodes.end(), 0u);
    std::vector<float> rows(nodes.size() * kWidth);
    for (size_t i = 0; i < rows.size(); ++i) {
      const float middle = kind == 1 ? static_cast<float>(i / kWidth / 8'000 % 10 * (i % kWidth)) / 40 : 0.0f;
      rows[i] = middle + random.between(-1, 1) * (kind == 2 && i % kWidth == 3 ? 30.0f : 1.0f);
    }
    const std::vector<float> center(kWidth, 0.0f);
    std::vector<float> spread(kWidth, 1.0f);
    spread[3] = kind == 2 ? 30 : 1;
    VectorCodes one(center, spread, 0, 1), several(center, spread, nodes.size(), 3);
    one.put(nodes, rows.data());
    several.put(nodes, rows.data());
    std::vector<uint32_t> gone;
    for (size_t i = 0; i < 8'000; ++i) gone.push_back(random.index(nodes.size()));
    one.erase(gone);
    several.erase(gone);
    Vectors vectors;
    for (uint32_t node : nodes) {
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(node * kWidth);
      vectors.emplace(node, std::vector<float>(first, first + kWidth));
    }
    for (uint32_t node : gone) vectors.erase(node);
    size_t found = 0;
    for (size_t i = 0; i < 20; ++i) {
      const std::vector<float> query = random.floats(kWidth);
      const std::vector<uint32_t> best = best_of(vectors, query, 10), near = one.search(query.data(), 64).nodes;
      CHECK_EQ(near.size(), 64u);
      CHECK(near == several.search(query.data(), 64).nodes);
      for (uint32_t node : near) CHECK(vectors.contains(node));
      found += static_cast<size_t>(
          std::ranges::count_if(best, [&](uint32_t node) { return std::ranges::binary_search(near, node); }));
    }
    CHECK(found >= 180);
  }
}

// Also with centers far off, and without a channel that has no spread.
TEST(vector_codes_know_about_the_inner_products) {
  Random random;
  constexpr size_t kWidth = 40;
  std::vector<float> center(kWidth, 0.0f), spread(kWidth, 1.0f);
  center[1] = -200, spread[1] = 10, center[2] = 5, spread[2] = 0;
  std::vector<uint32_t> nodes(3000);
  std::iota(nodes.begin(), nodes.end(), 0u);
  std::vector<float> rows;
  for (size_t i = 0; i < nodes.size() * kWidth; ++i) {
    const size_t c = i % kWidth;
    rows.push_back(center[c] + spread[c] * random.between(-1, 1));
  }
  VectorCodes codes(center, spread, 0, 1);
  codes.put(nodes, rows.data());
  for (size_t i = 0; i < 20; ++i) {
    std::vector<float> query = random.floats(kWidth);
    query[2] *= 1000;
    const VectorCodes::Found found = codes.search(query.data(), 50);
    CHECK_EQ(found.nodes.size(), 50u);
    CHECK_EQ(found.products.size(), 50u);
    double squares = 0;
    for (size_t at = 0; at < 50; ++at) {
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(found.nodes[at] * kWidth);
      const double exact = product(std::vector<float>(first, first + kWidth), query);
      CHECK(std::fabs(found.products[at] - exact) <= 1);
      squares += (found.products[at] - exact) * (found.products[at] - exact) / 50;
    }
    CHECK(found.deviation > 0.4 * std::sqrt(squares));
    CHECK(found.deviation < 2.5 * std::sqrt(squares));
  }
}

// A sample that says nothing of others: all are read, and of equal scores the first are found.
TEST(vector_codes_find_as_many_as_there_are_of_equal_vectors) {
  std::vector<uint32_t> nodes(70'000);
  std::iota(nodes.begin(), nodes.end(), 0u);
  const std::vector<float> rows(2 * nodes.size(), 1.0f), query{1, -1}, nothing{0, 0};
  VectorCodes codes({0, 0}, {1, 1}, 0, 2);
  codes.put(nodes, rows.data());
  const std::vector<uint32_t> first(nodes.begin(), nodes.begin() + 40);
  CHECK(codes.search(nothing.data(), 40).nodes == first);
  CHECK(codes.search(query.data(), 40).nodes == first);
  codes.erase(std::span(nodes).subspan(5));
  CHECK(codes.search(query.data(), 40).nodes == std::vector<uint32_t>(nodes.begin(), nodes.begin() + 5));
}

TEST(vector_codes_leave_out_vectors_that_are_not_finite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLargest = std::numeric_limits<float>::max();
  VectorCodes codes({0, 0}, {1, 1}, 0, 1);
  const std::vector<uint32_t> nodes{0, 1, 2, 3, 4, 5};
  const std::vector<float> rows{1, 1, kInfinity, 0, 0, std::nanf(""), -kLargest, kLargest, 0, 0, -2, -2};
  codes.put(nodes, rows.data());
  const std::vector<float> query{1, 1}, nothing{0, 0};
  CHECK(codes.search(query.data(), 9).nodes == (std::vector<uint32_t>{0, 4, 5}));
  CHECK(codes.search(query.data(), 1).nodes == std::vector<uint32_t>{0});
  CHECK(codes.search(nothing.data(), 2).nodes == (std::vector<uint32_t>{0, 4}));
  codes.put(std::vector<uint32_t>{0}, rows.data() + 2);
  CHECK(codes.search(query.data(), 9).nodes == (std::vector<uint32_t>{4, 5}));
  CHECK(codes.bytes() > 0);
}

}  // namespace livegnn::vector_codes_test
