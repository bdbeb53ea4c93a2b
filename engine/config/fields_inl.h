// Template bodies of fields.h.
#pragma once

#include <type_traits>

namespace dpt {
namespace fields_detail {

template <class T>
struct IsOptional : std::false_type {
  using Value = T;
};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {
  using Value = T;
};

template <class T>
constexpr FieldType type_of() {
  if constexpr (std::is_same_v<T, bool>)
    return FieldType::boolean;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return FieldType::integer;
  else if constexpr (std::is_same_v<T, double>)
    return FieldType::number;
  else if constexpr (std::is_same_v<T, std::string>)
    return FieldType::string;
  else if constexpr (std::is_enum_v<T>)
    return FieldType::choice;
  else if constexpr (std::is_same_v<T, Size2>)
    return FieldType::size2;
  else if constexpr (std::is_same_v<T, std::vector<double>>)
    return FieldType::numbers;
  else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>)
    return FieldType::integers;
  else if constexpr (std::is_same_v<T, TextPairs>)
    return FieldType::texts;
  else {
    static_assert(std::is_same_v<T, std::vector<std::string>>, "no FieldType for this member");
    return FieldType::strings;
  }
}

/// Converts a member's value to data; an enum becomes its name. from_plain is the inverse.
template <class T>
PlainValue to_plain(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(name_of(value));
  } else {
    return value;
  }
}
template <class T>
T from_plain(const PlainValue& value) {
  if constexpr (std::is_enum_v<T>) {
    return enum_of<T>(std::get<std::string>(value)).value();
  } else {
    return std::get<T>(value);
  }
}

}  // namespace fields_detail

inline Field Field::required() && {
  is_required = true;
  return std::move(*this);
}
inline Field Field::required_of_labels() && {
  is_required = is_of_labels = true;
  return std::move(*this);
}
inline Field Field::given_by_data() && {
  is_required = data_gives = true;
  return std::move(*this);
}
inline Field Field::range(double low, double high) && {
  min = low;
  max = high;
  return std::move(*this);
}
inline Field Field::at_least(double low) && {
  min = low;
  return std::move(*this);
}
inline Field Field::above(double low) && {
  min = low;
  min_is_exclusive = true;
  return std::move(*this);
}
template <class E>
Field Field::only(std::initializer_list<E> values) && {
  choices.clear();
  for (const E value : values) choices.emplace_back(name_of(value));
  return std::move(*this);
}
inline Field Field::changeable() && {
  is_changeable = true;
  return std::move(*this);
}
inline Field Field::formerly(std::string old) && {
  former_name = std::move(old);
  return std::move(*this);
}
inline Field Field::stored_as(PlainValue value) && {
  stored_default = std::move(value);
  return std::move(*this);
}
template <class S, class T>
Field Field::follows(std::string from, T (*make)(const S&)) && {
  leader = std::move(from);
  follow = [make](const void* owner) {
    return fields_detail::to_plain(make(*static_cast<const S*>(owner)));
  };
  return std::move(*this);
}
inline Field Field::items(std::size_t low, std::size_t high) && {
  min_items = low;
  max_items = high;
  return std::move(*this);
}
inline Field Field::or_one() && {
  one_is_list = true;
  return std::move(*this);
}
inline Field Field::zero_as(std::string word) && {
  zero_word = std::move(word);
  return std::move(*this);
}
inline Field Field::or_plain(std::string key) && {
  plain_key = std::move(key);
  return std::move(*this);
}
inline Field Field::or_remote(std::string word) && {
  path_word = std::move(word);
  takes_url = true;
  return std::move(*this);
}
inline Field Field::or_word(std::string text) && {
  size_word = std::move(text);
  return std::move(*this);
}

template <class S, class T>
Field field(const char* name, T S::*member, const char* doc) {
  using Optional = fields_detail::IsOptional<T>;
  using Value = typename Optional::Value;
  Field f;
  f.name = name;
  f.doc = doc;
  f.type = fields_detail::type_of<Value>();
  f.is_optional = Optional::value;
  if constexpr (std::is_enum_v<Value>) f.choices = all_names<Value>();
  f.get = [member](const void* object) -> PlainValue {
    const T& value = static_cast<const S*>(object)->*member;
    if constexpr (Optional::value) {
      if (!value) return std::monostate{};
      return fields_detail::to_plain(*value);
    } else {
      return fields_detail::to_plain(value);
    }
  };
  f.set = [member](void* object, const PlainValue& value) {
    T& to = static_cast<S*>(object)->*member;
    if constexpr (Optional::value) {
      if (std::holds_alternative<std::monostate>(value)) {
        to.reset();
        return;
      }
    }
    to = fields_detail::from_plain<Value>(value);
  };
  return f;
}

template <class S>
Field path_field(const char* name, std::string S::*member, const char* doc) {
  Field f = field(name, member, doc);
  f.type = FieldType::path;
  f.is_changeable = true;
  return f;
}

template <class S, class T>
Field object_field(const char* name, T S::*member, const ObjectTable& table, const char* doc) {
  using Optional = fields_detail::IsOptional<T>;
  Field f;
  f.name = name;
  f.doc = doc;
  f.type = FieldType::object;
  f.is_optional = Optional::value;
  f.object = &table;
  f.nested = [member](void* object) -> void* {
    T& to = static_cast<S*>(object)->*member;
    if constexpr (Optional::value) {
      if (!to) to.emplace();
      return &*to;
    } else {
      return &to;
    }
  };
  f.nested_const = [member](const void* object) -> const void* {
    const T& from = static_cast<const S*>(object)->*member;
    if constexpr (Optional::value) {
      return from ? static_cast<const void*>(&*from) : nullptr;
    } else {
      return &from;
    }
  };
  return f;
}

template <class S, class T>
Field objects_field(const char* name, std::vector<T> S::*member, const ObjectTable& table,
                    const char* doc) {
  Field f;
  f.name = name;
  f.doc = doc;
  f.type = FieldType::objects;
  f.object = &table;
  f.append = [member](void* object) -> void* {
    return &(static_cast<S*>(object)->*member).emplace_back();
  };
  f.elements = [member](const void* object) {
    std::vector<const void*> all;
    for (const T& element : static_cast<const S*>(object)->*member) all.push_back(&element);
    return all;
  };
  return f;
}

template <class S>
Field variant_field(const char* name, Variant S::*member, const VariantTable& table,
                    const char* doc) {
  Field f;
  f.name = name;
  f.doc = doc;
  f.type = FieldType::variant;
  f.variants = &table;
  f.one = [member](void* object) { return &(static_cast<S*>(object)->*member); };
  return f;
}

template <class S>
Field variants_field(const char* name, std::vector<Variant> S::*member, const VariantTable& table,
                     const char* doc) {
  Field f;
  f.name = name;
  f.doc = doc;
  f.type = FieldType::variants;
  f.variants = &table;
  f.list = [member](void* object) { return &(static_cast<S*>(object)->*member); };
  return f;
}

template <class S>
ObjectTable object_table(const char* name, const char* doc, std::initializer_list<Field> fields,
                         std::string (*check)(const S&)) {
  ObjectTable table;
  table.name = name;
  table.doc = doc;
  table.fields = fields;
  table.make = [] { return std::static_pointer_cast<void>(std::make_shared<S>()); };
  if (check) {
    table.check = [check](const void* object) { return check(*static_cast<const S*>(object)); };
  }
  return table;
}

}  // namespace dpt
