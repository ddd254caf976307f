// Lanes between two processes, of which one stops or is killed at any message, or within one: the other one receives
// each message with all its bytes, or learns why there is none.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "hashing/random.h"
#include "inference/halo/lanes.h"
#include "inference/halo/lanes_model.h"

namespace livegnn::lanes_faults_test {

using testing::draws;
using testing::Random;

constexpr uint32_t kRounds = 6;
constexpr double kPatience = 60;  // seconds, in which even a busy machine passes a message
constexpr size_t kHere = 0, kThere = 1;

// What a seat sends in a round: from nothing to more than a ring has room for.
Frame message_of(uint64_t seed, size_t from, uint32_t round) {
  constexpr std::array<size_t, 6> kSizes{0, 1, 100, 32 << 10, 300'000, 700'000};
  RandomStream random(seed, from, round);
  const size_t size = kSizes[random.bits() % kSizes.size()];
  Frame frame(size);
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    const uint64_t bits = random.bits();
    std::memcpy(frame.data() + at, &bits, std::min(sizeof(bits), size - at));
  }
  return frame;
}

struct Case {
  uint64_t seed;
  int signal = 0;          // which the other process sends itself
  uint32_t at = 0;         // the number of its message then, from 1
  uint32_t cut = kRounds;  // the round in which it is killed from outside
  uint32_t pieces = 0;     // passes of this process in that round before that
};

// The memory of two seats, and the life of the second one's process.
class Pair {
 public:
  Pair() : size_(Lanes::bytes(2)) {
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory_ != MAP_FAILED);
    CHECK_EQ(pipe(life_.data()), 0);
  }
  ~Pair() {
    munmap(memory_, size_);
    close(life_[0]);
  }

  // Runs a function in a process of the second seat, whose status it returns.
  template <class Run>
  pid_t start(const Run& run) {
    const pid_t pid = fork();
    if (pid == 0) {
      close(life_[0]);
      Lanes lanes(memory(), kThere, {-1, -1}, {});
      _exit(run(&lanes) ? 0 : 1);
    }
    close(life_[1]);
    return pid;
  }
  std::unique_ptr<Lanes> sit() {
    return std::make_unique<Lanes>(memory(), kHere, std::vector<int>{-1, life_[0]}, Lanes::Patience{.look = 0.0001});
  }

 private:
  std::span<std::byte> memory() const { return {static_cast<std::byte*>(memory_), size_}; }
  const size_t size_;
  void* memory_;
  std::array<int, 2> life_;
};

// One round of a seat. False if the other one's message is not what it must be; true if it is, or is not there.
bool exchange(Lanes* lanes, const Case& drawn, size_t self, uint32_t round, Lanes::Sent* sent,
              Lanes::Received* received, double seconds) {
  lanes->pass({1, round}, {sent, 1}, {received, 1}, seconds, false);
  return !received->whole || received->data == message_of(drawn.seed, 1 - self, round);
}

bool run_there(Lanes* lanes, const Case& drawn) {
  Lanes::passes_until_signal = drawn.signal == 0 ? 0 : static_cast<int>(drawn.at);
  Lanes::signal_then = drawn.signal;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const Frame frame = message_of(drawn.seed, kThere, round);
    Lanes::Sent sent{kHere, frame};
    Lanes::Received received{kHere, {1, round}};
    if (!exchange(lanes, drawn, kThere, round, &sent, &received, kPatience) || !received.whole) return false;
  }
  return true;
}

// How many rounds were whole.
uint32_t run_here(Lanes* lanes, const Case& drawn, pid_t other) {
  for (uint32_t round = 0; round < kRounds; ++round) {
    const Frame frame = message_of(drawn.seed, kHere, round);
    Lanes::Sent sent{kThere, frame};
    Lanes::Received received{kThere, {1, round}};
    for (uint32_t pass = 0; round == drawn.cut && pass < drawn.pieces; ++pass) {
      CHECK(exchange(lanes, drawn, kHere, round, &sent, &received, 0));
      sent.why = received.why = {};  // it goes on
    }
    if (round == drawn.cut) kill(other, SIGKILL);
    CHECK(exchange(lanes, drawn, kHere, round, &sent, &received, kPatience));
    if (!received.whole || !sent.whole) {
      CHECK(!received.why.empty() || !sent.why.empty());
      return round;
    }
  }
  return kRounds;
}

// Continues a process when it stops, until it has ended; kills it if nobody waits for that.
class Watched {
 public:
  explicit Watched(pid_t pid)
      : pid_(pid), thread_([this] {
          while (waitpid(pid_, &status_, WUNTRACED) == pid_ && WIFSTOPPED(status_)) ::kill(pid_, SIGCONT);
        }) {}
  ~Watched() {
    if (!thread_.joinable()) return;
    ::kill(pid_, SIGKILL);
    thread_.join();
  }
  int wait_for_end() {
    thread_.join();
    return status_;
  }

 private:
  const pid_t pid_;
  int status_ = 0;
  std::thread thread_;
};

void check(const Case& drawn) {
  Pair pair;
  const pid_t other = pair.start([&](Lanes* lanes) { return run_there(lanes, drawn); });
  Watched watched(other);
  const auto lanes = pair.sit();
  const uint32_t whole = run_here(lanes.get(), drawn, other);
  const int status = watched.wait_for_end();
  if (drawn.signal != SIGKILL && drawn.cut == kRounds) {
    CHECK_EQ(whole, kRounds);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  } else if (drawn.signal == SIGKILL) {
    CHECK_EQ(whole, drawn.at - 1);
  }
}

TEST(a_process_that_stops_or_is_killed_at_any_message_sends_no_wrong_byte) {
  Random random;
  for (const int signal : {SIGSTOP, SIGKILL}) {
    for (uint32_t at = 1; at <= kRounds; ++at) check({.seed = random.below(1 << 30), .signal = signal, .at = at});
  }
}

TEST(a_process_that_is_killed_within_a_message_sends_no_wrong_byte) {
  Random random;
  for (size_t n = 0; n < draws(30, 2000); ++n) {
    const auto cut = static_cast<uint32_t>(random.below(kRounds));
    check({.seed = random.below(1 << 30), .cut = cut, .pieces = static_cast<uint32_t>(random.below(6))});
  }
}

}  // namespace livegnn::lanes_faults_test
