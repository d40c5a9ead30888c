// The messages themselves: what lands is examined and answered, what there is credit for is posted.
#include <algorithm>
#include <cstring>

#include "net/limits_of_a_step.h"
#include "net/node.h"

namespace incast::net {

void Node::wrong(std::uint64_t& count, std::string text) {
    ++count;
    if (first_error_.empty()) {
        first_error_ = std::move(text);
    }
}

void Node::examine(const Link& link, std::uint64_t offset, std::uint64_t sequence, std::uint16_t queue, bool answer,
                   bool damaged) {
    Head head;
    const Bytes bytes = transport_.local({region_, sizeof(Head), offset});
    if (bytes.size() != sizeof head) {
        wrong(counters_.order_errors, "a message of node " + name_of(link.partner.peer) + " has no head");
        return;
    }
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.run != run_ || head.sequence != sequence || head.queue != queue ||
        head.bytes != bytes_of(config_, queue) || (head.answer != 0) != answer || head.position >= ring_messages_) {
        wrong(counters_.order_errors, "node " + name_of(link.partner.peer) + ", queue " + std::to_string(queue) +
                                          ": message " + std::to_string(sequence) +
                                          " was due, and its slot holds message " + std::to_string(head.sequence) +
                                          " of queue " + std::to_string(head.queue));
        return;
    }
    if (damaged) {
        wrong(counters_.content_errors, "node " + name_of(link.partner.peer) + ", queue " + std::to_string(queue) +
                                            ", message " + std::to_string(sequence) +
                                            ": bytes of it were lost on the way, and are not sent again");
        return;
    }
    if (!config_.verify || phantom_) {
        return;
    }
    const Bytes body = transport_.local({region_, bytes_of(config_, queue), offset + head_bytes});
    ++counters_.verified_messages;
    if (const std::optional<std::size_t> at = content_.difference(link.partner.peer, head.position, body)) {
        wrong(counters_.content_errors, "node " + name_of(link.partner.peer) + ", queue " + std::to_string(queue) +
                                            ", message " + std::to_string(sequence) + ": byte " + std::to_string(*at) +
                                            " differs");
    }
}

void Node::on_notice(Time now, std::uint32_t index, std::uint16_t notice, bool damaged) {
    Link& link = links_[index];
    const auto slot = static_cast<std::uint16_t>(notice & ~answer_bit);
    if ((notice & answer_bit) != 0) {
        on_answer(now, index, slot, damaged);
        return;
    }
    const std::uint32_t queue = slot / config_.outstanding;
    if (!link.partner.hears_from || reads_ || queue >= queues_) {
        ++counters_.bad_messages;
        return;
    }
    const std::uint32_t number_of_stream = first_stream(index) + queue;
    Inbound& stream = inbound_[number_of_stream];
    if (slot != queue * config_.outstanding + stream.slot) {
        wrong(counters_.order_errors, "node " + name_of(link.partner.peer) + ", queue " + std::to_string(queue) +
                                          ": slot " + std::to_string(stream.slot) + " was due, and slot " +
                                          std::to_string(slot % config_.outstanding) + " was announced");
    }
    examine(link, link.partner.area_here + slot * stride_, stream.expected, stream.queue, false, damaged);
    ++stream.expected;
    stream.slot = stream.slot + 1U == slots_of(queue) ? std::uint16_t{0} : static_cast<std::uint16_t>(stream.slot + 1);
    if (queue != config_.queues) {
        count_received(link);
    }
    if (is_ping(config_, queue)) {
        if (!answers_due_.push(number_of_stream)) {  // who asks one question at a time finds room
            wrong(counters_.order_errors, "node " + name_of(link.partner.peer) + ", queue " + std::to_string(queue) +
                                              ": asks again and again without waiting for an answer");
        }
    } else if (stream.expected - stream.returned >= credit_threshold_) {
        control_due_.set(index);
    }
}

void Node::on_answer(Time now, std::uint32_t index, std::uint16_t queue, bool damaged) {
    Link& link = links_[index];
    if (reads_ || !link.partner.sends_to || queue >= queues_ || !is_ping(config_, queue)) {
        ++counters_.bad_messages;
        return;
    }
    const std::uint32_t number_of_stream = first_stream(index) + queue;
    Outbound& stream = outbound_[number_of_stream];
    if (stream.credited == stream.sequence) {
        wrong(counters_.order_errors, "node " + name_of(link.partner.peer) + " answered a question that was not asked");
        return;
    }
    examine(link, link.partner.answers_here + answer_slot(queue) * stride_, stream.credited, queue, true, damaged);
    ++stream.credited;
    round_trips_[index].record(static_cast<std::uint64_t>(std::max<Time>(0, now - stream.posted_at)) / ps_per_ns);
    if (stopping_) {
        end_stream(stream);
    }
    enqueue(number_of_stream);
}

/// Tokens are given to reads, and to writes where these are limited: their number, from 1.
void Node::on_completed(Time now, const Event& event) {
    if (event.token == 0 || event.status == Status::peer_lost || event.status == Status::cancelled) {
        return;  // peer_down follows
    }
    if (event.status != Status::ok) {
        failure_ = "node " + name_of(event.peer) + (reads_ ? " cannot be read from" : " cannot be written to") +
                   ": what was asked for is not there, or not allowed";
        return;
    }
    const auto number = static_cast<std::uint32_t>(event.token - 1);
    if (reads_) {
        on_read(now, number);
        return;
    }
    --outbound_[number].under_way;
    enqueue(number);
}

Post Node::write(Link& link, const Head& head, std::uint64_t position, std::uint64_t offset, std::uint16_t notice,
                 Token token) {
    const Post post =
        transport_.write(link.partner.peer, std::as_bytes(std::span(&head, 1)),
                         {ring_, head.bytes, position * body_stride_}, {link.region, offset}, notice, token);
    note(link, post);
    return post;
}

/// A peer that is gone refuses before its peer_down was polled; if that does not follow, something else is wrong.
void Node::note(Link& link, Post post) {
    link.blocked = post == Post::again || post == Post::refused;
    counters_.back_pressure += post == Post::again ? 1 : 0;
    if (post == Post::refused && give_up_at_ == time_never) {
        give_up_at_ = now_ + config_.loss_grace;
        lost_link_ = link_of_peer_[static_cast<std::size_t>(link.partner.peer)];
        lost_ = "node " + name_of(link.partner.peer) + " cannot be written to";
    }
}

std::uint32_t Node::post_messages(Time now) {
    std::uint32_t posted = 0;
    std::uint64_t bytes = 0;
    while (!ready_.empty() && posted < posts_per_step && bytes < bytes_per_step) {
        const std::uint32_t number_of_stream = ready_.front();
        ready_.pop();
        Outbound& stream = outbound_[number_of_stream];
        Link& link = links_[stream.link];
        stream.queued = false;
        if (link.blocked || stream.over) {
            continue;  // room brings it back
        }
        Head head;
        head.run = run_;
        head.sequence = stream.sequence;
        head.position = stream.position;
        head.bytes = bytes_of(config_, stream.queue);
        head.queue = stream.queue;
        const std::uint32_t slot = stream.queue * config_.outstanding + stream.slot;
        const Token token = config_.sends != 0 && stream.queue != config_.queues ? number_of_stream + Token{1} : 0;
        const Post post = write(link, head, stream.position, link.partner.area_there + slot * stride_,
                                static_cast<std::uint16_t>(slot), token);
        if (post != Post::done && post != Post::pending) {
            continue;
        }
        stream.under_way += token != 0 && post == Post::pending ? 1 : 0;
        stream.posted_at = now;
        ++stream.sequence;
        advance(stream.position);
        stream.slot =
            stream.slot + 1U == slots_of(stream.queue) ? std::uint16_t{0} : static_cast<std::uint16_t>(stream.slot + 1);
        ++posted;
        bytes += head.bytes;
        if (stream.queue != config_.queues) {
            count_sent(link, 1);
        }
        enqueue(number_of_stream);
    }
    return posted;
}

std::uint32_t Node::post_answers() {
    std::uint32_t posted = 0;
    for (std::size_t left = answers_due_.size(); left > 0; --left) {
        const std::uint32_t number_of_stream = answers_due_.front();
        answers_due_.pop();
        Inbound& stream = inbound_[number_of_stream];
        Link& link = links_[stream.link];
        Head head;
        head.run = run_;
        head.sequence = stream.expected - 1;
        head.position = stream.position;
        head.bytes = bytes_of(config_, stream.queue);
        head.queue = stream.queue;
        head.answer = 1;
        Post post = Post::again;
        if (!link.blocked) {
            post = write(link, head, stream.position, link.partner.answers_there + answer_slot(stream.queue) * stride_,
                         static_cast<std::uint16_t>(stream.queue | answer_bit), Token{0});
        }
        if (post == Post::again) {
            answers_due_.must_push(number_of_stream);
            continue;
        }
        if (post == Post::refused) {
            continue;
        }
        ++posted;
        ++counters_.answers_sent;
        advance(stream.position);
    }
    return posted;
}

}  // namespace incast::net
