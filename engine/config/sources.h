// Sources of a config's tree: the file, the files that it extends, and the command line.
#pragma once

#include <string>
#include <vector>

#include "engine/config/issue.h"
#include "engine/config/spec_tables.h"
#include "engine/config/yaml_tree.h"

namespace dpt {

/// Returns the text of a file. Throws ErrorKind::usage if it cannot be read.
std::string read_config_text(const std::string& file);

/// Parses `text`, merges it over what it extends, applies the overrides, and creates
/// model.layers from the zoo and the patches. `files` receives the files in the order in which
/// their issues are listed. With `stored`, first replaces former names of keys by the present ones.
YamlNode load_tree(const SpecTables& tables, const Catalog& catalog, const std::string& text,
                   const std::string& file, const std::vector<std::string>& overrides, bool stored,
                   std::vector<std::string>& files, std::vector<ConfigIssue>& issues);

/// Loads the tree of a config when only its data section is needed. Leaves the model unchanged.
YamlNode load_data_tree(const SpecTables& tables, const std::string& text, const std::string& file,
                        const std::vector<std::string>& overrides, std::vector<std::string>& files,
                        std::vector<ConfigIssue>& issues);

}  // namespace dpt
