#include "farm/simulated/link.h"

#include <algorithm>

namespace incast::farm::simulated {

void Link::expect(const Whereabouts& there) {
    there_ = there;
}

void Link::call(Time now) {
    if (is_called_ || there_.incarnation == 0 || now < next_call_) {
        return;
    }
    next_call_ = now + retry_interval;
    is_called_ = transport_->connect(there_.peer, there_.address, there_.incarnation) == Post::pending;
}

void Link::drop(Time now) {
    out_.clear();
    is_up_ = false;
    if (is_called_ && !is_leaving_) {
        is_leaving_ = true;
        transport_->disconnect(there_.peer);
    }
    next_call_ = now + retry_interval;
}

bool Link::came_up(const Event& event) {
    if (event.incarnation != there_.incarnation || is_leaving_) {
        return false;
    }
    out_.clear();
    if (!there_.key.bytes.empty()) {
        const auto imported = transport_->import_key(there_.peer, there_.key);
        if (!imported) {
            return false;
        }
        remote_ = *imported;
    }
    is_up_ = true;
    return true;
}

void Link::went_down(Time now) {
    out_.clear();
    is_called_ = is_up_ = is_leaving_ = false;
    next_call_ = now + retry_interval;
}

void Link::say(Bytes message) {
    Out out;
    out.message.assign(message.begin(), message.end());
    out_.push_back(std::move(out));
}

void Link::write(Bytes head, std::uint64_t bytes, std::uint64_t offset, std::uint16_t notice) {
    Out out;
    out.head_bytes = static_cast<std::uint8_t>(head.size());
    out.notice = notice;
    out.bytes = bytes;
    out.offset = offset;
    std::ranges::copy(head, out.head.begin());
    out_.push_back(std::move(out));
}

void Link::push() {
    while (is_up_ && !out_.empty()) {
        const Out& out = out_.front();
        const Post posted =
            !out.message.empty()
                ? transport_->send(there_.peer, out.message)
                : transport_->write(there_.peer, std::span(out.head).first(out.head_bytes),
                                    {.region = body_, .length = static_cast<std::uint32_t>(out.bytes), .offset = 0},
                                    {.region = remote_, .offset = out.offset}, Notice(out.notice), 0);
        if (posted == Post::again || posted == Post::refused) {
            return;  // `room` follows, or the end of the connection
        }
        out_.pop_front();
    }
}

}  // namespace incast::farm::simulated
