#include "transport/decorator/trace.h"

#include "transport/decorator/forward.h"

namespace incast::transport::decorator {

namespace {

using What = TraceRecord::What;

class Trace final : public Forward {
public:
    Trace(std::unique_ptr<Transport> wrapped, Peer self, TraceSink& sink)
        : Forward(std::move(wrapped)), self_(self), sink_(sink) {}

    Post connect(Peer peer, const Blob& address, std::uint32_t incarnation) override {
        return noted({.what = What::connect, .peer = peer, .incarnation = incarnation},
                     inner().connect(peer, address, incarnation));
    }

    void disconnect(Peer peer) override {
        note({.what = What::disconnect, .peer = peer});
        inner().disconnect(peer);
    }

    Post send(Peer peer, Bytes message) override {
        return noted(
            {.what = What::send, .peer = peer, .length = static_cast<std::uint32_t>(message.size()), .bytes = message},
            inner().send(peer, message));
    }

    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        return noted({.what = What::write,
                      .peer = peer,
                      .length = body.length,
                      .offset = target.offset,
                      .token = token,
                      .notice = notice,
                      .bytes = head},
                     inner().write(peer, head, body, target, notice, token));
    }

    Post write_from(Peer peer, Bytes head, Bytes body, Target target, Notice notice, Token token) override {
        return noted({.what = What::write,
                      .peer = peer,
                      .length = static_cast<std::uint32_t>(body.size()),
                      .offset = target.offset,
                      .token = token,
                      .notice = notice,
                      .bytes = head},
                     inner().write_from(peer, head, body, target, notice, token));
    }

    Post read(Peer peer, Target from, Slice into, Token token) override {
        return noted({.what = What::read, .peer = peer, .length = into.length, .offset = from.offset, .token = token},
                     inner().read(peer, from, into, token));
    }

    std::size_t poll(Time now, std::span<Event> events) override {
        now_ = now;
        const std::size_t count = inner().poll(now, events);
        for (const Event& event : events.first(count)) {
            TraceRecord record{.what = What::event, .peer = event.peer, .kind = event.kind};
            switch (event.kind) {
                case Event::Kind::completed:
                    record.status = event.status;
                    record.token = event.token;
                    break;
                case Event::Kind::message:
                case Event::Kind::knock:
                    record.length = event.size_or_value;
                    record.bytes = {event.data, event.size_or_value};
                    break;
                case Event::Kind::notice:
                    record.notice = event.size_or_value;
                    break;
                case Event::Kind::peer_up:
                case Event::Kind::peer_down:
                    record.incarnation = event.incarnation;
                    break;
                case Event::Kind::room:
                    break;
            }
            note(record);
        }
        return count;
    }

private:
    void note(TraceRecord record) {
        record.self = self_;
        record.now = now_;
        sink_.record(record);
    }
    Post noted(TraceRecord record, Post post) {
        record.post = post;
        note(record);
        return post;
    }

    Peer self_;
    TraceSink& sink_;
    Time now_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_trace(std::unique_ptr<Transport> inner, Peer self, TraceSink& sink) {
    return std::make_unique<Trace>(std::move(inner), self, sink);
}

}  // namespace incast::transport::decorator
