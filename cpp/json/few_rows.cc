#include "json/few_rows.h"

#include "json/form_reader.h"
#include "json/form_writer.h"

namespace livegnn {
namespace {

bool is_unreserved(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '~' ||
         c == '-';
}

// Reads ids with commas between them; `take_id` reads one.
template <class TakeId, class TakeComma>
bool take_ids(FewIds* ids, const TakeId& take_id, const TakeComma& take_comma) {
  do {
    if (ids->count == kFewRows || !take_id(&ids->numbers[ids->count], &ids->texts[ids->count])) return false;
    ++ids->count;
  } while (take_comma());
  return true;
}

}  // namespace

std::optional<FewIds> read_body(std::string_view body, bool are_texts) {
  FormReader reader(body);
  std::optional<FewIds> found(std::in_place);
  const auto take_id = [&](int64_t* number, std::string_view* text) {
    reader.skip_blanks();
    if (!are_texts) return reader.take_number(number, text);
    return reader.take("\"") && reader.take_text(text, is_plain) && reader.take("\"");
  };
  const bool ids = reader.take_token("{") && reader.take_token("\"ids\"") && reader.take_token(":") &&
                   reader.take_token("[") && take_ids(&*found, take_id, [&] { return reader.take_token(","); }) &&
                   reader.take_token("]");
  if (!ids) return {};
  if (reader.take_token(",")) {
    std::string_view text;
    if (!reader.take_token("\"min_seq\"") || !reader.take_token(":")) return {};
    reader.skip_blanks();
    if (!reader.take_number(&found->min_seq, &text)) return {};
  }
  if (!reader.take_token("}")) return {};
  reader.skip_blanks();
  if (!reader.ended()) return {};
  return found;
}

std::optional<FewIds> read_parameters(std::string_view parameters, bool are_texts) {
  FormReader reader(parameters);
  std::optional<FewIds> found(std::in_place);
  const auto take_id = [&](int64_t* number, std::string_view* text) {
    if (!are_texts) return reader.take_number(number, text);
    return reader.take_text(text, is_unreserved) && !text->empty();
  };
  const bool right = reader.take("ids=") && take_ids(&*found, take_id, [&] { return reader.take(","); });
  if (!right) return {};
  if (reader.take("&min_seq=")) {
    std::string_view text;
    if (!reader.take_number(&found->min_seq, &text)) return {};
  }
  if (!reader.ended()) return {};
  return found;
}

std::string write_answer(int64_t seq, const FewIds& ids, bool are_texts, std::span<const float> rows) {
  std::string out;
  out.reserve(64 + ids.count * 24 + rows.size() * 14);
  out += "{\"seq\":";
  write_integer(&out, seq);
  out += ",\"ids\":[";
  for (size_t i = 0; i < ids.count; ++i) {
    if (i > 0) out += ',';
    if (are_texts) out += '"';
    out += ids.texts[i];
    if (are_texts) out += '"';
  }
  out += "],\"predictions\":";
  write_rows(&out, rows, ids.count);
  out += '}';
  return out;
}

}  // namespace livegnn
