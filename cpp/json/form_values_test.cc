#include "json/form_values.h"

#include <string>

#include "testing/testing.h"

namespace livegnn::form_values_test {
namespace {

template <class Take, class Value>
bool is_taken(const std::string& text, const Take& take, Value* value) {
  FormReader reader(text);
  return take(reader, value) && reader.ended();
}

}  // namespace

TEST(ids_are_integers_or_plain_texts) {
  FormId number, text;
  CHECK(is_taken(" 17", take_id, &number) && number.number == 17 && !number.is_text());
  const std::string longest(1024, 'a'), quoted = " \"" + longest + '"';
  CHECK(is_taken(quoted, take_id, &text) && text.text == longest && text.is_text());
  for (const std::string& other : {std::string("\"\""), "\"a" + longest + '"', std::string("\"\\n\""),
                                   std::string("-1"), std::string("1.0"), std::string("07"), std::string("a")}) {
    FormId id;
    CHECK(!is_taken(other, take_id, &id));
  }
}

TEST(floats_are_numbers_that_float32_holds) {
  float number;
  CHECK(is_taken(" 0.1", take_float, &number) && number == 0.1f);
  CHECK(is_taken("-3e38", take_float, &number) && number == -3e38f);
  for (const char* other : {"3.5e38", "-1e39", "null", "\"1\"", ""}) CHECK(!is_taken(other, take_float, &number));
}

TEST(rows_are_lists_of_floats) {
  std::vector<float> row = {5};
  CHECK(is_taken(" [ 1 , -2e0]", take_row, &row) && row == (std::vector<float>{5, 1, -2}));
  for (const char* other : {"[]", "[1,]", "[1", "[[1]]", "1"}) CHECK(!is_taken(other, take_row, &row));
}

TEST(edge_types_have_three_names) {
  std::array<std::string_view, 3> names;
  CHECK(is_taken(" [\"a\", \"to\" ,\"b\"]", take_edge_type, &names) && names[1] == "to" && names[2] == "b");
  for (const char* other : {R"(["a","b"])", R"(["a","b","c","d"])", R"(["a",1,"c"])", "\"a\""}) {
    CHECK(!is_taken(other, take_edge_type, &names));
  }
}

}  // namespace livegnn::form_values_test
