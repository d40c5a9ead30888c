// Where modules are, and how they are loaded.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <incast/result.h>

#include "transport/module.h"

namespace incast::transport {

/// INCAST_TRANSPORT_MODULES if that is set. Else the folder beside this program that its build laid down; of a library,
/// which any program may load, the folder `incast` beside it, or beside the folder that it is in.
std::filesystem::path module_folder();

/// Loads incast-transport-NAME.so, once; it stays. Error: one line that says what is missing, and which package brings
/// it. The folder is read when a module of that name is first asked for.
Result<const Descriptor*> load_module(std::string_view name, std::string_view package);

/// Names of the modules that are in the folder, in order.
std::vector<std::string> modules_there();

}  // namespace incast::transport
