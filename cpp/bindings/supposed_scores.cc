#include "inference/supposed_scores.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/locks.h"
#include "bindings/module.h"

namespace livegnn::bindings {
namespace {

// None if another way has to answer. most: bytes of a request, numbers of an answer.
nb::object answer_request(SupposedScores& scores, const nb::bytes& request, int64_t seq,
                          const std::pair<size_t, size_t>& most) {
  const std::string_view text(request.c_str(), request.size());
  // Little work, in a turn of an event loop: whoever had the interpreter's lock meanwhile would hold it for longer.
  const std::optional<std::string> found =
      as_writer(0, [&] { return scores.answer(text, seq, {most.first, most.second, kQuick}); });
  if (!found) return nb::none();
  return nb::bytes(found->data(), found->size());
}

}  // namespace

void bind_supposed_scores(nb::module_& module) {
  // Only the one writer may call it.
  nb::class_<SupposedScores>(module, "SupposedScores")
      .def(
          "__init__",
          [](SupposedScores* self, Engine& engine, decltype(RequestNames::node_types) node_types,
             decltype(RequestNames::edge_types) edge_types, decltype(RequestNames::outputs) outputs) {
            new (self) SupposedScores(&engine, {std::move(node_types), std::move(edge_types), std::move(outputs)});
          },
          nb::keep_alive<1, 2>())
      .def("answer", &answer_request);
}

}  // namespace livegnn::bindings
