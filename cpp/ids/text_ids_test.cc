#include "ids/text_ids.h"

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "testing/testing.h"

namespace livegnn::text_ids_test {
namespace {

using testing::Random;

// A pin, and the numbers that it must hold: those in use when it was opened, and those interned until it was closed.
struct Held {
  std::unique_ptr<TextPin> pin;
  bool open = true;
  std::set<int64_t> numbers;
};

std::string some_text(Random* random) {
  const std::string number = std::to_string(random->below(400));
  return random->chance(0.3) ? number + std::string(20, 'x') : number;
}

void check_held(const TextIds& ids, const std::map<std::string, int>& nodes, const std::vector<Held>& held,
                const std::map<int64_t, std::string>& ever) {
  for (const auto& [text, count] : nodes) CHECK_EQ(*ids.text(ids.find(text)), text);
  for (const Held& one : held) {
    for (int64_t number : one.numbers) {
      CHECK(ids.text(number).has_value());
      CHECK_EQ(ids.find(*ids.text(number)), number);
    }
  }
  for (const auto& [number, text] : ever) {
    const auto now = ids.text(number);
    CHECK(!now || *now == text);
  }
}

}  // namespace

TEST(text_ids_number_texts_as_they_come) {
  Random random;
  TextIds ids;
  std::map<std::string, int64_t> model;
  for (int i = 0; i < 5000; ++i) {
    std::string text(random.below(40), static_cast<char>('a' + random.below(3)));
    text += std::to_string(random.below(3000));
    auto [at, is_new] = model.emplace(text, static_cast<int64_t>(model.size()));
    CHECK_EQ(ids.find(text), is_new ? kNoId : at->second);
    CHECK_EQ(ids.intern(text), at->second);
    CHECK_EQ(ids.find(text), at->second);
    CHECK_EQ(*ids.text(at->second), text);
  }
  CHECK_EQ(ids.find("never seen"), kNoId);
  CHECK(!ids.text(kNoId) && !ids.text(1 << 20) && !ids.text(int64_t{1} << 40));
  CHECK_EQ(ids.size(), model.size());
}

// Texts with nodes stay, those that a pin holds stay, and all others go; a number never names another text.
TEST(text_ids_are_given_back_when_nobody_holds_them) {
  Random random;
  auto ids = std::make_shared<TextIds>();
  std::map<std::string, int> nodes;  // how many have a text
  std::map<int64_t, std::string> ever;
  std::vector<Held> held;
  for (size_t step = 0; step < testing::draws(8'000, 20'000); ++step) {
    const std::string text = some_text(&random);
    switch (random.below(8)) {
      case 0:
        held.push_back({std::make_unique<TextPin>(ids), true, {}});
        for (const auto& [name, count] : nodes) held.back().numbers.insert(ids->find(name));
        break;
      case 1:
        if (held.empty()) break;
        if (Held& one = held[random.below(held.size())]; one.open) {
          one.pin->close();
          one.open = false;
        }
        break;
      case 2:
        if (held.size() > random.below(12)) held.erase(held.begin() + static_cast<int64_t>(random.below(held.size())));
        break;
      case 3:
        ids->collect_if_due();
        if (random.chance(0.3)) ids->collect();
        break;
      default: {
        if (nodes.contains(text) && random.chance(0.5)) {
          const int64_t number = ids->find(text);
          ids->release({&number, 1});
          if (--nodes[text] == 0) nodes.erase(text);
          break;
        }
        const TextPin staging(ids);
        const int64_t number = ids->intern(text);
        CHECK_EQ(ever.emplace(number, text).first->second, text);
        for (Held& one : held) {
          if (one.open) one.numbers.insert(number);
        }
        if (random.chance(0.3)) break;  // the batch is refused
        ids->retain({&number, 1});
        ++nodes[text];
      }
    }
    if (step % 101 == 0) check_held(*ids, nodes, held, ever);
  }
  held.clear();
  ids->collect();
  CHECK_EQ(ids->size(), nodes.size());
  check_held(*ids, nodes, held, ever);
}

// What a large batch brought goes as a whole: slots, texts, and the table.
TEST(text_ids_take_what_lives) {
  auto ids = std::make_shared<TextIds>();
  std::vector<int64_t> kept(1000);
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = ids->intern("node " + std::to_string(i));
  ids->retain(kept);
  const size_t before = ids->bytes();
  for (size_t round = 0; round < testing::draws(6, 20); ++round) {
    const TextPin staging(ids);
    for (int i = 0; i < 100'000; ++i) ids->intern("a name that is longer than most, " + std::to_string(i));
    CHECK(ids->bytes() > 5'000'000);
  }
  CHECK_EQ(ids->size(), kept.size());
  CHECK(ids->bytes() < before + 100'000);
  for (size_t i = 0; i < kept.size(); ++i) CHECK_EQ(ids->find("node " + std::to_string(i)), kept[i]);
  // A pin that stays keeps what was there, not what came later.
  const TextPin stays(ids);
  for (int round = 0; round < 20; ++round) {
    TextPin staging(ids);
    std::vector<int64_t> added(1000);
    for (size_t i = 0; i < added.size(); ++i) {
      added[i] = ids->intern(std::to_string(round) + " comes and goes " + std::to_string(i));
    }
    ids->retain(added);
    ids->release(added);
  }
  CHECK(ids->size() >= 21 * kept.size());  // it is still open
}

TEST(text_ids_that_a_closed_pin_held_are_bounded) {
  auto ids = std::make_shared<TextIds>();
  std::vector<int64_t> numbers(1000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = ids->intern("old " + std::to_string(i));
  ids->retain(numbers);
  TextPin stays(ids);
  stays.close();
  for (int round = 0; round < 50; ++round) {
    std::vector<int64_t> next(numbers.size());
    {
      const TextPin staging(ids);
      for (size_t i = 0; i < next.size(); ++i) next[i] = ids->intern(std::to_string(round) + " " + std::to_string(i));
      ids->retain(next);
      ids->release(numbers);
    }
    numbers = next;
    CHECK(ids->size() <= 5000);
  }
  for (int i = 0; i < 1000; ++i) CHECK(ids->find("old " + std::to_string(i)) != kNoId);
}

TEST(text_ids_are_read_beside_a_batch) {
  auto ids = std::make_shared<TextIds>();
  std::vector<int64_t> stay(500);
  for (size_t i = 0; i < stay.size(); ++i) stay[i] = ids->intern("stays " + std::to_string(i));
  ids->retain(stay);
  std::atomic<bool> done = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&, r] {
      for (size_t i = static_cast<size_t>(r); !done; i = (i + 7) % stay.size()) {
        const TextPin pin(ids);
        const std::string text = "stays " + std::to_string(i);
        if (ids->find(text) != stay[i] || ids->text(stay[i]) != text) ++wrong;
        ids->bytes();
      }
    });
  }
  for (int round = 0; round < 30; ++round) {
    const TextPin staging(ids);
    std::vector<int64_t> numbers(500);
    ids->intern(
        numbers.size(), [&](size_t i) { return std::to_string(round * 300 + static_cast<int>(i)); }, numbers.data());
    ids->retain(numbers);
    ids->release(numbers);
  }
  done = true;
  for (auto& reader : readers) reader.join();
  CHECK_EQ(wrong.load(), 0);
}

}  // namespace livegnn::text_ids_test
