#include "memory/recent.h"

#include <list>

#include "testing/testing.h"

namespace livegnn::recent_test {
namespace {

using testing::Random;

struct Counted {
  Counted() { ++made, ++alive; }
  ~Counted() { --alive; }
  Counted(const Counted&) = delete;

  int key = -1;
  static inline int made = 0, alive = 0;
};

}  // namespace

TEST(recent_keeps_what_alternates) {
  Recent<int, Counted, 4> recent;
  Counted::made = 0;
  const Counted *first = &recent.at(1), *second = &recent.at(2);
  for (int i = 0; i < 100; ++i) {
    CHECK_EQ(&recent.at(1), first);
    CHECK_EQ(&recent.at(2), second);
  }
  CHECK_EQ(Counted::made, 2);
}

TEST(recent_forgets_what_was_used_longest_ago) {
  Random random;
  {
    Recent<int, Counted, 4> recent;
    std::list<int> expected;  // the latest first
    for (int i = 0; i < 10000; ++i) {
      const int key = static_cast<int>(random.below(7));
      const int made = Counted::made;
      const bool known = std::find(expected.begin(), expected.end(), key) != expected.end();
      Counted& value = recent.at(key);
      CHECK_EQ(Counted::made - made, known ? 0 : 1);
      CHECK_EQ(value.key, known ? key : -1);
      value.key = key;
      expected.remove(key);
      expected.push_front(key);
      if (expected.size() > 4) expected.pop_back();
      CHECK_EQ(recent.size(), expected.size());
      CHECK_EQ(static_cast<size_t>(Counted::alive), expected.size());
    }
  }
  CHECK_EQ(Counted::alive, 0);
}

}  // namespace livegnn::recent_test
