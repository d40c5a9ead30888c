#include "base/versions.h"

namespace incast::base {
namespace {

std::string text_of(std::optional<Versions> versions) {
    if (!versions) return "an unknown version";
    if (versions->is_one()) return "version " + std::to_string(versions->newest);
    return "versions " + std::to_string(versions->oldest) + " to " + std::to_string(versions->newest);
}

std::string in_brackets(std::string_view program) {
    return program.empty() ? "" : " (Incast " + std::string(program) + ")";
}

}  // namespace

std::uint32_t program_number() {
    return std::uint32_t{INCAST_MAJOR} << 16U | std::uint32_t{INCAST_MINOR} << 8U | std::uint32_t{INCAST_PATCH};
}

std::string program_text(std::uint32_t number) {
    if (number == 0) return "";
    return std::to_string(number >> 16U) + "." + std::to_string(number >> 8U & 0xffU) + "." +
           std::to_string(number & 0xffU);
}

std::string no_common_version(std::string_view protocol, std::optional<Versions> theirs, std::string_view their_program,
                              Versions ours) {
    return "it speaks " + text_of(theirs) + " of " + std::string(protocol) + in_brackets(their_program) +
           ", this one " + text_of(ours) + in_brackets(program_text(program_number()));
}

}  // namespace incast::base
