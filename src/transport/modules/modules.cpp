#include "transport/modules/modules.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <system_error>

#include <dlfcn.h>
#include <link.h>

extern "C" {
const char INCAST_ABI_SYMBOL = 0;
}

namespace incast::transport {
namespace {

constexpr std::string_view prefix = "incast-transport-";
constexpr std::string_view suffix = ".so";
#define INCAST_TEXT_2(word) #word
#define INCAST_TEXT(word) INCAST_TEXT_2(word)
constexpr std::string_view own_abi = INCAST_TEXT(INCAST_ABI_SYMBOL);

/// The shared library that this is part of; empty: it is part of the program.
std::filesystem::path own_library() {
    static const char of_here = 0;
    Dl_info place{};
    link_map* object = nullptr;
    if (::dladdr1(&of_here, &place, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0 || object == nullptr)
        return {};
    return object->l_name;  // the program's own is empty
}

/// The word that begins with `start` in `text`; empty: there is none.
std::string word_in(std::string_view text, std::string_view start) {
    const std::size_t begin = text.find(start);
    if (begin == std::string_view::npos) return {};
    return std::string(text.substr(begin, text.find_first_of(" ,:;()'\"", begin) - begin));
}

std::string refusal(std::string_view name, const std::filesystem::path& file, std::string_view package,
                    std::string_view said) {
    const std::string begin = "transport " + std::string(name) + ": ";
    const std::string brings = package.empty() ? "" : "; the package " + std::string(package) + " brings it";
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) {
        return begin + "its module " + file.string() + " is not there" + brings;
    }
    if (const std::string abi = word_in(said, "incast_abi_"); !abi.empty()) {
        return begin + file.string() + " is of another build: it asks for " + abi + ", this program has " +
               std::string(own_abi) + "; install both from one build";
    }
    if (said.find("cannot open shared object file") != std::string_view::npos) {
        return begin + "it needs the library " + std::string(said.substr(0, said.find(':'))) +
               ", which is not installed" + brings;
    }
    return begin + "its module cannot be loaded: " + std::string(said);
}

Result<const Descriptor*> load(std::string_view name, std::string_view package) {
    const std::filesystem::path file = module_folder() / std::string(prefix).append(name).append(suffix);
    // Modules look for the symbol of this build among what everybody sees. A library that somebody else loaded for
    // itself alone, as Python does, is not seen there yet.
    if (const std::filesystem::path own = own_library(); !own.empty())
        (void)dlopen(own.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    // With RTLD_NOW the symbols that are missing are told here, before a constructor of the module runs.
    void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* const said = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
        return Error{refusal(name, file, package, said != nullptr ? said : "no reason was given")};
    }
    const auto* const module = static_cast<const Module*>(dlsym(handle, "incast_transport_module"));
    if (module == nullptr) {
        return Error{refusal(name, file, package, "it has no symbol incast_transport_module")};
    }
    const Descriptor* const descriptor = module->descriptor;
    if (descriptor->name != name || descriptor->make == nullptr) {
        return Error{refusal(name, file, package, "it holds the transport " + std::string(descriptor->name))};
    }
    return descriptor;
}

bool holds_modules(const std::filesystem::path& folder) {
    std::error_code failed;
    return std::ranges::any_of(std::filesystem::directory_iterator(folder, failed),
                               [](const auto& entry) { return entry.path().filename().string().starts_with(prefix); });
}

}  // namespace

std::filesystem::path module_folder() {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing sets a variable while threads run
    const char* const given = std::getenv("INCAST_TRANSPORT_MODULES");
    if (given != nullptr && *given != '\0') return given;
    std::error_code failed;
    if (const std::filesystem::path own = own_library(); !own.empty()) {
        const std::filesystem::path folder = std::filesystem::weakly_canonical(own, failed).parent_path();
        const std::filesystem::path beside = folder / "incast";
        if (std::filesystem::exists(beside, failed)) return beside;
        // Where each architecture has a folder of its own for libraries, modules lie in the one above.
        const std::filesystem::path above = folder.parent_path() / "incast";
        if (std::filesystem::exists(above, failed)) return above;
        // In a wheel all lie in one folder.
        return holds_modules(folder) ? folder : beside;
    }
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
    return (program.parent_path() / INCAST_MODULE_FOLDER).lexically_normal();
}

Result<const Descriptor*> load_module(std::string_view name, std::string_view package) {
    static std::mutex mutex;
    static std::map<std::string, const Descriptor*, std::less<>> loaded;
    const std::lock_guard guard(mutex);
    if (const auto found = loaded.find(name); found != loaded.end()) return found->second;
    Result<const Descriptor*> descriptor = load(name, package);
    if (descriptor) loaded.emplace(name, *descriptor);
    return descriptor;
}

std::vector<std::string> modules_there() {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(module_folder(), ignored)) {
        const std::string file = entry.path().filename().string();
        if (file.size() > prefix.size() + suffix.size() && file.starts_with(prefix) && file.ends_with(suffix)) {
            names.push_back(file.substr(prefix.size(), file.size() - prefix.size() - suffix.size()));
        }
    }
    std::ranges::sort(names);
    return names;
}

}  // namespace incast::transport
