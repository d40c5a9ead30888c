#include "channel/hub/control.h"

#include <cstring>

namespace incast::channel {

const char* to_string(Fault fault) {
    switch (fault) {
        case Fault::none:
            return "nothing is wrong";
        case Fault::nobody:
            return "nobody listens there";
        case Fault::refused:
            return "the other side wants channels of another kind or size";
        case Fault::full:
            return "the other side has no room for another channel";
        case Fault::lost:
            return "the other side is gone";
        case Fault::reset:
            return "the other side gave the channel up";
        case Fault::broken:
            return "the other side broke the rules of channels";
        case Fault::forked:
            return "the channel belongs to the process that this one was forked from";
    }
    return "";
}

std::optional<Received> parse(Bytes message) {
    Received received;
    Control& control = received.control;
    if (message.size() < sizeof control) return std::nullopt;
    std::memcpy(&control, message.data(), sizeof control);
    received.key = message.subspan(sizeof control);
    const bool is_right = control.magic == Control::expected_magic && control.what <= Control::What::wants &&
                          control.fault <= Fault::forked && control.kind <= Kind::messages &&
                          control.announce <= Way::message && control.acknowledge <= Way::message &&
                          control.is_finished <= 1 && control.key_bytes == received.key.size() &&
                          control.key_bytes <= max_key_bytes;
    const bool has_key = control.what == Control::What::open || control.what == Control::What::opened;
    if (!is_right || has_key != (control.key_bytes > 0)) return std::nullopt;
    return received;
}

Written::Written(Control control, Bytes key) : length_(sizeof control + key.size()) {
    control.key_bytes = static_cast<std::uint16_t>(key.size());
    std::memcpy(bytes_.data(), &control, sizeof control);
    if (!key.empty()) std::memcpy(bytes_.data() + sizeof control, key.data(), key.size());
}

}  // namespace incast::channel
