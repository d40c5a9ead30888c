// The mock device: memory, queues, and what becomes of a request.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "mock_objects.h"

namespace incast::mock_verbs {

namespace {

/// Addresses are numbers in requests.
std::byte* memory_at(std::uint64_t address) {
    return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

bool is_covered(std::uint32_t key, std::uint64_t address, std::uint64_t length, int access, const ibv_pd* domain) {
    const auto found = world().registrations.find(key);
    if (found == world().registrations.end()) return false;
    const Registration& memory = *found->second;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.addr);
    return memory.pd == domain && (memory.access & access) == access && address >= begin &&
           address - begin <= memory.length && length <= memory.length - (address - begin);
}

void complete(Queue& queue, const ibv_wc& completion) {
    if (queue.completions.size() >= static_cast<std::size_t>(queue.cqe))
        world().broke(Rule::completions_overflow, "a queue of " + std::to_string(queue.cqe));
    queue.completions.push_back(completion);
    if (!queue.is_armed || queue.channel == nullptr) return;
    queue.is_armed = false;
    ++queue.unacknowledged;
    auto& channel = static_cast<Channel&>(*queue.channel);
    channel.rung.push_back(&queue);
    channel.signal.set(true);
}

void complete_send(Pair& pair, const ibv_send_wr& wr, ibv_wc_status status) {
    if (status == IBV_WC_SUCCESS && (wr.send_flags & IBV_SEND_SIGNALED) == 0) return;
    if ((wr.send_flags & IBV_SEND_SIGNALED) == 0) pair.said_to_end.push_back(wr.wr_id);
    ibv_wc completion{};
    completion.wr_id = wr.wr_id;
    completion.status = status;
    completion.opcode = wr.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ
                        : wr.opcode == IBV_WR_SEND    ? IBV_WC_SEND
                                                      : IBV_WC_RDMA_WRITE;
    completion.qp_num = pair.qp_num;
    complete(static_cast<Queue&>(*pair.send_cq), completion);
}

std::uint64_t length_of(const ibv_send_wr& wr) {
    std::uint64_t length = 0;
    for (int part = 0; part < wr.num_sge; ++part)
        length += wr.sg_list[part].length;
    return length;
}

/// The bytes of a request, one part after the other.
void gather(const Sent& sent, std::byte* to) {
    if ((sent.wr.send_flags & IBV_SEND_INLINE) != 0) {
        std::copy(sent.inlined.begin(), sent.inlined.end(), to);
        return;
    }
    for (int part = 0; part < sent.wr.num_sge; ++part) {
        const ibv_sge& each = sent.parts[static_cast<std::size_t>(part)];
        std::memcpy(to, memory_at(each.addr), each.length);
        to += each.length;
    }
}

/// One that is connected by hand drops what does not come from its peer with the number that it waits for.
bool receives_from(const Pair& peer, const Pair& from) {
    if (!peer.by_hand) return peer.state == IBV_QPS_RTS;
    return (peer.state == IBV_QPS_RTS || peer.state == IBV_QPS_RTR) && peer.peer == &from && peer.rq_psn == from.sq_psn;
}

bool needs_receive(const ibv_send_wr& wr) {
    return wr.opcode == IBV_WR_SEND || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/// A request waits for reads. Only iWARP has reads under way.
bool is_blocked(const Pair& pair) {
    if (pair.reading.empty() || pair.waiting.empty()) return false;
    const ibv_send_wr& next = pair.waiting.front().wr;
    return next.opcode == IBV_WR_RDMA_READ ? pair.reading.size() >= std::size_t{reads_at_once}
                                           : (next.send_flags & IBV_SEND_FENCE) != 0;
}

/// What became of the first request that waits; nothing: it waits on.
enum class Became : std::uint8_t { waits, ended };

Became carry_out_one(Pair& pair, std::deque<Sent>& from) {
    World& here = world();
    Sent& sent = from.front();
    const ibv_send_wr& wr = sent.wr;
    const std::uint64_t length = (wr.send_flags & IBV_SEND_INLINE) != 0 ? sent.inlined.size() : length_of(wr);
    const auto failed = [&](ibv_wc_status status) {
        complete_send(pair, wr, status);
        from.pop_front();
        to_error(pair);
        return Became::ended;
    };
    if (pair.state == IBV_QPS_ERR) return failed(IBV_WC_WR_FLUSH_ERR);
    if ((wr.send_flags & IBV_SEND_INLINE) == 0) {
        const int access = wr.opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
        for (int part = 0; part < wr.num_sge; ++part) {
            const ibv_sge& each = sent.parts[static_cast<std::size_t>(part)];
            if (is_covered(each.lkey, each.addr, each.length, access, pair.pd)) continue;
            here.broke(Rule::local_key, std::to_string(each.length) + " bytes of a request");
            return failed(IBV_WC_LOC_PROT_ERR);
        }
    }
    if (length > here.limits.max_msg_sz) {
        here.broke(Rule::message_too_long, std::to_string(length) + " bytes");
        return failed(IBV_WC_LOC_LEN_ERR);
    }
    Pair* const peer = pair.peer;
    if (here.is_cut || peer == nullptr || !receives_from(*peer, pair)) return failed(IBV_WC_RETRY_EXC_ERR);
    const bool is_rdma = wr.opcode != IBV_WR_SEND;
    if (is_rdma && length > 0) {
        const int access = wr.opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
        if (!is_covered(wr.wr.rdma.rkey, wr.wr.rdma.remote_addr, length, access, peer->pd)) {
            here.broke(Rule::remote_key, std::to_string(length) + " bytes");
            to_error(*peer);
            return failed(IBV_WC_REM_ACCESS_ERR);
        }
    }
    auto& receives = static_cast<SharedQueue&>(*peer->srq).receives;
    if (needs_receive(wr) && receives.empty()) {
        here.broke(Rule::receiver_not_ready, "at queue pair " + std::to_string(peer->qp_num));
        if (pair.rnr_retry == 7) return Became::waits;
        return failed(IBV_WC_RNR_RETRY_EXC_ERR);
    }
    if (peer->missed) {
        complete(static_cast<Queue&>(*peer->recv_cq), *peer->missed);
        peer->missed.reset();
    }
    auto* const remote = memory_at(wr.wr.rdma.remote_addr);
    if (wr.opcode == IBV_WR_RDMA_READ) {
        const std::byte* at = remote;
        for (int part = 0; part < wr.num_sge; ++part) {
            const ibv_sge& each = sent.parts[static_cast<std::size_t>(part)];
            std::memcpy(memory_at(each.addr), at, each.length);
            at += each.length;
        }
    } else if (is_rdma && length > 0) {
        gather(sent, remote);
    }
    if (needs_receive(wr)) {
        const Receive receive = receives.front();
        receives.pop_front();
        ibv_wc completion{};
        completion.wr_id = receive.wr_id;
        completion.qp_num = peer->qp_num;
        completion.byte_len = static_cast<std::uint32_t>(length);
        completion.opcode = is_rdma ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
        if (is_rdma) {
            completion.imm_data = wr.imm_data;
            completion.wc_flags = IBV_WC_WITH_IMM;
        } else {
            const ibv_sge room = receive.parts.empty() ? ibv_sge{} : receive.parts.front();
            if (length > room.length ||
                !is_covered(room.lkey, room.addr, length, IBV_ACCESS_LOCAL_WRITE, peer->srq->pd)) {
                here.broke(length > room.length ? Rule::message_too_long : Rule::local_key, "a receive");
                to_error(*peer);
                return failed(IBV_WC_REM_INV_REQ_ERR);
            }
            gather(sent, memory_at(room.addr));
        }
        if (std::exchange(peer->misses_next, false)) {
            peer->missed = completion;
        } else {
            complete(static_cast<Queue&>(*peer->recv_cq), completion);
        }
    }
    complete_send(pair, wr, IBV_WC_SUCCESS);
    from.pop_front();
    return Became::ended;
}

int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
    const Entered entered;
    World& here = world();
    auto& pair = static_cast<Pair&>(*qp);
    std::uint64_t chain = 0;
    int error = 0;
    ++here.counts.post_send;
    for (ibv_send_wr* wr = first; wr != nullptr; wr = wr->next, ++chain) {
        const bool is_inline = (wr->send_flags & IBV_SEND_INLINE) != 0;
        if (pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_ERR) {
            here.broke(Rule::pair_state, "state " + std::to_string(pair.state));
            error = EINVAL;
        } else if (pair.order.size() >= pair.cap.max_send_wr) {
            here.broke(pair.said_to_end.empty() ? Rule::never_signalled : Rule::send_queue_full,
                       "a queue of " + std::to_string(pair.cap.max_send_wr));
            error = ENOMEM;
        } else if (wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > pair.cap.max_send_sge) {
            here.broke(Rule::too_many_parts, std::to_string(wr->num_sge));
            error = EINVAL;
        } else if (is_inline && (length_of(*wr) > pair.cap.max_inline_data || wr->opcode == IBV_WR_RDMA_READ)) {
            here.broke(Rule::inline_too_large, std::to_string(length_of(*wr)) + " bytes");
            error = EINVAL;
        } else if (here.device.transport_type == IBV_TRANSPORT_IWARP && wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
            error = EINVAL;
        }
        if (error != 0) {
            *bad = wr;
            break;
        }
        Sent& sent = pair.waiting.emplace_back();
        sent.wr = *wr;
        std::copy_n(wr->sg_list, wr->num_sge, sent.parts.begin());
        sent.wr.sg_list = sent.parts.data();
        if (is_inline) {
            sent.inlined.resize(length_of(*wr));
            Sent plain = sent;
            plain.wr.send_flags = 0;
            gather(plain, sent.inlined.data());
            ++here.counts.inlined;
        }
        pair.order.push_back(wr->wr_id);
        if ((wr->send_flags & IBV_SEND_SIGNALED) != 0) {
            pair.said_to_end.push_back(wr->wr_id);
            ++here.counts.signalled;
        }
    }
    here.counts.requests += chain;
    here.counts.largest_chain = std::max(here.counts.largest_chain, chain);
    carry_out(pair);
    return error;
}

int poll_cq(ibv_cq* cq, int many, ibv_wc* to) {
    const Entered entered;
    auto& queue = static_cast<Queue&>(*cq);
    int count = 0;
    // Reads end late: by the poll after the one that saw all that has overtaken them.
    for (const auto& [number, pair] : world().pairs) {
        if (!queue.completions.empty() || pair->send_cq != cq || pair->reading.empty() || world().holds) continue;
        if (pair->peer != nullptr && is_blocked(*pair->peer)) continue;
        finish_reads(*pair);
        carry_out(*pair);
    }
    for (; count < many && !queue.completions.empty(); ++count) {
        to[count] = queue.completions.front();
        queue.completions.pop_front();
        const auto found = world().pairs.find(to[count].qp_num);
        if (found == world().pairs.end() || found->second->send_cq != cq || to[count].opcode >= IBV_WC_RECV) continue;
        // Its place and those of all before it are free from here on, and not earlier.
        Pair& pair = *found->second;
        if (to[count].opcode != IBV_WC_RDMA_READ && !pair.reading.empty()) continue;  // overtook it
        while (!pair.order.empty()) {
            const std::uint64_t freed = pair.order.front();
            pair.order.pop_front();
            if (!pair.said_to_end.empty() && pair.said_to_end.front() == freed) pair.said_to_end.pop_front();
            if (freed == to[count].wr_id) break;
        }
    }
    return count;
}

int req_notify_cq(ibv_cq* cq, int) {
    const Entered entered;
    static_cast<Queue&>(*cq).is_armed = true;
    return 0;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) {
    const Entered entered;
    World& here = world();
    auto& shared = static_cast<SharedQueue&>(*srq);
    ++here.counts.post_receive;
    for (ibv_recv_wr* wr = first; wr != nullptr; wr = wr->next) {
        if (shared.receives.size() >= shared.max_wr) {
            here.broke(Rule::receive_queue_full, "a queue of " + std::to_string(shared.max_wr));
            *bad = wr;
            return ENOMEM;
        }
        for (int part = 0; part < wr->num_sge; ++part) {
            const ibv_sge& each = wr->sg_list[part];
            if (is_covered(each.lkey, each.addr, each.length, IBV_ACCESS_LOCAL_WRITE, srq->pd)) continue;
            here.broke(Rule::local_key, "of a receive");
            *bad = wr;
            return EINVAL;
        }
        shared.receives.push_back({wr->wr_id, {wr->sg_list, wr->sg_list + wr->num_sge}});
    }
    for (const auto& [number, pair] : here.pairs) {
        if (pair->peer != nullptr && pair->peer->srq == srq) carry_out(*pair);
    }
    return 0;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input*, ibv_device_attr_ex* to, std::size_t) {
    *to = {};
    (void)ibv_query_device(context, &to->orig_attr);
    const Entered entered;
    const Limits& limits = world().limits;
    to->packet_pacing_caps = {limits.rate_min, limits.rate_max, limits.rated_types};
    return 0;
}

int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* to) {
    const Entered entered;
    World& here = world();
    if (here.failing_rates > 0) {
        --here.failing_rates;
        return here.rate_error;
    }
    if (qp->state != IBV_QPS_RTS) here.broke(Rule::pair_state, "a rate limit in state " + std::to_string(qp->state));
    static_cast<Pair*>(qp)->rate = to->rate_limit;
    return 0;
}

}  // namespace

Signal::Signal() : fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
Signal::~Signal() {
    ::close(fd);
}
void Signal::set(bool readable) {
    if (readable == readable_) return;
    readable_ = readable;
    eventfd_t value = 1;
    (void)(readable ? ::eventfd_write(fd, 1) : ::eventfd_read(fd, &value));
}

World::World() {
    device.transport_type = IBV_TRANSPORT_IB;
    std::snprintf(device.name, sizeof device.name, "mock_0");
    context.device = &device;
    context.ops.poll_cq = poll_cq;
    context.ops.req_notify_cq = req_notify_cq;
    context.ops.post_srq_recv = post_srq_recv;
    context.ops.post_send = post_send;
    context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    extended.sz = sizeof extended;
    extended.query_device_ex = query_device_ex;
    extended.modify_qp_rate_limit = modify_qp_rate_limit;
}

namespace {
thread_local bool inside = false;
}

Entered::Entered() {
    inside = true;
    world().mutex.lock();
}
Entered::~Entered() {
    world().mutex.unlock();
    inside = false;
}
bool is_inside() {
    return inside;
}

World& world() {
    static World only;
    return only;
}

void World::broke(Rule rule, const std::string& what) {
    if (!keeps_violations) {
        std::fprintf(stderr, "mock device: %s: %s\n", to_string(rule), what.c_str());
        std::abort();
    }
    violations.push_back(rule);
}

void carry_out(Pair& pair) {
    const bool reads_lag = world().device.transport_type == IBV_TRANSPORT_IWARP;
    while (!pair.waiting.empty() && !(world().holds && pair.state != IBV_QPS_ERR)) {
        const ibv_send_wr& next = pair.waiting.front().wr;
        if (pair.state == IBV_QPS_ERR) finish_reads(pair);
        if (reads_lag && is_blocked(pair)) return;
        if (reads_lag && next.opcode == IBV_WR_RDMA_READ && pair.state != IBV_QPS_ERR) {
            pair.reading.push_back(std::move(pair.waiting.front()));
            pair.waiting.pop_front();
            pair.reading.back().wr.sg_list = pair.reading.back().parts.data();
            continue;
        }
        if (carry_out_one(pair, pair.waiting) == Became::waits) return;
    }
}

void finish_reads(Pair& pair) {
    while (!pair.reading.empty())
        (void)carry_out_one(pair, pair.reading);
}

void to_error(Pair& pair) {
    if (pair.state == IBV_QPS_ERR) return;
    pair.state = IBV_QPS_ERR;
    finish_reads(pair);
    carry_out(pair);
}

void connect_pairs(Pair& a, Pair& b) {
    a.peer = &b;
    b.peer = &a;
    a.state = b.state = IBV_QPS_RTS;
}

Pair* create_pair(ibv_pd* domain, ibv_qp_init_attr& wanted) {
    World& here = world();
    if (here.failing_pairs > 0) {
        --here.failing_pairs;
        errno = here.pair_error;
        return nullptr;
    }
    if (wanted.cap.max_inline_data > here.limits.max_inline ||
        wanted.cap.max_send_wr > static_cast<std::uint32_t>(here.limits.max_qp_wr) ||
        here.pairs.size() >= static_cast<std::size_t>(here.limits.max_qp)) {
        errno = EINVAL;
        return nullptr;
    }
    auto* const pair = new Pair{};
    pair->context = domain->context;
    pair->pd = domain;
    pair->send_cq = wanted.send_cq;
    pair->recv_cq = wanted.recv_cq;
    pair->srq = wanted.srq;
    pair->qp_num = here.next_pair++;
    pair->state = IBV_QPS_INIT;
    pair->qp_type = wanted.qp_type;
    pair->cap = wanted.cap;
    ++static_cast<Domain*>(domain)->users;
    ++static_cast<Queue*>(wanted.send_cq)->users;
    ++static_cast<Queue*>(wanted.recv_cq)->users;
    ++static_cast<SharedQueue*>(wanted.srq)->users;
    here.pairs[pair->qp_num] = pair;
    return pair;
}

bool destroy_pair(Pair* pair) {
    for (const auto& [number, other] : world().pairs)
        if (other->peer == pair) other->peer = nullptr;
    --static_cast<Domain*>(pair->pd)->users;
    --static_cast<Queue*>(pair->send_cq)->users;
    --static_cast<Queue*>(pair->recv_cq)->users;
    --static_cast<SharedQueue*>(pair->srq)->users;
    world().pairs.erase(pair->qp_num);
    delete pair;
    return true;
}

}  // namespace incast::mock_verbs
