#include "json/usual_events.h"

#include <nanobind/stl/vector.h>

#include <string_view>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/held_texts.h"
#include "bindings/module.h"

namespace livegnn::bindings {
namespace {

nb::object ids_of(EventIds* ids) {
  if (!ids->are_texts) return nb::cast(given(std::move(ids->numbers)));
  ids->places.push_back(static_cast<int64_t>(ids->texts.size()) + 1);
  return nb::make_tuple(nb::bytes(ids->texts.data(), ids->texts.size()), given(std::move(ids->places)));
}

template <class T>
nb::object column(bool is_there, std::vector<T>* values) {
  return is_there ? nb::cast(given(std::move(*values))) : nb::none();
}

// Columns as a `Chunk` has them; the names of its type as a tuple, and text ids as their bytes and places.
nb::tuple columns_of(EventRun* run) {
  const bool edges = is_of_edges(run->kind);
  nb::object names = edges ? nb::object(nb::make_tuple(nb::str(run->names[0].c_str()), nb::str(run->names[1].c_str()),
                                                       nb::str(run->names[2].c_str())))
                           : nb::object(nb::str(run->names[0].c_str()));
  nb::object x = run->has_x ? nb::cast(given(std::move(run->x), run->count, run->width)) : nb::none();
  return nb::make_tuple(static_cast<int>(run->kind), names, ids_of(&run->ids), edges ? ids_of(&run->dst) : nb::none(),
                        column(run->has_weight, &run->weight), column(run->has_time, &run->time), x,
                        column(run->has_key, &run->key));
}

// The events of the first of some texts, up to one that is unusual; and the number of events of each.
nb::tuple read_usual_events(nb::list texts, bool in_lines, size_t bytes, size_t runs) {
  const HeldTexts held(texts);
  UsualEvents events(EventLimits{bytes, runs});
  std::vector<size_t> counts;
  counts.reserve(held.count());
  held.read([&](std::string_view text) {
    const size_t count = events.add(text, in_lines);
    if (count != 0) counts.push_back(count);
    return count != 0;
  });
  nb::list chunks;
  for (EventRun& one : events.runs()) chunks.append(columns_of(&one));
  return nb::make_tuple(chunks, nb::cast(counts));
}

}  // namespace

void bind_usual_events(nb::module_& module) {
  module.def("read_usual_events", &read_usual_events, nb::arg("texts"), nb::arg("in_lines"), nb::arg("bytes"),
             nb::arg("runs"));
}

}  // namespace livegnn::bindings
