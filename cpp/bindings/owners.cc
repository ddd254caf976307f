// Owners of nodes.
#include "ids/owners.h"

#include <nanobind/stl/optional.h>

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/module.h"

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
      .def("of_indices", &of_indices);
}

}  // namespace livegnn::bindings
