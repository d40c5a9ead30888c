#include "sim/message_trace.h"

#include <utility>

#include "sim/world.h"

namespace incast::sim {

namespace {

constexpr std::size_t write_from = 64U << 10U;  // bytes that wait

}  // namespace

MessageTrace::MessageTrace(Writer writer, std::uint64_t most_lines)
    : writer_(std::move(writer)),
      waiting_("t_ps,what,from,to,number,bytes\n"),
      waiting_lines_(1),
      lines_left_(most_lines) {}

void MessageTrace::flush() {
    if (waiting_lines_ > 0) writer_(waiting_, waiting_lines_);
    waiting_.clear();
    waiting_lines_ = 0;
}

void MessageTrace::watch(World& world) {
    world_ = &world;
    world.observe(this);
}

void MessageTrace::line(Time now, std::string_view what, EndpointId from, EndpointId to, std::uint64_t number,
                        std::uint64_t bytes) {
    if (lines_left_ == 0) return;
    const auto node = [this](EndpointId id) { return static_cast<std::uint32_t>(world_->options(id).self); };
    waiting_ += std::to_string(now) + ',';
    waiting_.append(what);
    for (const std::uint64_t value : {std::uint64_t{node(from)}, std::uint64_t{node(to)}, number, bytes}) {
        waiting_ += ',' + std::to_string(value);
    }
    waiting_ += '\n';
    ++waiting_lines_;
    if (--lines_left_ == 0) {
        waiting_ += std::to_string(now) + ",end-of-trace,,,,\n";
        ++waiting_lines_;
    }
    if (waiting_.size() >= write_from) flush();
}

void MessageTrace::message_posted(Time now, EndpointId from, EndpointId to, Bytes bytes) {
    line(now, "message-posted", from, to, 0, bytes.size());
}
void MessageTrace::message_delivered(Time now, EndpointId from, EndpointId to, Bytes bytes) {
    line(now, "message-delivered", from, to, 0, bytes.size());
}
void MessageTrace::write_posted(Time now, EndpointId from, EndpointId to, const Transfer& write) {
    line(now, "write-posted", from, to, write.number, write.bytes);
}
void MessageTrace::landed(Time now, EndpointId from, EndpointId to, const Transfer& write, std::uint8_t /*parts*/) {
    line(now, "write-landed", from, to, write.number, write.bytes);
}
void MessageTrace::notice_delivered(Time now, EndpointId from, EndpointId to, const Transfer& write) {
    line(now, "notice-delivered", from, to, write.number, write.bytes);
}
void MessageTrace::read_posted(Time now, EndpointId from, EndpointId to, const Transfer& read) {
    line(now, "read-posted", from, to, read.number, read.bytes);
}
void MessageTrace::read_completed(Time now, EndpointId from, EndpointId to, const Transfer& read, Status status) {
    line(now, status == Status::ok ? "read-completed" : "read-failed", from, to, read.number, read.bytes);
}
void MessageTrace::peer_up(Time now, EndpointId at, EndpointId peer) {
    line(now, "peer-up", at, peer, 0, 0);
}
void MessageTrace::peer_down(Time now, EndpointId at, EndpointId peer) {
    line(now, "peer-down", at, peer, 0, 0);
}

}  // namespace incast::sim
