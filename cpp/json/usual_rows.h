// Rows of a table, and changes of rows, in messages of JSON of the usual form, read into columns; and nothing else.
//
// A message is a row, {"id":1,"name":"a"}, or a change of one as Debezium writes it: {"before":null,"after":{...},
// "op":"c"}, or the row with "__op" and "__deleted" among its fields. Columns have integers of at most 18 digits,
// float64, texts or truth values; nulls are allowed. Whatever else is valid, and all that is not, is for a reader that
// knows the reasons (connectors/row_messages.py): messages that are read here, it reads equally.
//
// Invariants: all columns have a value, perhaps null, for each message; those of a column are of one kind. A message
// that is not of the form leaves anything: its group is given up. Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "json/fields.h"

namespace livegnn {

enum class ColumnKind : uint8_t { nulls, integers, reals, texts, truths };

// integers: of truth values too. texts: one after the other; ends: of each, from the first one's begin on.
struct RowColumn {
  ColumnKind kind = ColumnKind::nulls;
  std::vector<uint8_t> valid;
  std::vector<int64_t> integers;
  std::vector<double> reals;
  std::vector<uint8_t> texts;
  std::vector<int32_t> ends = {0};

  bool add(std::string_view value);  // the text of a value of JSON
  void add_null();

 private:
  bool become(ColumnKind other);
  bool add_number(std::string_view value);
  bool add_text(std::string_view value);
};

// The columns of some names.
class RowColumns {
 public:
  explicit RowColumns(const std::vector<std::string>& names)
      : names_(names), places_(names.size()), columns_(names.size()) {}
  // A row. whole: it must have all columns; otherwise those that it lacks are null. hidden: how the names begin of
  // fields that are no columns; an empty text hides none.
  bool add(const Fields& row, bool whole, std::string_view hidden);
  void add_null();
  std::vector<RowColumn>& columns() { return columns_; }

 private:
  const std::vector<std::string> names_;
  std::vector<size_t> places_;  // where each was in the last row
  std::vector<RowColumn> columns_;
};

// As livegnn.tables.changes counts them.
enum class RowChangeKind : uint8_t { insert_, update, delete_ };

class UsualRows {
 public:
  // are_changes: whether messages are changes, or else rows.
  UsualRows(const std::vector<std::string>& names, bool are_changes)
      : are_changes_(are_changes), after_(names), before_(names) {}
  // Adds a message. Returns whether it is of the form.
  bool add(std::string_view message);
  std::vector<uint8_t>& kinds() { return kinds_; }
  std::vector<uint8_t>& has_before() { return has_before_; }
  std::vector<RowColumn>& after() { return after_.columns(); }
  std::vector<RowColumn>& before() { return before_.columns(); }

 private:
  bool add_row(RowChangeKind kind, const Fields* before, const Fields* after, std::string_view hidden);
  bool add_envelope(std::string_view operation, std::string_view before, std::string_view after);
  bool add_flat();

  const bool are_changes_;
  Fields message_, old_, new_;
  RowColumns after_, before_;
  std::vector<uint8_t> kinds_, has_before_;
};

}  // namespace livegnn
