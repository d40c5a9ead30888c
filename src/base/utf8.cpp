#include "base/utf8.h"

#include <cstddef>
#include <cstdint>

namespace incast::base {

bool is_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const auto lead = static_cast<unsigned char>(text[at]);
        const std::size_t more = lead < 0x80                    ? 0
                                 : lead >= 0xC2 && lead <= 0xDF ? 1
                                 : (lead >> 4U) == 0xE          ? 2
                                 : lead >= 0xF0 && lead <= 0xF4 ? 3
                                                                : text.size();
        if (more >= text.size() - at) {
            return false;
        }
        std::uint32_t point = more == 0 ? lead : lead & (0x3FU >> more);
        for (std::size_t index = 1; index <= more; ++index) {
            const auto next = static_cast<unsigned char>(text[at + index]);
            if ((next & 0xC0U) != 0x80) {
                return false;
            }
            point = point << 6U | (next & 0x3FU);
        }
        const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
        if (surrogate || point > 0x10FFFF || (more == 2 && point < 0x800) || (more == 3 && point < 0x10000)) {
            return false;
        }
        at += more + 1;
    }
    return true;
}

std::string shown(std::string_view text) {
    constexpr const char* digits = "0123456789abcdef";
    const bool whole = is_utf8(text);
    std::string line;
    for (const char letter : text) {
        const auto code = static_cast<unsigned char>(letter);
        if (code < 0x20 || code == 0x7F || (code >= 0x80 && !whole)) {
            line += "\\x";
            line += digits[code >> 4U];
            line += digits[code & 0xFU];
        } else {
            line += letter;
        }
    }
    return line;
}

}  // namespace incast::base
