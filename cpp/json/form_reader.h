// Reads JSON of a usual form from its begin to its end, without objects of any kind.
//
// Invariants: never reads past the end. Each method that takes something returns whether it stands here, and is behind
// it if so; where it is not, the reader may be anywhere, and its user gives the text up. Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace livegnn {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Of a text of JSON, as it stands.
inline bool is_plain(char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; }

class FormReader {
 public:
  static constexpr size_t kMostDigits = 18;  // all such numbers are int64

  // in_line: a line break is no blank.
  explicit FormReader(std::string_view text, bool in_line = false)
      : at_(text.data()), end_(text.data() + text.size()), in_line_(in_line) {}
  bool ended() const { return at_ == end_; }
  const char* at() const { return at_; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }
  void skip(size_t bytes) { at_ += bytes; }  // at most those that are left
  void skip_blanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || (*at_ == '\n' && !in_line_) || *at_ == '\r')) ++at_;
  }
  bool take(char what) {
    if (at_ == end_ || *at_ != what) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view what) {
    if (static_cast<size_t>(end_ - at_) < what.size() || std::memcmp(at_, what.data(), what.size()) != 0) return false;
    at_ += what.size();
    return true;
  }
  bool take_token(char what) {
    skip_blanks();
    return take(what);
  }
  bool take_token(std::string_view what) {
    skip_blanks();
    return take(what);
  }
  // Digits, perhaps none.
  std::string_view take_digits() {
    const char* const first = at_;
    while (at_ != end_ && is_digit(*at_)) ++at_;
    return {first, static_cast<size_t>(at_ - first)};
  }
  // A number without a sign, and without zeros before it.
  bool take_number(int64_t* number, std::string_view* text) {
    *text = take_digits();
    if (text->empty() || text->size() > kMostDigits || (text->size() > 1 && text->front() == '0')) return false;
    *number = 0;
    for (const char c : *text) *number = 10 * *number + (c - '0');
    return true;
  }
  template <class IsLetter>
  bool take_text(std::string_view* text, const IsLetter& is_letter) {
    const char* const first = at_;
    while (at_ != end_ && is_letter(*at_)) ++at_;
    *text = {first, static_cast<size_t>(at_ - first)};
    return true;
  }
  // A plain text in quotes, after blanks.
  bool take_quoted(std::string_view* text) { return take_token('"') && take_text(text, is_plain) && take('"'); }

 private:
  const char* at_;
  const char* end_;
  const bool in_line_;
};

// A number as float64, after blanks; whole ones have at most 15 digits.
bool take_real(FormReader& reader, double* number);

}  // namespace livegnn
