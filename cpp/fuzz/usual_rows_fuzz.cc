#include <string>

#include "fuzz/fuzz.h"
#include "json/usual_rows.h"

namespace livegnn {
namespace {

void check(const RowColumn& column, size_t count) {
  const bool is_numbered = column.kind == ColumnKind::integers || column.kind == ColumnKind::truths;
  CHECK(column.valid.size() == count && column.integers.size() == (is_numbered ? count : 0));
  CHECK(column.reals.size() == (column.kind == ColumnKind::reals ? count : 0));
  CHECK(column.ends.size() == (column.kind == ColumnKind::texts ? count + 1 : 1));
  CHECK(static_cast<size_t>(column.ends.back()) == column.texts.size());
}

// Parts of messages.
constexpr std::string_view kParts[] = {"{\"op\":\"c\",\"after\":",
                                       "{\"op\":\"u\",\"before\":",
                                       "\"after\":",
                                       "\"op\":\"d\"",
                                       "\"__deleted\":\"true\"",
                                       "\"source\":{}",
                                       "{\"a\":",
                                       "\"b\":",
                                       "{",
                                       "}",
                                       "[",
                                       "]",
                                       ",",
                                       ":",
                                       "null",
                                       "true",
                                       "1",
                                       "-0.5",
                                       "1e30",
                                       "\"a\"",
                                       "\"",
                                       "\\u00e4",
                                       "\\n",
                                       "\xc3\xa4",
                                       " "};

// Whatever is read, each column has a value for each message.
void rows(fuzz::Input* input) {
  UsualRows rows({"a", "b"}, !input->once_in(3));
  for (size_t count = 1; count < 4; ++count) {
    const std::string bytes = input->text(kParts);
    if (!rows.add(bytes)) return;
    CHECK(rows.kinds().size() == count && rows.has_before().size() == count);
    for (const RowColumn& one : rows.after()) check(one, count);
    for (const RowColumn& one : rows.before()) check(one, count);
  }
}

}  // namespace
}  // namespace livegnn

FUZZ(livegnn::rows)
