#include "json/usual_rows.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/held_texts.h"
#include "bindings/module.h"

namespace livegnn::bindings {
namespace {

// The kind of a column, its values, the end of each if they are texts, and which of them are no nulls.
nb::tuple values_of(RowColumn* column) {
  nb::object values = nb::none(), ends = nb::none();
  switch (column->kind) {
    case ColumnKind::integers:
    case ColumnKind::truths:
      values = nb::cast(given(std::move(column->integers)));
      break;
    case ColumnKind::reals:
      values = nb::cast(given(std::move(column->reals)));
      break;
    case ColumnKind::texts:
      values = nb::cast(given(std::move(column->texts)));
      ends = nb::cast(given(std::move(column->ends)));
      break;
    case ColumnKind::nulls:
      break;
  }
  return nb::make_tuple(static_cast<int>(column->kind), values, ends, given(std::move(column->valid)));
}

nb::list values_of(std::vector<RowColumn>* columns) {
  nb::list values;
  for (RowColumn& one : *columns) values.append(values_of(&one));
  return values;
}

// The kinds of changes, which have an old row, the new rows, and the old ones; none if a message is not of the form.
nb::object read_usual_rows(nb::list messages, const std::vector<std::string>& names, bool are_changes) {
  const HeldTexts held(messages);
  UsualRows rows(names, are_changes);
  bool are_usual = true;
  held.read([&](std::string_view text) { return are_usual = rows.add(text); });
  if (!are_usual) return nb::none();
  return nb::make_tuple(given(std::move(rows.kinds())), given(std::move(rows.has_before())), values_of(&rows.after()),
                        values_of(&rows.before()));
}

}  // namespace

void bind_usual_rows(nb::module_& module) {
  module.def("read_usual_rows", &read_usual_rows, nb::arg("messages"), nb::arg("names"), nb::arg("are_changes"));
}

}  // namespace livegnn::bindings
