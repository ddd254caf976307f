#include "json/usual_rows.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "testing/testing.h"

namespace livegnn::usual_rows_test {
namespace {

std::string text_of(const RowColumn& column, size_t row) {
  return {column.texts.begin() + column.ends[row], column.texts.begin() + column.ends[row + 1]};
}

bool is_read(std::string_view message, bool are_changes = true) { return UsualRows({"a"}, are_changes).add(message); }

}  // namespace

TEST(rows_are_columns) {
  UsualRows rows({"b", "a", "n"}, false);
  CHECK(rows.add(R"({"a":null,"b":"x","n":null,"else":[1]})"));
  CHECK(rows.add(R"({"n":null,"b":"\u00e4\n","a":1})") && rows.add(R"({"a":-2.5,"b":null,"n":null})"));
  const std::vector<RowColumn>& columns = rows.after();
  CHECK(columns[0].kind == ColumnKind::texts && text_of(columns[0], 0) == "x" && text_of(columns[0], 2).empty());
  CHECK(text_of(columns[0], 1) == "\xc3\xa4\n" && columns[0].valid == (std::vector<uint8_t>{1, 1, 0}));
  CHECK(columns[1].kind == ColumnKind::reals && columns[1].reals == (std::vector<double>{0, 1, -2.5}));
  CHECK(columns[2].kind == ColumnKind::nulls && columns[2].valid == (std::vector<uint8_t>{0, 0, 0}));
  CHECK(rows.kinds() == (std::vector<uint8_t>{0, 0, 0}) && rows.has_before() == (std::vector<uint8_t>{0, 0, 0}));
}

TEST(changes_have_old_rows_and_new_ones) {
  UsualRows rows({"a"}, true);
  CHECK(rows.add(R"({"before":null,"after":{"a":1},"source":{"a":9},"op":"c"})"));
  CHECK(rows.add(R"({"op":"u","before":{"a":1,"b":2},"after":{"a":2}})"));
  CHECK(rows.add(R"({"op":"d","before":{"b":2},"after":null})") && rows.add(R"({"op":"u","after":{"a":3}})"));
  CHECK(rows.add(R"({"a":4,"__op":"r"})") && rows.add(R"({"a":5,"__deleted":"true","__op":"d"})"));
  CHECK(rows.kinds() == (std::vector<uint8_t>{0, 1, 2, 1, 0, 2}));
  CHECK(rows.has_before() == (std::vector<uint8_t>{0, 1, 1, 0, 0, 1}));
  CHECK(rows.after()[0].integers == (std::vector<int64_t>{1, 2, 0, 3, 4, 0}));
  CHECK(rows.after()[0].valid == (std::vector<uint8_t>{1, 1, 0, 1, 1, 0}));
  CHECK(rows.before()[0].integers == (std::vector<int64_t>{0, 1, 0, 0, 0, 5}));
  CHECK(rows.before()[0].valid == (std::vector<uint8_t>{0, 1, 0, 0, 0, 1}));
}

TEST(unusual_rows_are_for_another_reader) {
  CHECK(is_read(R"({"a":1})") && is_read(R"({"a":1})", false) && is_read(R"({"op":"c","after":{"a":"x"}})"));
  for (const char* message :
       {R"({"b":1})", R"({"a":[1]})", R"({"a":{}})", R"({"a":1234567890123456789})", R"({"a":-0})", R"({"a":1e999})",
        R"({"a":"__debezium_unavailable_value"})", R"({"a":1,"a":2})", "[]", ""}) {
    CHECK(!is_read(message) && !is_read(message, false));
  }
  for (const char* message :
       {R"({"op":"t","source":{}})", R"({"op":"m","after":null})", R"({"op":["c"],"after":{"a":1}})",
        R"({"op":"c","after":null})", R"({"op":"c","after":[1]})", R"({"op":"c","after":{}})",
        R"({"op":"d","before":null})", R"({"op":"u","before":1,"after":{"a":1}})", R"({"a":1,"__op":"t"})",
        R"({"a":1,"__deleted":1})", R"({"a":1,"schema":null,"payload":{"a":1}})",
        R"({"op":"c","op":"d","after":{}})"}) {
    CHECK(!is_read(message));
  }
}

TEST(values_of_a_column_are_of_one_kind) {
  for (const char* other : {"\"x\"", "true", "9007199254740993.5"}) {
    UsualRows rows({"a"}, false);
    CHECK(rows.add(R"({"a":9007199254740993})") && !rows.add("{\"a\":" + std::string(other) + "}"));
  }
  UsualRows rows({"a"}, false);
  CHECK(rows.add(R"({"a":0.5})") && rows.add(R"({"a":9007199254740992})") && !rows.add(R"({"a":9007199254740993})"));
}

}  // namespace livegnn::usual_rows_test
