#include "inference/halo/lanes.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <ctime>
#include <stdexcept>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace livegnn {
namespace {

constexpr size_t kLine = 64, kRing = size_t{256} << 10, kMostPiece = size_t{32} << 10;
constexpr double kLongestLook = 0.2;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Sleeps while the word has this value, `seconds` at most.
void sleep_on(const std::atomic<uint32_t>& word, uint32_t value, double seconds) {
  timespec time{static_cast<time_t>(seconds), static_cast<long>(std::fmod(seconds, 1.0) * 1e9)};
#ifdef __linux__
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
#else
  time = {0, 50'000};
  if (word.load() == value) nanosleep(&time, nullptr);
#endif
}

void wake_all(std::atomic<uint32_t>& word) {
#ifdef __linux__
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
#else
  static_cast<void>(word);
#endif
}

std::string rounded(double seconds) {
  const auto tenths = static_cast<int64_t>(std::llround(seconds * 10));
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10));
}

std::string text_of(MessageTag tag) {
  return "message " + std::to_string(tag.number) + " of turn " + std::to_string(tag.turn);
}

}  // namespace

struct alignas(kLine) Lanes::Head {
  std::atomic<uint64_t> ended;  // the last turn that some seat has ended
};

struct alignas(kLine) Lanes::Seat {
  std::atomic<uint32_t> bell, sleeping, closed, beating;
  std::atomic<uint64_t> beats;
};

struct Lanes::Lane {
  alignas(kLine) std::atomic<uint64_t> written;
  alignas(kLine) std::atomic<uint64_t> read;
};

// Before the bytes of each piece.
struct Lanes::Piece {
  uint64_t turn;
  uint32_t number, bytes;
  uint64_t rest;  // bytes of the message behind this piece

  MessageTag tag() const { return {turn, number}; }
  size_t room() const { return sizeof(Piece) + (bytes + 7) / 8 * 8; }
};

size_t Lanes::bytes(size_t seats) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
  return sizeof(Head) + seats * sizeof(Seat) + seats * seats * (sizeof(Lane) + kRing);
}

Lanes::Head& Lanes::head() const { return *reinterpret_cast<Head*>(memory_); }
Lanes::Seat& Lanes::seat(size_t number) const { return reinterpret_cast<Seat*>(memory_ + sizeof(Head))[number]; }
Lanes::Lane& Lanes::lane(size_t from, size_t to) const {
  return reinterpret_cast<Lane*>(memory_ + sizeof(Head) + seats() * sizeof(Seat))[from * seats() + to];
}
std::byte* Lanes::ring(size_t from, size_t to) const {
  return memory_ + bytes(seats()) - (seats() * seats() - (from * seats() + to)) * kRing;
}

Lanes::Lanes(std::span<std::byte> memory, size_t self, std::vector<int> ends, const Patience& patience)
    : memory_(memory.data()),
      self_(self),
      ends_(std::move(ends)),
      patience_(patience),
      lives_(ends_.size(), {0, now()}) {
  if (self_ >= seats() || memory.size() < bytes(seats())) {
    throw std::invalid_argument("lanes need a descriptor for each seat, and memory for all of them");
  }
  if (patience_.beat <= 0) return;
  seat(self_).beating.store(1);
  beating_ = std::thread([this] { beat(); });
}

Lanes::~Lanes() {
  {
    const std::lock_guard hold(ending_);
    closed_ = true;
    ends_beating_.notify_all();
  }
  if (beating_.joinable()) beating_.join();
  seat(self_).closed.store(1);
  for (size_t other = 0; other < seats(); ++other) wake(other);
}

void Lanes::beat() {
  std::unique_lock hold(ending_);
  while (!closed_) {
    seat(self_).beats.fetch_add(1);
    ends_beating_.wait_for(hold, std::chrono::duration<double>(patience_.beat));
  }
}

void Lanes::end(uint64_t turn) noexcept {
  std::atomic<uint64_t>& ended = head().ended;
  for (uint64_t before = ended.load(); before < turn && !ended.compare_exchange_weak(before, turn);) {
  }
  for (size_t other = 0; other < seats(); ++other) wake(other);
}

// Either the other finds the new number before it sleeps, or this one finds that it sleeps.
void Lanes::wake(size_t number) const noexcept {
  seat(number).bell.fetch_add(1);
  if (seat(number).sleeping.load() != 0) wake_all(seat(number).bell);
}

// Returns when the bell has rung since `rung`, or after a while. Whether it has rung.
bool Lanes::sleep(uint32_t rung, double seconds) const {
  Seat& own = seat(self_);
  own.sleeping.store(1);
  if (own.bell.load() == rung) sleep_on(own.bell, rung, seconds);
  own.sleeping.store(0);
  return own.bell.load() != rung;
}

void Lanes::copy_in(size_t to, uint64_t at, const void* data, size_t count) const {
  if (count == 0) return;
  const size_t place = at % kRing, first = std::min(count, kRing - place);
  std::memcpy(ring(self_, to) + place, data, first);
  std::memcpy(ring(self_, to), static_cast<const std::byte*>(data) + first, count - first);
}

void Lanes::copy_out(size_t from, uint64_t at, void* data, size_t count) const {
  if (count == 0) return;
  const size_t place = at % kRing, first = std::min(count, kRing - place);
  std::memcpy(data, ring(from, self_) + place, first);
  std::memcpy(static_cast<std::byte*>(data) + first, ring(from, self_), count - first);
}

// Writes as many pieces as there is room for. Whether it has written any.
bool Lanes::write(MessageTag tag, Sent* sent) const {
  Lane& to = lane(self_, sent->to);
  uint64_t at = to.written.load(std::memory_order_relaxed);
  bool moved = false;
  while (!sent->whole && sent->why.empty()) {
    const size_t rest = sent->data.size() - sent->done, count = std::min(rest, kMostPiece);
    const Piece piece{tag.turn, tag.number, static_cast<uint32_t>(count), rest - count};
    if (at + piece.room() - to.read.load() > kRing) break;
    copy_in(sent->to, at, &piece, sizeof(piece));
    copy_in(sent->to, at + sizeof(piece), sent->data.data() + sent->done, count);
    at += piece.room();
    to.written.store(at);
    sent->done += count;
    sent->whole = piece.rest == 0;
    moved = true;
    wake(sent->to);
  }
  return moved;
}

// Reads the pieces that have arrived, as far as they belong to a message. Whether it has read any.
bool Lanes::read(Received* received) const {
  Lane& from = lane(received->from, self_);
  uint64_t at = from.read.load(std::memory_order_relaxed);
  bool moved = false;
  while (!received->whole && received->why.empty()) {
    const uint64_t written = from.written.load(std::memory_order_acquire);
    if (written == at) break;
    Piece piece;
    copy_out(received->from, at, &piece, sizeof(piece));
    if (piece.bytes > kMostPiece || piece.room() > written - at) {
      throw std::runtime_error("what seat " + std::to_string(received->from) + " has sent is no message");
    }
    if (!take_piece(piece, at + sizeof(piece), received)) break;
    at += piece.room();
    moved = true;
    from.read.store(at);
    // The sender waits only if it has found no room for a piece.
    if (from.written.load() + sizeof(Piece) + kMostPiece > at - piece.room() + kRing) wake(received->from);
  }
  return moved;
}

// Adds a piece to a message, or drops it. False if it must stay where it is, as one of a later turn.
bool Lanes::take_piece(const Piece& piece, uint64_t at, Received* received) const {
  if (received->tag.turn == 0) {
    if (piece.number != received->tag.number) return true;
    received->tag.turn = piece.turn;
  }
  if (piece.tag() < received->tag) return true;
  if (piece.turn > received->tag.turn) {
    received->why = "it has begun turn " + std::to_string(piece.turn);
    return false;
  }
  if (piece.number != received->tag.number) {
    throw std::runtime_error("seat " + std::to_string(received->from) + " must send " + text_of(received->tag) +
                             ", got " + text_of(piece.tag()) + ": programs or graphs differ");
  }
  Frame& data = received->data;
  if (data.empty()) data.reserve(piece.bytes + piece.rest);
  const size_t before = data.size();
  data.resize(before + piece.bytes);
  copy_out(received->from, at, data.data() + before, piece.bytes);
  received->whole = piece.rest == 0;
  return true;
}

// Why nothing more can be exchanged with a seat; empty if it lives.
std::string Lanes::loss_of(size_t number, double now) {
  if (seat(number).closed.load() != 0) return "it has closed its lanes";
  pollfd end{ends_[number], POLLIN, 0};
  if (end.fd >= 0 && poll(&end, 1, 0) > 0) return "its process has ended";
  Life& life = lives_[number];
  const uint64_t beats = seat(number).beats.load();
  if (beats != life.beats || seat(number).beating.load() == 0) life = {beats, now};
  if (now - life.since <= patience_.silent) return {};
  return "it has shown no sign of life for " + rounded(now - life.since) + " seconds";
}

void Lanes::pass(MessageTag tag, std::span<Sent> sent, std::span<Received> received, double seconds, bool together) {
  if (passes_until_signal > 0 && --passes_until_signal == 0) std::raise(signal_then);
  double began = -1, looked = -1, look = patience_.look;
  for (;;) {
    const uint32_t rung = seat(self_).bell.load();
    bool moved = false, open = false;
    for (Sent& one : sent) {
      moved |= write(tag, &one);
      open |= !one.whole && one.why.empty();
    }
    for (Received& one : received) {
      moved |= read(&one);
      open |= !one.whole && one.why.empty();
    }
    if (!open) return;
    if (together && head().ended.load() >= tag.turn) throw ExchangeEnded();
    if (moved || sleep(rung, look)) continue;
    const double time = now();
    // A process that was suspended counts that for nobody.
    const bool suspended = looked >= 0 && time - looked > look + patience_.silent / 2;
    if (began < 0 || suspended) {
      began = time;
      for (Life& life : lives_) life.since = time;
    }
    looked = time;
    look = std::max(look, std::min(look * 2, kLongestLook));
    const auto judge = [&](size_t number) {
      std::string why = loss_of(number, time);
      if (why.empty() && time - began > seconds) {
        why = "it has not sent " + text_of(tag) + " within " + rounded(seconds) + " seconds";
      }
      return why;
    };
    for (Sent& one : sent) {
      if (!one.whole && one.why.empty()) one.why = judge(one.to);
    }
    for (Received& one : received) {
      if (one.whole || !one.why.empty()) continue;
      std::string why = judge(one.from);
      read(&one);  // what a process has sent before it ended is there by now
      if (!one.whole && one.why.empty()) one.why = std::move(why);
    }
  }
}

}  // namespace livegnn
