// What the tests are written with: a test registers itself, a failed check throws, `test_main.cpp` runs them all.
// `Random` starts from the run's seed and the test's own name: a failure comes again with LIVEGNN_SEED set to the seed
// that was printed, whichever other tests run.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace livegnn::testing {

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test> tests;
inline uint64_t seed = 0;  // of the test that runs

// How much a test draws: `gate` in each run of `make test`, `explored` with LIVEGNN_EXPLORE=1 (tests/gate.py).
inline size_t draws(size_t gate, size_t explored) {
  static const bool exploring = [] {
    const char* given = std::getenv("LIVEGNN_EXPLORE");
    return given != nullptr && std::string(given) != "0";
  }();
  return exploring ? explored : gate;
}

struct Registration {
  explicit Registration(Test test) { tests.push_back(test); }
};

class Random {
 public:
  uint64_t below(uint64_t n) { return n < 2 ? 0 : std::uniform_int_distribution<uint64_t>(0, n - 1)(bits_); }
  uint32_t index(size_t n) { return static_cast<uint32_t>(below(n)); }
  bool chance(double p) { return std::bernoulli_distribution(p)(bits_); }
  float between(float low, float high) { return std::uniform_real_distribution<float>(low, high)(bits_); }
  std::vector<float> floats(size_t n) {
    std::vector<float> values(n);
    for (float& value : values) value = between(-1, 1);
    return values;
  }

 private:
  std::mt19937_64 bits_{seed};
};

struct Failure {  // no std::exception: nobody but `main` may catch it
  std::string what;
};
[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  throw Failure{std::string(file) + ":" + std::to_string(line) + ": " + what};
}

template <class T>
std::string describe(const T& value) {
  std::ostringstream out;
  out.precision(17);
  out << value;
  return out.str();
}

template <class A, class B>
void check_equal(const A& a, const B& b, const char* expression, const char* file, int line) {
  if (!(a == b)) fail(file, line, std::string(expression) + " differ: " + describe(a) + " and " + describe(b));
}

inline void check_near(double a, double b, double tolerance, const char* expression, const char* file, int line) {
  if (std::fabs(a - b) <= tolerance) return;
  fail(file, line,
       expression + (" are further apart than " + describe(tolerance)) + ": " + describe(a) + ", " + describe(b));
}

}  // namespace livegnn::testing

#define TEST(test)                                                                        \
  static void test_##test();                                                              \
  static const livegnn::testing::Registration registration_##test({#test, &test_##test}); \
  static void test_##test()

#define CHECK(condition) \
  if (!(condition)) livegnn::testing::fail(__FILE__, __LINE__, "not so: " #condition)

#define CHECK_EQ(a, b) livegnn::testing::check_equal(a, b, #a " and " #b, __FILE__, __LINE__)

#define CHECK_NEAR(a, b, tolerance) livegnn::testing::check_near(a, b, tolerance, #a " and " #b, __FILE__, __LINE__)

// Only the named exception will do, and its message must hold `words`.
#define CHECK_THROWS(expression, Exception, words)                                              \
  try {                                                                                         \
    expression;                                                                                 \
    livegnn::testing::fail(__FILE__, __LINE__, "did not throw: " #expression);                  \
  } catch (const Exception& error) {                                                            \
    if (std::string text = error.what(); text.find(words) == text.npos)                         \
      livegnn::testing::fail(__FILE__, __LINE__, #expression " threw something else: " + text); \
  }
