// Reads a launcher's description of a process from variables of its environment, with errors that
// name the launcher and the variable.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/processes/environment.h"
#include "engine/processes/world.h"

namespace dpt::launchers {

/// Number of ports that every process tries, one after the other.
inline constexpr int kPortCount = 8;
inline constexpr int kLastPort = 65535;

bool is_set(const Environment& environment, const char* name);
/// Returns the value, or an empty string if the variable is not set.
std::string env_text(const Environment& environment, const char* name);

/// Returns `text` as a whole number if it consists of digits only, otherwise nothing.
std::optional<std::int64_t> number_in(std::string_view text);

/// Returns the number in a variable. REQUIRES: it is set. `who` names the launcher.
int env_number(const Environment& environment, const char* who, const char* name, int least,
               int most = std::numeric_limits<int>::max());

/// Throws if some of `names` are not set; `advice` states the remedy.
void check_all_set(const Environment& environment, const char* who,
                   const std::vector<const char*>& names, const std::string& advice);
bool any_set(const Environment& environment, std::initializer_list<const char*> names);

/// Variables in which a launcher states the index of a process and the number of processes.
struct PlaceVariables {
  const char *rank, *size, *local_rank, *local_size;
};

/// Returns true if only some of the variables are set, and they can only be those of a single
/// process: sizes of 1, indices of 0. They are leftovers of a shell or a script. A rank without a
/// size is not such a leftover, because it says nothing about the size.
bool is_leftover_of_one(const Environment& environment, const PlaceVariables& names);

/// Throws unless the index is below the size (check_below), or unless the local size is at most the
/// size (check_local_size). The names are those of the variables, for the error.
void check_below(const char* who, const char* index_name, int index, const char* size_name,
                 int size);
void check_local_size(const char* who, const char* local_name, int local_size,
                      const char* size_name, int size);

/// Reads and checks the place of this process, among the processes of this machine or among all.
void read_local_place(World& world, const Environment& environment, const char* who,
                      const PlaceVariables& names);
void read_place(World& world, const Environment& environment, const char* who,
                const PlaceVariables& names);

/// Reads HOST:PORT, or [ADDRESS]:PORT for an IPv6 address. `option` names the source of the text.
void read_coordinator(World& world, const char* option, const std::string& text);

/// Returns the block of ports that every process of a job chooses. Two jobs get the same block or
/// disjoint ones.
std::vector<int> ports_of(const World& world);
/// Sets the coordinator to the address in DPT_COORDINATOR, or to the loopback address if all
/// processes are on this machine. Returns false if neither applies.
bool set_coordinator(World& world, const Environment& environment);

/// Returns true if the name or address is that of the loopback interface.
bool is_this_machine(const std::string& host);

}  // namespace dpt::launchers
