#include "wire/control.h"

namespace incast::wire {
namespace {

struct Shape {
    std::size_t body = 0;
    std::size_t entry = 0;
    bool known = false;
};

template <ControlKind kind>
constexpr Shape shape() {
    return {wire_size<typename Traits<kind>::Body>, wire_size<typename Traits<kind>::Entry>, true};
}

constexpr Shape shape_of(ControlKind kind) {
    switch (kind) {
        case ControlKind::hello:
            return shape<ControlKind::hello>();
        case ControlKind::beat:
            return shape<ControlKind::beat>();
        case ControlKind::connected:
            return shape<ControlKind::connected>();
        case ControlKind::peer_lost:
            return shape<ControlKind::peer_lost>();
        case ControlKind::view:
            return shape<ControlKind::view>();
        case ControlKind::available:
            return shape<ControlKind::available>();
        case ControlKind::announce:
            return shape<ControlKind::announce>();
        case ControlKind::abort:
            return shape<ControlKind::abort>();
        case ControlKind::abort_ack:
            return shape<ControlKind::abort_ack>();
        case ControlKind::grant:
            return shape<ControlKind::grant>();
        case ControlKind::assign:
            return shape<ControlKind::assign>();
        case ControlKind::commit_request:
            return shape<ControlKind::commit_request>();
        case ControlKind::commit_verdict:
            return shape<ControlKind::commit_verdict>();
        case ControlKind::committed:
            return shape<ControlKind::committed>();
        case ControlKind::late:
            return shape<ControlKind::late>();
        case ControlKind::region:
            return shape<ControlKind::region>();
        case ControlKind::request:
            return shape<ControlKind::request>();
        case ControlKind::placed:
            return shape<ControlKind::placed>();
        case ControlKind::end:
            return shape<ControlKind::end>();
        case ControlKind::source_region:
            return shape<ControlKind::source_region>();
        case ControlKind::offer:
            return shape<ControlKind::offer>();
        case ControlKind::phase:
            return shape<ControlKind::phase>();
        case ControlKind::phase_done:
            return shape<ControlKind::phase_done>();
        case ControlKind::clock_ask:
            return shape<ControlKind::clock_ask>();
        case ControlKind::clock_answer:
            return shape<ControlKind::clock_answer>();
        case ControlKind::open:
            return shape<ControlKind::open>();
        case ControlKind::close:
            return shape<ControlKind::close>();
    }
    return {};
}

}  // namespace

std::optional<ControlView> ControlView::parse(Bytes message, std::uint8_t version) {
    if (message.size() < sizeof(ControlHeader) || message.size() > max_message_bytes) {
        return std::nullopt;
    }
    ControlView view;
    std::memcpy(&view.header_, message.data(), sizeof(ControlHeader));
    view.message_ = message;
    if (view.header_.magic != control_magic || view.header_.version != version) {
        return std::nullopt;
    }
    const Shape shape = shape_of(view.header_.kind);
    if (!shape.known || (shape.entry == 0 && view.header_.count != 0)) {
        return std::nullopt;
    }
    if (message.size() != sizeof(ControlHeader) + shape.body + std::size_t{view.header_.count} * shape.entry) {
        return std::nullopt;
    }
    return view;
}

}  // namespace incast::wire
