// The fields of one object of JSON, each value as its text: whole, valid, and with each name once.
//
// Invariants: names are printable ASCII without escapes; objects and lists are nested at most 16 deep, an object has at
// most 4,096 fields; texts are UTF-8, and escapes name no half of a character. An object beyond these limits is not
// read, though it may be valid. The texts of an object are valid while its text is. Thread safety: none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "json/form_reader.h"

namespace livegnn {

struct Field {
  std::string_view name, value;
};

class Fields {
 public:
  // Whether `text` is one object. If not, the fields are any.
  bool read(std::string_view text);
  const std::vector<Field>& all() const { return fields_; }
  // The text of a value, empty if there is none. hint: a place where it may be, and receives its place.
  std::string_view find(std::string_view name, size_t* hint) const;
  std::string_view find(std::string_view name) const;

 private:
  bool is_new(std::string_view name, size_t place);

  std::vector<Field> fields_;
  std::vector<std::string> order_;        // the names of an object that was read, all different
  bool in_order_ = true;                  // the names so far are those of `order_`
  std::vector<std::string_view> nested_;  // names of the objects around a value
};

// Adds the characters that a text in quotes stands for. The text is one that `Fields` has read.
void add_characters(std::string_view quoted, std::vector<uint8_t>* characters);

// Whether the text of a number that `Fields` has read has neither point nor exponent.
bool is_whole(std::string_view number);

}  // namespace livegnn
