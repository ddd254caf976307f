#include "json/fields.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "testing/testing.h"

namespace livegnn::fields_test {
namespace {

bool is_read(std::string_view text) { return Fields().read(text); }

std::string characters(std::string_view quoted) {
  std::vector<uint8_t> bytes;
  add_characters(quoted, &bytes);
  return {bytes.begin(), bytes.end()};
}

std::string repeated(std::string_view text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

TEST(fields_are_the_texts_of_values) {
  Fields fields;
  CHECK(fields.read(" {\"a\" : 1 ,\"b\":{\"c\":[1,{}],\"d\":\"}\"} , \"e\":null} "));
  CHECK(fields.all().size() == 3);
  CHECK(fields.find("a") == "1" && fields.find("b") == "{\"c\":[1,{}],\"d\":\"}\"}" && fields.find("e") == "null");
  CHECK(fields.find("c").empty() && fields.find("").empty());
  CHECK(fields.read("{}") && fields.all().empty());
}

TEST(a_hint_is_only_a_hint) {
  Fields fields;
  CHECK(fields.read(R"({"a":1,"b":2})"));
  for (const size_t wrong : {size_t{0}, size_t{1}, size_t{2}, size_t{100}}) {
    size_t hint = wrong;
    CHECK(fields.find("b", &hint) == "2" && hint == 1);
  }
}

TEST(each_name_stands_once_whatever_was_read_before) {
  Fields fields;
  CHECK(fields.read(R"({"a":1,"b":2,"c":3})"));
  for (const char* twice : {R"({"a":1,"a":2})", R"({"a":1,"b":2,"b":3})", R"({"a":1,"b":2,"c":3,"a":4})",
                            R"({"b":1,"a":2,"b":3})", R"({"x":1,"b":2,"x":3})"}) {
    CHECK(!fields.read(twice));
  }
  CHECK(fields.read(R"({"c":1,"b":2,"a":3,"d":4})") && !fields.read(R"({"c":1,"b":2,"a":3,"d":4,"b":5})"));
  CHECK(!is_read(R"({"a":{"b":1,"b":2}})") && is_read(R"({"a":{"b":1},"b":{"a":{"b":1,"a":1}}})"));
}

TEST(what_is_no_object_of_json_is_not_read) {
  for (const char* wrong : {"",
                            "1",
                            "[]",
                            "{",
                            "{\"a\"}",
                            "{\"a\":}",
                            "{\"a\":1,}",
                            "{\"a\":1}x",
                            "{\"a\":01}",
                            "{\"a\":1.}",
                            "{\"a\":.1}",
                            "{\"a\":1e}",
                            "{\"a\":+1}",
                            "{\"a\":NaN}",
                            "{\"a\":nul}",
                            "{\"a\":tru}",
                            "{\"a\":\"}",
                            "{\"a\":\"\n\"}",
                            "{\"a\":\"\\x\"}",
                            "{\"a\":\"\\u12g4\"}",
                            "{\"a\":\"\\ud800\"}",
                            "{\"a\":\"\\u123\"}",
                            "{\"a\":[1,]}",
                            "{\"a\":[1 2]}",
                            "{\"a\":{\"b\":1,}}",
                            "{a:1}",
                            "{\"a\":\"\xc3\"}",
                            "{\"a\":\"\xc0\xaf\"}",
                            "{\"a\":\"\xed\xa0\x80\"}",
                            "{\"a\":\"\xf4\x90\x80\x80\"}",
                            "{\"a\":\"\xff\"}",
                            "{\"\xc3\xa4\":1}"}) {
    CHECK(!is_read(wrong));
  }
  CHECK(is_read("{\"a\":\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\\u00e4\\n\x7f\",\"b\":[-1.5e+10,true,false,null,[]]}"));
}

TEST(limits_are_limits) {
  CHECK(is_read("{\"a\":" + repeated("[", 15) + repeated("]", 15) + "}"));
  CHECK(!is_read("{\"a\":" + repeated("[", 16) + repeated("]", 16) + "}"));
  CHECK(is_read("{\"a\":" + repeated("9", 100) + "}") && !is_read("{\"a\":" + repeated("9", 101) + "}"));
  CHECK(is_read("{\"a\":1e99}") && !is_read("{\"a\":1e100}"));
}

TEST(characters_are_what_escapes_stand_for) {
  CHECK(characters(R"("a\"\\\/\b\f\n\r\tz")") == "a\"\\/\b\f\n\r\tz");
  CHECK(characters(R"("\u0041\u00e4\u20ac")") == "A\xc3\xa4\xe2\x82\xac" && characters("\"\"").empty());
}

}  // namespace livegnn::fields_test
