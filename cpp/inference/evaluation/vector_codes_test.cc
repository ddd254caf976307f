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

// Codes hold whole numbers exactly in a row from 0 to 15, and a query of whole numbers whose largest is the largest
// weight.
std::vector<float> whole_vector(size_t width, Random* random) {
  std::vector<float> vector(width);
  for (float& value : vector) value = static_cast<float>(random->below(16));
  const size_t lowest = random->below(width);
  vector[lowest] = 0;
  vector[(lowest + 1 + random->below(width - 1)) % width] = 15;
  return vector;
}

std::vector<float> whole_query(size_t width, Random* random) {
  std::vector<float> query(width);
  for (float& value : query) value = static_cast<float>(random->below(13)) - 6;
  query[random->below(width)] = random->chance(0.5) ? kMostCodeWeight : -kMostCodeWeight;
  return query;
}

void check_exact_vectors(size_t width, size_t threads, Random* from) {
  Random& random = *from;
  VectorCodes codes(std::vector<float>(width, 0.0f), std::vector<float>(width, 1.0f), random.below(6000), threads);
  Vectors vectors;
  CHECK(codes.search(whole_query(width, &random).data(), 3).empty());
  for (size_t round = 0; round < 6; ++round) {
    std::vector<uint32_t> nodes, gone;
    std::vector<float> rows;
    for (size_t i = random.below(3000); i > 0; --i) {
      const uint32_t node = random.index(5000 * (round + 1));
      nodes.push_back(node);
      vectors[node] = whole_vector(width, &random);
      rows.insert(rows.end(), vectors[node].begin(), vectors[node].end());
    }
    codes.put(nodes, rows.data());
    for (size_t i = random.below(500); i > 0; --i) gone.push_back(random.index(5000 * (round + 2)));
    for (uint32_t node : gone) vectors.erase(node);
    codes.erase(gone);
    for (size_t count : {size_t{1}, size_t{7}, size_t{300}, vectors.size() + 5}) {
      const std::vector<float> query = whole_query(width, &random);
      CHECK(codes.search(query.data(), count) == best_of(vectors, query, count));
    }
    CHECK(codes.search(whole_query(width, &random).data(), 0).empty());
  }
}

TEST(vector_codes_find_the_best_of_exact_vectors) {
  Random random;
  for (size_t width : {2u, 5u, 64u, 256u}) check_exact_vectors(width, 1 + random.below(3), &random);
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
      const std::vector<uint32_t> best = best_of(vectors, query, 10), near = one.search(query.data(), 40);
      CHECK_EQ(near.size(), 40u);
      CHECK(near == several.search(query.data(), 40));
      found += static_cast<size_t>(
          std::ranges::count_if(best, [&](uint32_t node) { return std::ranges::binary_search(near, node); }));
    }
    CHECK(found >= 190);
  }
}

TEST(vector_codes_leave_out_vectors_that_are_not_finite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLargest = std::numeric_limits<float>::max();
  VectorCodes codes({0, 0}, {1, 1}, 0, 1);
  const std::vector<uint32_t> nodes{0, 1, 2, 3, 4, 5};
  const std::vector<float> rows{1, 1, kInfinity, 0, 0, std::nanf(""), -kLargest, kLargest, 0, 0, -2, -2};
  codes.put(nodes, rows.data());
  const std::vector<float> query{1, 1}, nothing{0, 0};
  CHECK(codes.search(query.data(), 9) == (std::vector<uint32_t>{0, 4, 5}));
  CHECK(codes.search(query.data(), 1) == std::vector<uint32_t>{0});
  CHECK(codes.search(nothing.data(), 2) == (std::vector<uint32_t>{0, 4}));
  codes.put(std::vector<uint32_t>{0}, rows.data() + 2);
  CHECK(codes.search(query.data(), 9) == (std::vector<uint32_t>{4, 5}));
  CHECK(codes.bytes() > 0);
}

}  // namespace livegnn::vector_codes_test
