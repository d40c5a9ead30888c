// Reads: the receiver of a pair reads from the ring of its sender, whose processor takes no part in it.
#include "net/limits_of_a_step.h"
#include "net/node.h"

namespace incast::net {

void Node::enqueue_reads(std::uint32_t stream) {
    for (std::uint32_t slot = 0; slot < config_.outstanding; ++slot) {
        enqueue_read(stream * config_.outstanding + slot);
    }
}

void Node::enqueue_read(std::uint32_t number) {
    const Inbound& stream = inbound_[number / config_.outstanding];
    const Link& link = links_[stream.link];
    if (began_at_ == 0 || stopping_ || link.blocked || !link.partner.hears_from ||
        readings_[number].state != Reading::State::idle ||
        (config_.messages != 0 && stream.issued == config_.messages)) {
        return;
    }
    readings_[number].state = Reading::State::queued;
    ready_.must_push(number);
}

std::uint32_t Node::post_reads(Time now) {
    std::uint32_t posted = 0;
    std::uint64_t bytes = 0;
    while (!ready_.empty() && posted < posts_per_step && bytes < bytes_per_step) {
        const std::uint32_t number = ready_.front();
        ready_.pop();
        const std::uint32_t number_of_stream = number / config_.outstanding;
        Reading& reading = readings_[number];
        Inbound& stream = inbound_[number_of_stream];
        Link& link = links_[stream.link];
        reading.state = Reading::State::idle;
        if (link.blocked || stopping_ || (config_.messages != 0 && stream.issued == config_.messages)) {
            continue;  // room brings it back
        }
        const std::uint32_t slot = stream.queue * config_.outstanding + number % config_.outstanding;
        const Post post = transport_.read(link.partner.peer, {link.region, stream.position * body_stride_},
                                          {region_, config_.message_bytes, link.partner.area_here + slot * stride_},
                                          number + Token{1});
        note(link, post);
        if (post != Post::done && post != Post::pending) {
            continue;
        }
        reading = {stream.position, now, Reading::State::pending};
        advance(stream.position);
        ++stream.issued;
        ++posted;
        bytes += config_.message_bytes;
        if (post == Post::done && config_.measure == Measure::latency) {
            done_.must_push(number);  // the time that it took is known in the next step
        } else if (post == Post::done) {
            on_read(now, number);
        }
    }
    return posted;
}

void Node::finish_done_reads(Time now) {
    while (!done_.empty()) {
        const std::uint32_t number = done_.front();
        done_.pop();
        on_read(now, number);
    }
}

void Node::on_read(Time now, std::uint32_t number) {
    const std::uint32_t number_of_stream = number / config_.outstanding;
    Reading& reading = readings_[number];
    Inbound& stream = inbound_[number_of_stream];
    Link& link = links_[stream.link];
    reading.state = Reading::State::idle;
    if (config_.measure == Measure::latency) {
        round_trips_[stream.link].record(static_cast<std::uint64_t>(std::max<Time>(0, now - reading.posted_at)) /
                                         ps_per_ns);
    }
    if (config_.verify && !phantom_) {
        const std::uint32_t slot = stream.queue * config_.outstanding + number % config_.outstanding;
        const Bytes body = transport_.local({region_, config_.message_bytes, link.partner.area_here + slot * stride_});
        ++counters_.verified_messages;
        if (const std::optional<std::size_t> at = content_.difference(link.partner.peer, reading.position, body)) {
            wrong(counters_.content_errors,
                  "node " + name_of(link.partner.peer) + ", queue " + std::to_string(stream.queue) + ", read " +
                      std::to_string(stream.expected) + ": byte " + std::to_string(*at) + " differs");
        }
    }
    ++stream.expected;
    count_received(link);
    enqueue_read(number);
    end_reads_if_over(number_of_stream);
}

/// What was asked for has come, and nothing more is asked for.
void Node::end_reads_if_over(std::uint32_t number_of_stream) {
    Inbound& stream = inbound_[number_of_stream];
    Link& link = links_[stream.link];
    const bool all = stopping_ || (config_.messages != 0 && stream.issued == config_.messages);
    if (!all || stream.over || !link.partner.hears_from || stream.issued != stream.expected) {
        return;
    }
    stream.over = true;
    if (--link.open_streams == 0) {
        control_due_.set(stream.link);
    }
}

}  // namespace incast::net
