#include "traffic.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace incast::conformance {

namespace {

constexpr std::size_t head_bytes = 16;
constexpr std::uint32_t companion_offset = Traffic::slot_bytes / 2;
constexpr std::uint32_t companion_bytes = 3000;
constexpr std::uint32_t offer_offset = Traffic::slot_bytes / 4 * 3;
constexpr std::uint32_t offer_bytes_max = 40'000;
constexpr Token read_token = Token{1} << 32;  // plus the slot: tells reads from writes

}  // namespace

void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) {
    std::array<std::uint64_t, 512> words;
    for (std::size_t at = 0; at < bytes.size(); at += sizeof words) {
        const std::size_t length = std::min(sizeof words, bytes.size() - at);
        for (std::size_t word = 0; word * 8 < length; ++word)
            words[word] = base::mix64(seed ^ (at / 8 + word));
        std::memcpy(bytes.data() + at, words.data(), length);
    }
}

bool same_bytes(std::span<const std::byte> left, std::span<const std::byte> right) {
    return left.size() == right.size() && (left.empty() || std::memcmp(left.data(), right.data(), left.size()) == 0);
}

Traffic::Item Traffic::Script::next() {
    Item item{.number = number_++};
    item.is_write = random_.below(3) > 0;
    item.seed = random_.next();
    if (reads_ && random_.below(4) == 0) {
        item.is_write = false;
        item.is_read = true;
        constexpr std::array<std::uint32_t, 3> offers{64, 5000, offer_bytes_max};
        item.length = static_cast<std::uint32_t>(random_.below(offers[random_.below(3)] + 1));
        item.slot = offers_++ % slots;
        return item;
    }
    if (!item.is_write) {
        item.length = static_cast<std::uint32_t>(random_.between(16, static_cast<std::int64_t>(max_message_bytes)));
        return item;
    }
    // Small, medium and large bodies take different ways through a transport.
    constexpr std::array<std::uint32_t, 3> limits{64, 5000, body_bytes_max};
    item.length = static_cast<std::uint32_t>(random_.below(limits[random_.below(3)] + 1));
    item.has_companion = random_.below(2) == 0;
    item.slot = writes_++ % slots;
    return item;
}

Traffic::Traffic(Transport& transport, const Setup& setup)
    : transport_(transport),
      setup_(setup),
      sending_(setup.send_seed, transport.capabilities().read),
      receiving_(setup.receive_seed, transport.capabilities().read),
      next_sent_(sending_.next()),
      phantom_(transport.capabilities().phantom_bodies),
      expected_(body_bytes_max) {}

bool Traffic::step(Time now) {
    // A few posts per poll, so that both sides stay busy at once.
    for (int posts = 0; posts < 4 && failure_.empty() && post(); ++posts) {
    }
    std::array<Event, 16> events;
    const std::size_t count = transport_.poll(now, events);
    for (const Event& event : std::span(events).first(count))
        receive(event);
    if (bye_sent_) ++polls_after_bye_;
    // The goodbye itself leaves with a poll.
    const bool finished = bye_received_ && pending_ == 0 && polls_after_bye_ > 1;
    return failure_.empty() && !finished;
}

bool Traffic::post() {
    if (acknowledgement_sent_ < writes_received_) {
        if (!post_count(Kind::acknowledge, writes_received_)) return false;
        acknowledgement_sent_ = writes_received_;
        return true;
    }
    if (reads_posted_ < offers_received_) return post_read();
    if (reads_acknowledged_ < reads_done_ && reads_done_ == reads_posted_) {
        if (!post_count(Kind::acknowledge_reads, reads_done_)) return false;
        reads_acknowledged_ = reads_done_;
        return true;
    }
    if (items_sent_ < setup_.items) return post_item();
    if (bye_sent_ || writes_acknowledged_ < writes_sent_ || offers_acknowledged_ < offers_sent_ ||
        items_received_ < setup_.items || reads_acknowledged_ < offers_received_) {
        return false;
    }
    bye_sent_ = post_count(Kind::bye, 0);
    return bye_sent_;
}

bool Traffic::post_count(Kind kind, std::uint64_t count) {
    const std::array<std::uint64_t, 2> message{static_cast<std::uint64_t>(kind), count};
    return transport_.send(setup_.peer, std::as_bytes(std::span(message))) == Post::done;
}

bool Traffic::post_read() {
    const auto slot = static_cast<std::uint32_t>(reads_posted_ % slots);
    const std::uint64_t at = std::uint64_t{slot} * slot_bytes + offer_offset;
    const Post post = transport_.read(setup_.peer, {setup_.remote_source, at},
                                      {setup_.received, offered_[slot].length, at}, read_token + slot);
    if (post == Post::again) return false;
    if (post == Post::refused) fail("a read was refused");
    if (post == Post::pending) ++pending_;
    ++reads_posted_;
    if (post == Post::done) finish_read(slot);
    return true;
}

void Traffic::finish_read(std::uint32_t slot) {
    ++reads_done_;
    const Item& item = offered_[slot];
    if (phantom_) return;
    const Bytes bytes =
        transport_.local({setup_.received, item.length, std::uint64_t{slot} * slot_bytes + offer_offset});
    if (!same_bytes(bytes, expected(item)))
        fail("what was read of item " + std::to_string(item.number) + " is damaged");
}

bool Traffic::post_item() {
    const Item& item = next_sent_;
    Post post{};
    if (!item.is_write) {
        std::array<std::byte, max_message_bytes> message;
        const std::array<std::uint64_t, 2> front{static_cast<std::uint64_t>(Kind::item), item.number};
        if (!item.is_read) fill_pattern(std::span(message).first(item.length), item.seed);
        std::memcpy(message.data(), front.data(), sizeof front);
        if (item.is_read) {
            if (offers_sent_ - offers_acknowledged_ >= slots) return false;
            if (!phantom_) {
                const std::uint64_t at = std::uint64_t{item.slot} * slot_bytes + offer_offset;
                fill_pattern(transport_.memory(setup_.source).subspan(at, item.length), item.seed);
            }
            post = transport_.send(setup_.peer, std::as_bytes(std::span(front)));
            if (post == Post::done) ++offers_sent_;
        } else {
            post = transport_.send(setup_.peer, Bytes(message).first(item.length));
        }
    } else {
        if (writes_sent_ - writes_acknowledged_ >= slots) return false;
        const std::uint64_t at = std::uint64_t{item.slot} * slot_bytes;
        if (!companion_sent_ && !phantom_) {
            const auto memory = transport_.memory(setup_.source).subspan(at, slot_bytes);
            fill_pattern(memory.first(item.length), item.seed);
            fill_pattern(memory.subspan(companion_offset, companion_bytes), item.seed + 1);
        }
        const std::array<std::uint64_t, 2> head{item.number, item.length};
        static_assert(sizeof head == head_bytes);
        if (item.has_companion && !companion_sent_) {
            post = transport_.write(setup_.peer, std::as_bytes(std::span(head)),
                                    {setup_.source, companion_bytes, at + companion_offset},
                                    {setup_.remote, at + companion_offset}, {}, 2 * item.number + 3);
            if (post == Post::again) return false;
            if (post == Post::refused) fail("a companion write was refused");
            if (post == Post::pending) ++pending_;
            companion_sent_ = true;
            return true;
        }
        post = transport_.write(setup_.peer, std::as_bytes(std::span(head)), {setup_.source, item.length, at},
                                {setup_.remote, at}, static_cast<std::uint16_t>(item.slot), 2 * item.number + 2);
    }
    if (post == Post::again) return false;
    if (post == Post::refused) fail("item " + std::to_string(item.number) + " was refused");
    if (post == Post::pending) ++pending_;
    if (item.is_write) ++writes_sent_;
    ++items_sent_;
    companion_sent_ = false;
    next_sent_ = sending_.next();
    return true;
}

void Traffic::receive(const Event& event) {
    switch (event.kind) {
        case Event::Kind::completed:
            return receive_completion(event);
        case Event::Kind::message: {
            const Bytes message{event.data, event.size_or_value};
            std::array<std::uint64_t, 2> front;
            if (message.size() < sizeof front) return fail("a message of " + std::to_string(message.size()) + " bytes");
            std::memcpy(front.data(), message.data(), sizeof front);
            if (front[0] == static_cast<std::uint64_t>(Kind::acknowledge)) {
                writes_acknowledged_ = front[1];
            } else if (front[0] == static_cast<std::uint64_t>(Kind::acknowledge_reads)) {
                offers_acknowledged_ = front[1];
            } else if (front[0] == static_cast<std::uint64_t>(Kind::bye)) {
                bye_received_ = true;
            } else {
                receive_item(message);
            }
            return;
        }
        case Event::Kind::notice:
            return receive_notice(event.size_or_value);
        case Event::Kind::peer_up:
        case Event::Kind::room:
        case Event::Kind::knock:
            return;
        case Event::Kind::peer_down:
            return fail("the peer is down");
    }
}

void Traffic::receive_completion(const Event& event) {
    if (event.status != Status::ok) fail("a write or read did not complete well");
    if (pending_ == 0) return fail("more completions than pending operations");
    --pending_;
    if (event.token >= read_token) finish_read(static_cast<std::uint32_t>(event.token - read_token));
}

void Traffic::receive_item(Bytes message) {
    const Item item = receiving_.next();
    std::uint64_t number = 0;
    std::memcpy(&number, message.data() + 8, sizeof number);
    if (item.is_write || number != item.number || message.size() != (item.is_read ? 16 : item.length)) {
        return fail("message " + std::to_string(number) + " came in place of item " + std::to_string(item.number));
    }
    if (item.is_read) {
        offered_[item.slot] = item;
        ++offers_received_;
    } else if (!same_bytes(message.subspan(16), expected(item).subspan(16))) {
        return fail("message " + std::to_string(number) + " is damaged");
    }
    ++items_received_;
}

void Traffic::receive_notice(std::uint16_t slot) {
    const Item item = receiving_.next();
    if (!item.is_write || slot != item.slot) {
        return fail("notice " + std::to_string(slot) + " came in place of item " + std::to_string(item.number));
    }
    const std::uint64_t at = std::uint64_t{slot} * slot_bytes;
    check_piece(item, at);
    if (item.has_companion) {
        Item companion = item;
        companion.length = companion_bytes;
        ++companion.seed;
        check_piece(companion, at + companion_offset);
    }
    ++items_received_;
    ++writes_received_;
}

void Traffic::check_piece(const Item& item, std::uint64_t offset) {
    const Bytes bytes =
        transport_.local({setup_.received, static_cast<std::uint32_t>(head_bytes + item.length), offset});
    if (bytes.size() < head_bytes) return fail("no head at " + std::to_string(offset));
    std::uint64_t number = 0;
    std::memcpy(&number, bytes.data(), sizeof number);
    if (number != item.number) {
        return fail("head of item " + std::to_string(number) + " where item " + std::to_string(item.number) +
                    " should lie");
    }
    if (phantom_) return;
    if (!same_bytes(bytes.subspan(head_bytes), expected(item))) fail("item " + std::to_string(number) + " is damaged");
}

Bytes Traffic::expected(const Item& item) {
    fill_pattern(std::span(expected_).first(item.length), item.seed);
    return Bytes(expected_).first(item.length);
}

void Traffic::fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
}

}  // namespace incast::conformance
