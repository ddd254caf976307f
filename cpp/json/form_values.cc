#include "json/form_values.h"

#include <cmath>

namespace livegnn {
namespace {

constexpr size_t kLongestText = 1024;   // of an id
constexpr double kFloat32End = 3.4e38;  // the rest of float32 is unusual

}  // namespace

bool take_id(FormReader& reader, FormId* id) {
  reader.skip_blanks();
  if (reader.take('"')) {
    return reader.take_text(&id->text, is_plain) && reader.take('"') && !id->text.empty() &&
           id->text.size() <= kLongestText;
  }
  std::string_view digits;
  return reader.take_number(&id->number, &digits);
}

bool take_float(FormReader& reader, float* number) {
  double exact;
  if (!take_real(reader, &exact) || !(std::abs(exact) < kFloat32End)) return false;
  *number = static_cast<float>(exact);
  return true;
}

bool take_row(FormReader& reader, std::vector<float>* row) {
  if (!reader.take_token('[')) return false;
  do {
    float number;
    if (!take_float(reader, &number)) return false;
    row->push_back(number);
  } while (reader.take_token(','));
  return reader.take_token(']');
}

bool take_edge_type(FormReader& reader, std::array<std::string_view, 3>* names) {
  return reader.take_token('[') && reader.take_quoted(&(*names)[0]) && reader.take_token(',') &&
         reader.take_quoted(&(*names)[1]) && reader.take_token(',') && reader.take_quoted(&(*names)[2]) &&
         reader.take_token(']');
}

}  // namespace livegnn
