// Messages between a leader and the processes of parts, and between these, over memory that they share.
#include <nanobind/stl/vector.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bindings/locks.h"
#include "bindings/module.h"
#include "inference/engine.h"
#include "inference/halo/lane_exchange.h"

namespace livegnn::bindings {
namespace {

class SharedMapping {
 public:
  explicit SharedMapping(int file) {
    struct stat status{};
    if (fstat(file, &status) != 0) throw std::system_error(errno, std::generic_category(), "no file to share");
    size_ = static_cast<size_t>(status.st_size);
    void* const mapped = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "a file cannot be mapped");
    data_ = static_cast<std::byte*>(mapped);
  }
  ~SharedMapping() { munmap(data_, size_); }
  SharedMapping(const SharedMapping&) = delete;

  std::span<std::byte> all() const { return {data_, size_}; }

 private:
  std::byte* data_;
  size_t size_;
};

// Descriptors, closed with it.
class Descriptors {
 public:
  explicit Descriptors(std::vector<int> all) : all_(std::move(all)) {}
  ~Descriptors() {
    for (int one : all_) {
      if (one >= 0) ::close(one);
    }
  }
  Descriptors(const Descriptors&) = delete;

  const std::vector<int>& all() const { return all_; }

 private:
  std::vector<int> all_;
};

// One process's end. `ends`, which it closes, are by seat. Parts have the seats before the last one, the leader of all
// has that.
class SharedLanes {
 public:
  SharedLanes(int file, size_t seat, std::vector<int> ends, double beat, double silent, double message)
      : ends_(std::move(ends)),
        memory_(file),
        lanes_(std::in_place, memory_.all(), seat, ends_.all(), Lanes::Patience{beat, silent, message}),
        exchange_(&*lanes_, ends_.all().size() - 1) {}

  Lanes& lanes() {
    if (!lanes_) throw std::runtime_error("lanes must be open, got closed ones");
    return *lanes_;
  }
  LaneExchange& exchange() { return exchange_; }
  void close() { lanes_.reset(); }

 private:
  Descriptors ends_;
  SharedMapping memory_;
  std::optional<Lanes> lanes_;
  LaneExchange exchange_;
};

nb::object answer_of(const Lanes::Received& one) {
  if (one.whole) return nb::bytes(one.data.data(), one.data.size());
  return nb::str(one.why.c_str());
}

// Sends messages by seat, none where there is None, and returns when they are sent. A seat that is lost gets nothing.
void post(SharedLanes& self, uint64_t turn, uint32_t number, nb::list messages) {
  std::vector<Lanes::Sent> sent;
  for (size_t to = 0; to < nb::len(messages); ++to) {
    if (messages[to].is_none()) continue;
    const auto bytes = nb::cast<nb::bytes>(messages[to]);
    sent.push_back({to, {static_cast<const std::byte*>(bytes.data()), bytes.size()}});
  }
  Lanes& lanes = self.lanes();
  as_writer([&] { lanes.pass({turn, number}, sent, {}, lanes.patience().message, false); });
}

// Adds to `into` the messages of some seats, or why there is none, as a text.
void collect(SharedLanes& self, uint64_t turn, uint32_t number, const std::vector<size_t>& seats, double seconds,
             nb::list into) {
  std::vector<Lanes::Received> received;
  for (size_t from : seats) received.push_back({from, {turn, number}});
  Lanes& lanes = self.lanes();
  as_writer([&] { lanes.pass({turn, number}, {}, received, seconds, false); });
  for (const Lanes::Received& one : received) into.append(answer_of(one));
}

// The next message with this number from a seat, whenever it arrives: its turn, and the message or a text as above.
nb::tuple wait_for(SharedLanes& self, size_t from, uint32_t number) {
  Lanes::Received received{from, {0, number}};
  Lanes& lanes = self.lanes();
  as_writer([&] { lanes.pass({0, number}, {}, {&received, 1}, std::numeric_limits<double>::infinity(), false); });
  return nb::make_tuple(received.tag.turn, answer_of(received));
}

}  // namespace

void bind_lanes(nb::module_& module) {
  nb::class_<SharedLanes>(module, "Lanes")
      .def(nb::init<int, size_t, std::vector<int>, double, double, double>(), nb::arg("file"), nb::arg("seat"),
           nb::arg("ends"), nb::arg("beat"), nb::arg("silent"), nb::arg("message"))
      .def("post", &post)
      .def("collect", &collect)
      .def("wait_for", &wait_for)
      .def("end", [](SharedLanes& self, uint64_t turn) { self.lanes().end(turn); })
      .def("close", [](SharedLanes& self) { as_writer([&] { self.close(); }); })
      // From then on the engine prepares its batches together with those of the other parts.
      .def(
          "join", [](SharedLanes& self, Engine& engine, Graph& graph) { engine.join(&self.exchange(), &graph); },
          nb::keep_alive<2, 1>())
      .def("begin", [](SharedLanes& self, uint64_t turn) { self.exchange().begin(turn); });
  module.def("size_of_lanes", &Lanes::bytes);
  module.def("signal_in_lanes", [](int passes, int signal) {
    Lanes::passes_until_signal = passes;
    Lanes::signal_then = signal;
  });
}

}  // namespace livegnn::bindings
