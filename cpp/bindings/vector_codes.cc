#include "inference/evaluation/vector_codes.h"

#include <span>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/locks.h"
#include "bindings/module.h"

namespace livegnn::bindings {
namespace {

std::span<const uint32_t> coded_nodes(const In<uint32_t>& nodes) { return {nodes.data(), nodes.shape(0)}; }

}  // namespace

// Python has checked the lengths and widths of all arrays.
void bind_vector_codes(nb::module_& module) {
  nb::class_<VectorCodes>(module, "VectorCodes")
      .def("__init__",
           [](VectorCodes* self, const In<float>& center, const In<float>& spread, size_t nodes, size_t threads) {
             new (self) VectorCodes(vector_of(center), vector_of(spread), nodes, threads);
           })
      .def("put",
           [](VectorCodes& self, const In<uint32_t>& nodes, const InRows<float>& rows) {
             write_under(self.lock, nodes.shape(0), [&] { self.put(coded_nodes(nodes), rows.data()); });
           })
      .def("erase",
           [](VectorCodes& self, const In<uint32_t>& nodes) {
             write_under(self.lock, nodes.shape(0), [&] { self.erase(coded_nodes(nodes)); });
           })
      .def("search",
           [](const VectorCodes& self, const In<float>& query, size_t count) {
             constexpr size_t kLong = kQuick + 1;  // threads of the pool may be waited for
             VectorCodes::Found found = read_under(self.lock, kLong, [&] { return self.search(query.data(), count); });
             return nb::make_tuple(given(std::move(found.nodes)), given(std::move(found.products)), found.deviation);
           })
      .def("bytes", [](const VectorCodes& self) { return read_under(self.lock, 0, [&] { return self.bytes(); }); });
}

}  // namespace livegnn::bindings
