#include "sim/message_trace.h"

#include <utility>

#include "sim/world.h"

namespace incast::sim {

Result<std::unique_ptr<MessageTrace>> MessageTrace::open(const std::filesystem::path& path, std::uint64_t most_lines) {
    std::ofstream file(path, std::ios::trunc);
    if (!(file << "t_ps,what,from,to,number,bytes\n")) return Error{"'" + path.string() + "' cannot be written"};
    return std::unique_ptr<MessageTrace>(new MessageTrace(std::move(file), most_lines));
}

void MessageTrace::watch(World& world) {
    world_ = &world;
    world.observe(this);
}

void MessageTrace::line(Time now, std::string_view what, EndpointId from, EndpointId to, std::uint64_t number,
                        std::uint64_t bytes) {
    if (lines_left_ == 0) return;
    const auto node = [this](EndpointId id) { return static_cast<std::uint32_t>(world_->options(id).self); };
    file_ << now << ',' << what << ',' << node(from) << ',' << node(to) << ',' << number << ',' << bytes << '\n';
    if (--lines_left_ == 0) file_ << now << ",end-of-trace,,,,\n";
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
