#include "softrio/udp/kernel_channels.h"

namespace incast::softrio::udp {

namespace {

constexpr std::size_t length_at = 16;  // in the header

}  // namespace

void KernelChannels::connect(const Ends& ends, std::uint32_t kernel) {
    if (flows_.size() < max_flows) flows_[ends] = {.kernel = kernel};
}

bool KernelChannels::hand_in(std::uint32_t source, std::span<const std::byte> message, std::optional<Header>& note) {
    CmHeader header;
    if (!read_header(message, header) || header.source != source) return false;
    const Ends ends{source, header.source_channel, header.target_channel};
    const auto flow = flows_.find(ends);
    switch (header.operation) {
        case ChannelOperation::request: {
            const auto [asked, is_new] = asked_.try_emplace({source, header.source_channel}, header.word);
            const bool is_repeated = !is_new && header.word != 0 && asked->second == header.word;
            asked->second = header.word;
            if (asked_.size() > max_flows) asked_.erase(asked_.begin());
            return !is_repeated;
        }
        case ChannelOperation::accept:
            connect(ends, header.target);
            return true;
        case ChannelOperation::close:
            if (flow == flows_.end()) return false;
            flows_.erase(flow);
            return true;
        case ChannelOperation::credit:
            if (flow != flows_.end()) {
                Flow& each = flow->second;
                const auto more = static_cast<std::uint16_t>(header.word - each.freed);
                if (more <= static_cast<std::uint16_t>(each.sent - each.freed)) each.freed = header.word;
            }
            return false;
        case ChannelOperation::data:
            break;
        default:
            return false;
    }
    if (flow == flows_.end()) return true;  // the kernel knows better, or drops it
    Flow& each = flow->second;
    ++each.received;
    if (static_cast<std::uint16_t>(each.received - each.told) >= credit_step) {
        each.told = each.received;
        write_header({header.target, source, ChannelOperation::credit, header.source_channel, header.target_channel,
                      min_message, each.received},
                     note.emplace().data());
    }
    return true;
}

KernelChannels::Way KernelChannels::hand_out(std::uint32_t target, std::span<std::byte> message) {
    CmHeader header;
    // A kernel leaves the length out of what is a header alone.
    if (message.size() >= min_message && message[length_at] == std::byte{0} && message[length_at + 1] == std::byte{0})
        message[length_at + 1] = std::byte{min_message};
    if (!read_header(message, header)) return Way::go;
    const Ends ends{target, header.target_channel, header.source_channel};
    const auto flow = flows_.find(ends);
    if (header.operation == ChannelOperation::accept) {
        connect(ends, header.source);
        const auto asked = asked_.find({target, header.target_channel});
        if (asked == asked_.end()) return Way::go;
        header.word = asked->second;
        write_header(header, message.data());
    } else if (header.operation == ChannelOperation::close && flow != flows_.end()) {
        flows_.erase(flow);
    } else if (header.operation == ChannelOperation::data && flow != flows_.end()) {
        if (static_cast<std::uint16_t>(flow->second.sent - flow->second.freed) >= ring_depth) return Way::wait;
        ++flow->second.sent;
    }
    return Way::go;
}

std::vector<KernelChannels::Header> KernelChannels::lose_peer(std::uint32_t destid) {
    std::vector<Header> closes;
    std::erase_if(flows_, [&](const auto& each) {
        const auto& [ends, flow] = each;
        if (ends.peer != destid) return false;
        write_header({destid, flow.kernel, ChannelOperation::close, ends.ours, ends.theirs, min_message, 0},
                     closes.emplace_back().data());
        return true;
    });
    std::erase_if(asked_, [&](const auto& each) { return each.first.first == destid; });
    return closes;
}

}  // namespace incast::softrio::udp
