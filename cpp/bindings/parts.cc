// Parts of a graph, and the exchange between those of one process.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/gil.h"
#include "bindings/locks.h"
#include "bindings/module.h"
#include "ids/owners.h"
#include "inference/engine.h"
#include "inference/halo/local_exchange.h"

namespace livegnn::bindings {
namespace {

// Makes an empty graph a part of one; without a number, a part that owns no node and keeps no edge. owners: by node
// type.
void divide(Graph& self, const std::vector<const Owners*>& owners, int64_t part) {
  for (const Graph::NodeType& type : self.nodes) {
    if (type.ids.capacity() > 0) throw std::invalid_argument("only an empty graph can be divided");
  }
  const uint32_t number = part < 0 ? GraphPart::kNone : static_cast<uint32_t>(part);
  std::vector<Owners> rules;
  for (const Owners* rule : owners) rules.push_back(*rule);
  if (rules.size() != self.nodes.size()) throw std::invalid_argument("owners are given for each node type");
  self.divide(std::make_unique<GraphPart>(std::move(rules), number));
}

// The owner of each index of a node type.
nb::object owners_of(const Graph& self, uint32_t node_type) {
  std::vector<uint16_t> owners = read(
      self, [&] { return self.nodes[node_type].ids.capacity(); },
      [&] {
        std::vector<uint16_t> all(self.nodes[node_type].ids.capacity());
        for (uint32_t node = 0; node < all.size(); ++node) {
          all[node] = static_cast<uint16_t>(self.part->owner(node_type, node));
        }
        return all;
      });
  return nb::cast(given(std::move(owners)));
}

// The owners of these indices of a node type.
nb::object owners_at(const Graph& self, uint32_t node_type, const In<uint32_t>& indices) {
  std::vector<uint16_t> owners = read(self, indices.shape(0), [&] {
    std::vector<uint16_t> found(indices.shape(0));
    for (size_t i = 0; i < found.size(); ++i) {
      found[i] = static_cast<uint16_t>(self.part->owner(node_type, indices.data()[i]));
    }
    return found;
  });
  return nb::cast(given(std::move(owners)));
}

// Edges that begin at nodes of the part, by edge type, and how many of them end elsewhere.
nb::object edge_counts(const Graph& self) {
  std::vector<std::pair<int64_t, int64_t>> counts(self.edges.size());
  read(self, counts.size(), [&] {
    for (size_t e = 0; e < self.part->counts().size(); ++e) {
      counts[e] = {self.part->counts()[e].edges, self.part->counts()[e].cut};
    }
    return 0;
  });
  return nb::cast(counts);
}

// By part, how many nodes of a type it owns.
nb::object part_loads(const Graph& self, uint32_t node_type) {
  std::vector<int64_t> loads = read(self, self.part->parts(), [&] {
    const std::span<const int64_t> all = self.part->loads(node_type);
    return std::vector<int64_t>(all.begin(), all.end());
  });
  return nb::cast(given(std::move(loads)));
}

// An exchange that a function of Python makes: it is called with what a part sends, in bytes by part, and returns what
// the others have sent.
class CalledExchange final : public Exchange {
 public:
  CalledExchange(size_t parts, nb::callable swap) : swap_(std::move(swap)), received_(parts) {}

  size_t parts() const override { return received_.size(); }
  std::span<const Frame> swap(std::vector<Frame> frames) override {
    const WithGil gil;
    nb::list sent;
    for (const Frame& frame : frames) sent.append(nb::bytes(frame.data(), frame.size()));
    const nb::list received = nb::cast<nb::list>(outlive([&] { return swap_(sent); }));
    if (nb::len(received) != parts())
      throw std::runtime_error("an exchange must return as many frames as there are parts");
    for (size_t part = 0; part < parts(); ++part) {
      const auto frame = nb::cast<nb::bytes>(received[part]);
      const auto* const data = static_cast<const std::byte*>(frame.data());
      received_[part].assign(data, data + frame.size());
    }
    return received_;
  }

 private:
  const nb::callable swap_;
  std::vector<Frame> received_;
};

}  // namespace

void bind_parts(nb::module_& module) {
  static nb::object ended = nb::steal(PyErr_NewException("livegnn._core.ExchangeEndedError", nullptr, nullptr));
  module.attr("ExchangeEndedError") = ended;
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const ExchangeEnded& error) {
      PyErr_SetString(ended.ptr(), error.what());
    }
  });
  module.attr("MAX_PARTS") = Readers::kMostParts;
  nb::class_<LocalExchange>(module, "LocalExchange")
      .def(nb::init<size_t>())
      .def("begin", [](LocalExchange& self) { as_writer([&] { self.begin(); }); })
      .def("end", [](LocalExchange& self) { as_writer([&] { self.end(); }); })
      // From then on the engine prepares its batches together with those of the other parts.
      .def(
          "join",
          [](LocalExchange& self, Engine& engine, Graph& graph, size_t part) { engine.join(&self.of(part), &graph); },
          nb::keep_alive<2, 1>());
  nb::class_<CalledExchange>(module, "CalledExchange")
      .def(nb::init<size_t, nb::callable>())
      .def(
          "join", [](CalledExchange& self, Engine& engine, Graph& graph) { engine.join(&self, &graph); },
          nb::keep_alive<2, 1>());
  module.def("divide", &divide);
  module.def("owners_of", &owners_of);
  module.def("owners_at", &owners_at);
  module.def("edge_counts", &edge_counts);
  module.def("part_loads", &part_loads);
  module.def("part_commits", [](const Graph& self) { return read(self, 1, [&] { return self.part->commits(); }); });
  module.def("exchanged_bytes", [](const Engine& self) { return self.exchanged(); });
  // The writer of the graph calls these between batches.
  module.def("places_nodes", [](const Graph& self) { return self.part->fennel() != nullptr; });
  module.def("ends_of_edges", [](const Graph& self) { return copy(self.part->ends()); });
  module.def("set_ends_of_edges",
             [](Graph& self, const In<int64_t>& ends) { self.part->set_ends({ends.data(), ends.shape(0)}); });
  module.def("continue_batches", [](Graph& self, const Graph& other) {
    write_under(self.lock, kQuick + 1, [&] { self.part->continue_from(*other.part); });
  });
  module.def("give_owners", [](Graph& self, uint32_t node_type, const In<uint16_t>& owners) {
    self.part->give(node_type, {owners.data(), owners.shape(0)});
  });
}

}  // namespace livegnn::bindings
