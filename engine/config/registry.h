// A family of things that configs choose by name: layers, losses, metrics, optimizers, schedules,
// data sets, transforms or networks.
//
// A kind is a struct. Its `table` has the kind's name and options; its other members create the
// layer, the loss or the like. Each kind has a function NAME_FAMILY() in its own source file. The
// kinds.h of the family declares and lists these functions, and its registry.cpp creates the
// Registry.
#pragma once

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/fields.h"

namespace dpt {

/// The kinds of a family, in the order of its kinds.h. Never changes, so that threads may share it.
template <class Kind>
class Registry {
 public:
  /// `what`, `hints` and `tag` are those of VariantTable.
  Registry(std::string what, std::vector<Kind> kinds, TextPairs hints, std::string tag = "type")
      : kinds_(std::move(kinds)), table_{std::move(what), std::move(tag), {}, std::move(hints)} {
    for (const Kind& kind : kinds_) table_.alternatives.push_back(kind.table);
  }
  // Not copyable, because fields keep the address of the table.
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  auto begin() const { return kinds_.begin(); }
  auto end() const { return kinds_.end(); }
  const VariantTable& table() const { return table_; }

  /// Returns the kind with that name, or null.
  const Kind* find(const std::string& name) const {
    const auto kind =
        std::find_if(begin(), end(), [&](const Kind& each) { return each.table->name == name; });
    return kind == end() ? nullptr : &*kind;
  }
  /// Returns the kind with that name. REQUIRES: the kind exists. (The reader rejects other names.)
  const Kind& at(const std::string& name) const {
    const Kind* kind = find(name);
    assert(kind && "no kind has this name");
    return *kind;
  }
  /// Returns a choice of that kind with the defaults of its options.
  Variant with_defaults(const std::string& name) const {
    const ObjectTable* table = at(name).table;
    return {table->name, {}, table, table->make()};
  }

 private:
  std::vector<Kind> kinds_;
  VariantTable table_;
};

}  // namespace dpt
