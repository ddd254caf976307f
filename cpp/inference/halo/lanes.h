// Messages between processes of one machine, through memory that all of them have mapped, without the kernel as long as
// nobody has to be woken.
//
//   seat 0 ── lane 0,1 ──► seat 1       a lane: a ring of bytes, with one process that writes and one that reads
//   seat 0 ◄── lane 1,0 ── seat 1       a bell of each seat, on which its process sleeps (futex)
//
// A message has a tag and is passed in pieces, so it may be larger than a ring. Memory of zeros has no messages.
//
// Invariants: a piece is published after it was written, so a process that is killed leaves none half. `written` of a
// lane is changed by its sender alone, `read` by its receiver alone, and neither decreases. Who changes a lane that
// another process may wait for rings its bell afterwards. No wait is for ever, unless its `Patience` is: it ends if a
// peer's process has ended, or is silent.
//
// Thread safety: one thread at a time uses an object; `beat`, any thread.
#pragma once

#include <atomic>
#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "inference/halo/exchange.h"

namespace livegnn {

// The place of a message: its turn, which is a batch, and its number in that. Those of a lane ascend.
struct MessageTag {
  uint64_t turn = 0;
  uint32_t number = 0;
  auto operator<=>(const MessageTag&) const = default;
};

class Lanes {
 public:
  // In seconds. beat: between two signs of life of this process, 0 for none. silent: after which a process without one
  // is lost; message: that a message may take. look: after which a process that waits looks for lost ones.
  struct Patience {
    double beat = 0, silent = 10, message = 60, look = 0.02;
  };
  struct Sent {
    size_t to;
    std::span<const std::byte> data;
    size_t done = 0;       // bytes that are written
    bool whole = false;    // all of it
    std::string why = {};  // it was not sent, if this is not empty
  };
  struct Received {
    size_t from;
    MessageTag tag;  // with turn 0: the next message with this number; then its turn
    Frame data = {};
    bool whole = false;
    std::string why = {};
  };

  // For tests: the process sends itself this signal as it begins its call of `pass` with this number, from 1.
  static inline int passes_until_signal = 0, signal_then = 0;

  static size_t bytes(size_t seats);

  // ends: by seat, a descriptor that can be read when the process there has ended, or -1. Requires: the memory outlives
  // it, begins at a multiple of 64, has `bytes(seats)` bytes, zeros before the first of them; no other object has this
  // seat. Throws std::invalid_argument if there are fewer ends than seats.
  Lanes(std::span<std::byte> memory, size_t self, std::vector<int> ends, const Patience& patience);
  // Others find that it is closed.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  size_t seats() const { return ends_.size(); }
  size_t self() const { return self_; }
  const Patience& patience() const { return patience_; }

  // Sends and receives, both at once, and returns when each message is whole or cannot be; `why` then says so. seconds:
  // that it may take. Messages that are received earlier than these are dropped. together: throws ExchangeEnded if some
  // seat has ended the turn of `tag`. Throws std::runtime_error if a seat sends another number of the turn.
  void pass(MessageTag tag, std::span<Sent> sent, std::span<Received> received, double seconds, bool together);
  // All that wait together in this turn, or in an earlier one, throw.
  void end(uint64_t turn) noexcept;

 private:
  struct Head;
  struct Seat;
  struct Lane;
  struct Piece;

  Head& head() const;
  Seat& seat(size_t number) const;
  Lane& lane(size_t from, size_t to) const;
  std::byte* ring(size_t from, size_t to) const;
  void copy_in(size_t to, uint64_t at, const void* data, size_t count) const;
  void copy_out(size_t from, uint64_t at, void* data, size_t count) const;

  bool write(MessageTag tag, Sent* sent) const;
  bool read(Received* received) const;
  bool take_piece(const Piece& piece, uint64_t at, Received* received) const;
  void wake(size_t number) const noexcept;
  bool sleep(uint32_t rung, double seconds) const;
  std::string loss_of(size_t number, double now);
  void beat();

  std::byte* const memory_;
  const size_t self_;
  const std::vector<int> ends_;
  const Patience patience_;
  struct Life {
    uint64_t beats = 0;
    double since = 0;  // its last beat, as this process saw it
  };
  std::vector<Life> lives_;  // by seat

  std::mutex ending_;
  std::condition_variable ends_beating_;
  bool closed_ = false;
  std::thread beating_;
};

}  // namespace livegnn
