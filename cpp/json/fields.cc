#include "json/fields.h"

#include <algorithm>
#include <cstdint>

namespace livegnn {
namespace {

constexpr size_t kMostDeep = 16;
constexpr size_t kMostFields = 4096;
constexpr size_t kMostSkipped = 100;  // with an exponent of two digits, no such number is infinite

bool is_between(unsigned char c, unsigned char least, unsigned char most) { return least <= c && c <= most; }

// The bytes of the UTF-8 character that begins here, 0 if none does. left: bytes of the text from here on.
size_t bytes_of_character(const char* at, size_t left) {
  const auto byte = [at](size_t i) { return static_cast<unsigned char>(at[i]); };
  const unsigned char first = byte(0);
  const size_t size = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (size == 0 || size > left) return 0;
  const unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (!is_between(byte(1), least, most)) return 0;
  for (size_t i = 2; i < size; ++i) {
    if (!is_between(byte(i), 0x80, 0xbf)) return 0;
  }
  return size;
}

int digit_of(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The character of four digits from `at` on, -1 for none, and for half of one.
int character_of(const char* at) {
  int number = 0;
  for (size_t i = 0; i < 4; ++i) {
    const int digit = digit_of(at[i]);
    if (digit < 0) return -1;
    number = 16 * number + digit;
  }
  return number >= 0xd800 && number <= 0xdfff ? -1 : number;
}

constexpr std::string_view kEscapes = "\"\\/bfnrt";
constexpr std::string_view kEscaped = "\"\\/\b\f\n\r\t";

// The bytes of the escape that begins at a backslash, 0 if it is none.
size_t bytes_of_escape(const char* at, size_t left) {
  if (left >= 2 && kEscapes.find(at[1]) != std::string_view::npos) return 2;
  return left >= 6 && at[1] == 'u' && character_of(at + 2) >= 0 ? 6 : 0;
}

bool skip_text(FormReader& reader) {
  if (!reader.take('"')) return false;
  while (true) {
    std::string_view plain;
    reader.take_text(&plain, is_plain);
    if (reader.ended()) return false;
    const char c = *reader.at();
    if (c == '"') return reader.take('"');
    size_t size = 0;
    if (c == '\\') {
      size = bytes_of_escape(reader.at(), reader.left());
    } else if (c == '\x7f') {
      size = 1;
    } else {
      size = bytes_of_character(reader.at(), reader.left());
    }
    if (size == 0) return false;
    reader.skip(size);
  }
}

bool skip_number(FormReader& reader) {
  reader.take('-');
  const std::string_view whole = reader.take_digits();
  if (whole.empty() || whole.size() > kMostSkipped || (whole.size() > 1 && whole.front() == '0')) return false;
  if (reader.take('.') && reader.take_digits().empty()) return false;
  if (!reader.take('e') && !reader.take('E')) return true;
  if (!reader.take('-')) reader.take('+');
  const std::string_view power = reader.take_digits();
  return !power.empty() && power.size() <= 2;
}

// names: of the objects around this value, which has `depth` of them and of lists.
bool skip_value(FormReader& reader, std::vector<std::string_view>* names, size_t depth);

bool skip_object(FormReader& reader, std::vector<std::string_view>* names, size_t depth) {
  if (reader.take_token('}')) return true;
  const size_t first = names->size();
  do {
    std::string_view name;
    if (!reader.take_quoted(&name) || !reader.take_token(':')) return false;
    const auto begin = names->begin() + static_cast<ptrdiff_t>(first);
    if (std::find(begin, names->end(), name) != names->end() || names->size() == kMostFields) return false;
    names->push_back(name);
    if (!skip_value(reader, names, depth)) return false;
  } while (reader.take_token(','));
  names->resize(first);
  return reader.take_token('}');
}

bool skip_list(FormReader& reader, std::vector<std::string_view>* names, size_t depth) {
  if (reader.take_token(']')) return true;
  do {
    if (!skip_value(reader, names, depth)) return false;
  } while (reader.take_token(','));
  return reader.take_token(']');
}

bool skip_value(FormReader& reader, std::vector<std::string_view>* names, size_t depth) {
  reader.skip_blanks();
  if (reader.ended() || depth == kMostDeep) return false;
  switch (*reader.at()) {
    case '"':
      return skip_text(reader);
    case '{':
      return reader.take('{') && skip_object(reader, names, depth + 1);
    case '[':
      return reader.take('[') && skip_list(reader, names, depth + 1);
    case 'n':
      return reader.take("null");
    case 't':
      return reader.take("true");
    case 'f':
      return reader.take("false");
    default:
      return skip_number(reader);
  }
}

void add_utf8(int character, std::vector<uint8_t>* bytes) {
  const auto add = [bytes](int byte) { bytes->push_back(static_cast<uint8_t>(byte)); };
  if (character < 0x80) return add(character);
  if (character < 0x800) {
    add(0xc0 | (character >> 6));
  } else {
    add(0xe0 | (character >> 12));
    add(0x80 | ((character >> 6) & 0x3f));
  }
  add(0x80 | (character & 0x3f));
}

}  // namespace

bool Fields::read(std::string_view text) {
  FormReader reader(text);
  fields_.clear();
  in_order_ = true;
  if (!reader.take_token('{')) return false;
  if (!reader.take_token('}')) {
    do {
      std::string_view name;
      if (!reader.take_quoted(&name) || !reader.take_token(':') || !is_new(name, fields_.size())) return false;
      reader.skip_blanks();
      const char* const begin = reader.at();
      nested_.clear();
      if (!skip_value(reader, &nested_, 1)) return false;
      fields_.push_back({name, {begin, static_cast<size_t>(reader.at() - begin)}});
    } while (reader.take_token(','));
    if (!reader.take_token('}')) return false;
  }
  reader.skip_blanks();
  if (!reader.ended()) return false;
  if (!in_order_) order_.clear();
  for (size_t i = order_.size(); i < fields_.size(); ++i) order_.emplace_back(fields_[i].name);
  return true;
}

// The names of most objects are those of the one before, which are known to be different.
bool Fields::is_new(std::string_view name, size_t place) {
  if (place == kMostFields) return false;
  if (in_order_ && place < order_.size() && order_[place] == name) return true;
  if (in_order_ && place < order_.size()) in_order_ = false;
  return std::none_of(fields_.begin(), fields_.end(), [name](const Field& one) { return one.name == name; });
}

std::string_view Fields::find(std::string_view name, size_t* hint) const {
  if (*hint >= fields_.size() || fields_[*hint].name != name) {
    *hint = 0;
    while (*hint < fields_.size() && fields_[*hint].name != name) ++*hint;
    if (*hint == fields_.size()) return {};
  }
  return fields_[*hint].value;
}

std::string_view Fields::find(std::string_view name) const {
  size_t hint = 0;
  return find(name, &hint);
}

void add_characters(std::string_view quoted, std::vector<uint8_t>* characters) {
  std::string_view rest = quoted.substr(1, quoted.size() - 2);
  while (true) {
    const size_t size = std::min(rest.find('\\'), rest.size());
    characters->insert(characters->end(), rest.begin(), rest.begin() + static_cast<ptrdiff_t>(size));
    if (size == rest.size()) return;
    rest.remove_prefix(size);
    if (rest[1] == 'u') {
      add_utf8(character_of(rest.data() + 2), characters);
      rest.remove_prefix(6);
    } else {
      characters->push_back(static_cast<uint8_t>(kEscaped[kEscapes.find(rest[1])]));
      rest.remove_prefix(2);
    }
  }
}

bool is_whole(std::string_view number) { return number.find_first_of(".eE") == std::string_view::npos; }

}  // namespace livegnn
