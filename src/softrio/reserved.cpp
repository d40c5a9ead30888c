#include "softrio/reserved.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>

namespace incast::softrio {

namespace {

constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t max_bytes = std::uint64_t{1} << 38;
constexpr std::string_view preset = "PHYS_MEM=256M@0x50000000,RSKTD=16M,RDMAD=16M,FXFR=16M,DMATUN=16M";

/// 0: no size. 0x: as the kernel's boot parameters.
std::uint64_t size_of(std::string_view text) {
    std::uint64_t value = 0;
    const bool is_hex = text.starts_with("0x");
    if (is_hex) text.remove_prefix(2);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, is_hex ? 16 : 10);
    if (error != std::errc{} || value > max_bytes) return 0;
    const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
    const int shift = unit == "G" ? 30 : unit == "M" ? 20 : unit == "K" ? 10 : unit.empty() ? 0 : -1;
    if (shift < 0) return 0;
    value <<= shift;
    return value <= max_bytes && value % page_bytes == 0 ? value : 0;
}

}  // namespace

Result<std::vector<Reserved>> parse_reserved(std::string_view text) {
    std::vector<Reserved> all;
    if (text == "none") return all;
    std::uint64_t next = reserved_base;
    while (!text.empty()) {
        const std::string_view one = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), one.size() + 1));
        const std::size_t equals = std::min(one.find('='), one.size());
        const std::string name(one.substr(0, equals));
        const std::string_view value = one.substr(std::min(one.size(), equals + 1));
        const std::size_t at = std::min(value.find_first_of("@$"), value.size());  // $: as in memmap=256M$0x50000000
        const std::uint64_t bytes = size_of(value.substr(0, at));
        const bool has_address = at != value.size();
        std::uint64_t start = has_address ? size_of(value.substr(at + 1)) : 0;
        if (name.empty() || bytes == 0 || (has_address && (start == 0 || start + bytes > allocated_base)) ||
            std::ranges::find(all, name, &Reserved::name) != all.end()) {
            return Error{"RIO_RSVDMEM: '" + std::string(one) +
                         "': must be NAME=SIZE or NAME=SIZE@ADDRESS with whole pages, for example PHYS_MEM=64M or "
                         "PHYS_MEM=256M@0x50000000; or none"};
        }
        if (!has_address) {
            const std::uint64_t alignment = std::bit_ceil(bytes);
            start = next = (next + alignment - 1) / alignment * alignment;
            next += bytes;
        }
        const auto overlaps = [&](const Reserved& each) {
            return start < each.start + each.bytes && each.start < start + bytes;
        };
        if (const auto other = std::ranges::find_if(all, overlaps); other != all.end())
            return Error{"RIO_RSVDMEM: '" + std::string(one) + "' lies over " + other->name};
        all.push_back({name, start, bytes});
    }
    return all;
}

Result<std::vector<Reserved>> reserved_of_environment() {
    const char* value = std::getenv("RIO_RSVDMEM");  // NOLINT(concurrency-mt-unsafe)
    return parse_reserved(value == nullptr ? preset : std::string_view(value));
}

}  // namespace incast::softrio
