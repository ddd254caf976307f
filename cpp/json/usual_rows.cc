#include "json/usual_rows.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

namespace livegnn {
namespace {

constexpr int64_t kExactInteger = int64_t{1} << 53;  // integers up to this are float64
constexpr std::string_view kHidden = "__";           // how the fields begin that Debezium adds to a row
constexpr std::string_view kUnavailable = "__debezium_unavailable_value";
constexpr std::string_view kNull = "null";

bool is_exact(int64_t number) { return std::abs(number) <= kExactInteger; }

bool is_null(std::string_view value) { return value.empty() || value == kNull; }

// Debezium's name of an operation; none for another one.
bool to_kind(std::string_view operation, RowChangeKind* kind) {
  if (operation == R"("c")" || operation == R"("r")") {
    *kind = RowChangeKind::insert_;
  } else if (operation == R"("u")") {
    *kind = RowChangeKind::update;
  } else {
    *kind = RowChangeKind::delete_;
    return operation == R"("d")";
  }
  return true;
}

}  // namespace

bool RowColumn::add(std::string_view value) {
  const char first = value.front();
  if (first == 'n') {
    add_null();
    return true;
  }
  if (first == '{' || first == '[') return false;
  if (first == '"') return add_text(value);
  if (first != 't' && first != 'f') return add_number(value);
  if (!become(ColumnKind::truths)) return false;
  integers.push_back(first == 't');
  valid.push_back(1);
  return true;
}

void RowColumn::add_null() {
  valid.push_back(0);
  if (kind == ColumnKind::integers || kind == ColumnKind::truths) integers.push_back(0);
  if (kind == ColumnKind::reals) reals.push_back(0);
  if (kind == ColumnKind::texts) ends.push_back(ends.back());
}

// Whether values of this kind can be added from here on.
bool RowColumn::become(ColumnKind other) {
  if (kind == other) return true;
  if (kind == ColumnKind::nulls) {
    if (other == ColumnKind::reals) {
      reals.resize(valid.size());
    } else if (other == ColumnKind::texts) {
      ends.resize(valid.size() + 1);
    } else {
      integers.resize(valid.size());
    }
  } else if (kind == ColumnKind::integers && other == ColumnKind::reals &&
             std::all_of(integers.begin(), integers.end(), is_exact)) {
    reals.assign(integers.begin(), integers.end());
    integers.clear();
  } else {
    return false;
  }
  kind = other;
  return true;
}

bool RowColumn::add_number(std::string_view value) {
  FormReader reader(value);
  if (is_whole(value)) {
    const bool negative = reader.take('-');
    int64_t number;
    std::string_view digits;
    if (!reader.take_number(&number, &digits) || (negative && number == 0)) return false;
    if (negative) number = -number;
    if (kind == ColumnKind::reals) {
      if (!is_exact(number)) return false;
      reals.push_back(static_cast<double>(number));
    } else {
      if (!become(ColumnKind::integers)) return false;
      integers.push_back(number);
    }
  } else {
    double number;
    if (!take_real(reader, &number) || !reader.ended() || !become(ColumnKind::reals)) return false;
    reals.push_back(number);
  }
  valid.push_back(1);
  return true;
}

bool RowColumn::add_text(std::string_view value) {
  if (!become(ColumnKind::texts)) return false;
  const size_t before = texts.size();
  if (before + value.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) return false;
  add_characters(value, &texts);
  const std::string_view added(reinterpret_cast<const char*>(texts.data()) + before, texts.size() - before);
  ends.push_back(static_cast<int32_t>(texts.size()));
  valid.push_back(1);
  return added != kUnavailable;
}

bool RowColumns::add(const Fields& row, bool whole, std::string_view hidden) {
  for (size_t i = 0; i < names_.size(); ++i) {
    const bool is_hidden = !hidden.empty() && names_[i].starts_with(hidden);
    const std::string_view value = is_hidden ? std::string_view{} : row.find(names_[i], &places_[i]);
    if (value.empty()) {
      if (whole) return false;
      columns_[i].add_null();
    } else if (!columns_[i].add(value)) {
      return false;
    }
  }
  return true;
}

void RowColumns::add_null() {
  for (RowColumn& one : columns_) one.add_null();
}

bool UsualRows::add(std::string_view message) {
  if (!message_.read(message)) return false;
  if (!are_changes_) return add_row(RowChangeKind::insert_, nullptr, &message_, {});
  if (!message_.find("schema").empty() && !message_.find("payload").empty()) return false;  // of Kafka Connect
  const std::string_view operation = message_.find("op"), before = message_.find("before"),
                         after = message_.find("after");
  const bool is_envelope = !before.empty() || !after.empty() || !message_.find("source").empty();
  return !operation.empty() && is_envelope ? add_envelope(operation, before, after) : add_flat();
}

bool UsualRows::add_row(RowChangeKind kind, const Fields* before, const Fields* after, std::string_view hidden) {
  kinds_.push_back(static_cast<uint8_t>(kind));
  has_before_.push_back(before != nullptr);
  if (before == nullptr) {
    before_.add_null();
  } else if (!before_.add(*before, false, hidden)) {
    return false;
  }
  if (after != nullptr) return after_.add(*after, true, hidden);
  after_.add_null();
  return true;
}

bool UsualRows::add_envelope(std::string_view operation, std::string_view before, std::string_view after) {
  RowChangeKind kind;
  if (!to_kind(operation, &kind)) return false;
  const bool is_delete = kind == RowChangeKind::delete_;
  const bool reads_before = is_delete || (kind == RowChangeKind::update && !is_null(before));
  if (reads_before && !old_.read(before)) return false;
  if (!is_delete && !new_.read(after)) return false;
  return add_row(kind, reads_before ? &old_ : nullptr, is_delete ? nullptr : &new_, {});
}

// A row, with a field that names the operation, and one for whether it was deleted.
bool UsualRows::add_flat() {
  const std::string_view operation = message_.find("__op"), deleted = message_.find("__deleted");
  RowChangeKind kind = RowChangeKind::insert_;
  if (!is_null(operation) && !to_kind(operation, &kind)) return false;
  if (deleted == "true" || deleted == R"("true")") {
    kind = RowChangeKind::delete_;
  } else if (!is_null(deleted) && deleted != "false" && deleted != R"("false")") {
    return false;
  }
  const bool is_delete = kind == RowChangeKind::delete_;
  return add_row(kind, is_delete ? &message_ : nullptr, is_delete ? nullptr : &message_, kHidden);
}

}  // namespace livegnn
