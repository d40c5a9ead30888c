#include "transport/decorator/count.h"

#include "transport/decorator/forward.h"

namespace incast::transport::decorator {

namespace {

class Count final : public Forward {
public:
    Count(std::unique_ptr<Transport> wrapped, Counts& counts) : Forward(std::move(wrapped)), counts_(counts) {}

    Post send(Peer peer, Bytes message) override {
        return counted(counts_.sends, message.size(), inner().send(peer, message));
    }

    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        return counted(counts_.writes, head.size() + body.length,
                       inner().write(peer, head, body, target, notice, token));
    }

    Post write_from(Peer peer, Bytes head, Bytes body, Target target, Notice notice, Token token) override {
        return counted(counts_.writes, head.size() + body.size(),
                       inner().write_from(peer, head, body, target, notice, token));
    }

    Post read(Peer peer, Target from, Slice into, Token token) override {
        return counted(counts_.reads, into.length, inner().read(peer, from, into, token));
    }

    std::size_t poll(Time now, std::span<Event> events) override {
        const std::size_t count = inner().poll(now, events);
        ++counts_.polls;
        if (count == 0) ++counts_.empty_polls;
        for (const Event& event : events.first(count)) {
            ++counts_.events[static_cast<std::size_t>(event.kind)];
            if (event.kind == Event::Kind::message) counts_.message_bytes += event.size_or_value;
        }
        return count;
    }

private:
    static Post counted(Counts::Posts& posts, std::uint64_t bytes, Post post) {
        ++posts.by_answer[static_cast<std::size_t>(post)];
        if (post == Post::done || post == Post::pending) posts.bytes += bytes;
        return post;
    }

    Counts& counts_;
};

}  // namespace

std::unique_ptr<Transport> make_count(std::unique_ptr<Transport> inner, Counts& counts) {
    return std::make_unique<Count>(std::move(inner), counts);
}

}  // namespace incast::transport::decorator
