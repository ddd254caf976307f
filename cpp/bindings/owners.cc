// Owners of nodes, and the partitioners that choose them.
#include "ids/owners.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/locks.h"
#include "bindings/module.h"
#include "placement/adjacency.h"
#include "placement/fennel.h"
#include "placement/rebalancing.h"

namespace livegnn::bindings {
namespace {

void make_owners(Owners* self, uint32_t workers, bool jump, const In<int64_t>& ids, const In<int64_t>& to) {
  if (ids.shape(0) != to.shape(0)) {
    throw std::invalid_argument("expected a worker for each of " + std::to_string(ids.shape(0)) + " ids, got " +
                                std::to_string(to.shape(0)));
  }
  Owners::Moved moved;
  for (size_t i = 0; i < ids.shape(0); ++i) {
    if (to.data()[i] < 0 || to.data()[i] > UINT32_MAX) throw std::invalid_argument("there is no such worker");
    moved.emplace_back(static_cast<uint64_t>(ids.data()[i]), static_cast<uint32_t>(to.data()[i]));
  }
  new (self) Owners(jump ? OwnerRule::kJump : OwnerRule::kModulo, workers, std::move(moved));
}

nb::object of_ids(const Owners& self, const In<int64_t>& ids) {
  if (self.rule() == OwnerRule::kTable) throw std::invalid_argument("a table has owners of indices");
  auto out = array<int64_t>(ids.shape(0));
  for (size_t i = 0; i < ids.shape(0); ++i) out.data()[i] = self.of_id(static_cast<uint64_t>(ids.data()[i]));
  return nb::cast(out);
}

nb::object of_indices(const Owners& self, const In<uint32_t>& indices) {
  if (self.rule() != OwnerRule::kTable) throw std::invalid_argument("a hash has owners of ids");
  auto out = array<int64_t>(indices.shape(0));
  for (size_t i = 0; i < indices.shape(0); ++i) out.data()[i] = self.of_index(indices.data()[i]);
  return nb::cast(out);
}

nb::dict moved_of(const Owners& self) {
  nb::dict out;
  for (const auto& [id, worker] : self.moved()) out[nb::int_(static_cast<int64_t>(id))] = worker;
  return out;
}

template <class T>
std::span<const T> column(const In<T>& from) {
  return {from.data(), from.shape(0)};
}

using GivenLists = std::tuple<In<int64_t>, In<int64_t>, In<int64_t>>;  // starts, neighbors, weights
AdjacencyView view_of(const GivenLists& lists) {
  const auto& [starts, neighbors, weights] = lists;
  return {column(starts), column(neighbors), column(weights)};
}

// Sources, targets, and the numbers at which their types begin.
using GivenEdges = std::tuple<In<uint32_t>, In<uint32_t>, size_t, size_t>;

nb::object join(size_t nodes, const std::vector<GivenEdges>& edges) {
  std::vector<ListedEdges> listed;
  for (const auto& [sources, targets, source_offset, target_offset] : edges) {
    listed.push_back({column(sources), column(targets), source_offset, target_offset});
  }
  Adjacency joined = [&] {
    WithoutGil release;
    return join_edges(nodes, listed);
  }();
  return nb::make_tuple(given(std::move(joined.starts)), given(std::move(joined.neighbors)),
                        given(std::move(joined.weights)));
}

std::pair<int64_t, int64_t> count_cut(const GivenLists& lists, const In<uint16_t>& owners) {
  const AdjacencyView view = view_of(lists);
  WithoutGil release;
  check_adjacency(view, owners.shape(0));
  const Cut cut = cut_of(view, column(owners));
  return {cut.between, cut.all};
}

size_t even_out_owners(const GivenLists& lists, const In<int64_t>& type_starts, uint32_t parts,
                       const Into<uint16_t>& owners) {
  const Division division{view_of(lists), column(type_starts), parts};
  WithoutGil release;
  return even_out(division, {owners.data(), owners.shape(0)});
}

size_t refine_owners(const GivenLists& lists, const In<int64_t>& type_starts, uint32_t parts,
                     const Into<uint16_t>& owners, const In<int64_t>& nodes, size_t passes, size_t budget) {
  const Division division{view_of(lists), column(type_starts), parts};
  WithoutGil release;
  return refine(division, column(nodes), passes, budget, {owners.data(), owners.shape(0)});
}

void bind_fennel(nb::module_& module) {
  nb::class_<Fennel>(module, "Fennel")
      .def(nb::init<uint32_t, size_t>())
      .def("place",
           [](const Fennel& self, const In<uint32_t>& types, const In<uint32_t>& tied, const In<uint16_t>& owners,
              const In<uint32_t>& first, const In<uint32_t>& second, const In<int64_t>& ends) {
             return given(self.place(
                 {column(types), column(tied), column(owners), column(first), column(second), column(ends)}));
           })
      .def("add", [](Fennel& self, const In<int64_t>& nodes,
                     const In<int64_t>& ends) { self.add({column(nodes), column(ends)}); })
      .def("loads",
           [](const Fennel& self, size_t type) {
             if (type >= self.num_types()) throw std::invalid_argument("there is no such node type");
             const auto load = self.load(type);
             return given(std::vector<int64_t>(load.begin(), load.end()));
           })
      .def("ends", [](const Fennel& self) {
        std::vector<int64_t> ends;
        for (size_t type = 0; type < self.num_types(); ++type) ends.push_back(static_cast<int64_t>(self.ends(type)));
        return given(std::move(ends));
      });
}

}  // namespace

void bind_owners(nb::module_& module) {
  module.attr("MAX_WORKERS") = Owners::kMaxWorkers;
  nb::class_<Owners>(module, "Owners")
      .def("__init__", &make_owners)
      .def_static("from_table",
                  [](uint32_t workers, const In<uint16_t>& by_index) {
                    return Owners(workers, std::span(by_index.data(), by_index.shape(0)));
                  })
      .def("of_ids", &of_ids)
      .def("of_indices", &of_indices)
      .def("moved", &moved_of)
      .def("table", [](const Owners& self) { return given(std::vector<uint16_t>(self.table())); })
      .def("equals", [](const Owners& self, const Owners& other) { return self == other; });
  module.def("join_edges", &join);
  module.def("count_cut", &count_cut);
  module.def("even_out", &even_out_owners);
  module.def("refine", &refine_owners);
  bind_fennel(module);
}

}  // namespace livegnn::bindings
