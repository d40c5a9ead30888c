// The mock device: the functions of libibverbs.
#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string>

#include "mock_objects.h"

using namespace incast::mock_verbs;

namespace {
int still_used(const char* what) {
    world().broke(Rule::in_use, what);
    return EBUSY;
}
}  // namespace

#undef ibv_reg_mr
#undef ibv_query_port

extern "C" {

const char* ibv_get_device_name(ibv_device* device) {
    return device->name;
}

const char* ibv_wc_status_str(ibv_wc_status status) {
    switch (status) {
        case IBV_WC_RETRY_EXC_ERR:
            return "transport retry counter exceeded";
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return "RNR retry counter exceeded";
        case IBV_WC_REM_ACCESS_ERR:
            return "remote access error";
        case IBV_WC_WR_FLUSH_ERR:
            return "Work Request Flushed Error";
        default:
            return "another error";
    }
}

int ibv_query_device(ibv_context*, ibv_device_attr* to) {
    const Entered entered;
    const Limits& limits = world().limits;
    *to = {};
    to->max_qp = limits.max_qp;
    to->max_qp_wr = limits.max_qp_wr;
    to->max_sge = limits.max_sge;
    to->max_cqe = limits.max_cqe;
    to->max_srq_wr = limits.max_srq_wr;
    to->phys_port_cnt = 1;
    to->max_qp_rd_atom = reads_at_once;
    to->max_qp_init_rd_atom = reads_at_once;
    return 0;
}

int ibv_query_port(ibv_context*, std::uint8_t, _compat_ibv_port_attr* to) {
    const Entered entered;
    auto& port = *reinterpret_cast<ibv_port_attr*>(to);
    port.max_msg_sz = world().limits.max_msg_sz;
    const Port& own = world().port;
    port.active_mtu = static_cast<ibv_mtu>(own.mtu);
    port.state = own.is_active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    port.lid = own.lid;
    port.link_layer = own.is_infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
    port.flags = own.needs_grh ? std::uint8_t{IBV_QPF_GRH_REQUIRED} : std::uint8_t{0};
    return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
    auto* const made = new Domain{};
    made->context = context;
    return made;
}

int ibv_dealloc_pd(ibv_pd* domain) {
    const Entered entered;
    if (static_cast<Domain*>(domain)->users > 0) return still_used("a protection domain");
    delete static_cast<Domain*>(domain);
    return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t length, int access) {
    const Entered entered;
    World& here = world();
    if (here.failing_registrations > 0) {
        --here.failing_registrations;
        errno = here.registration_error;
        return nullptr;
    }
    auto* const made = new Registration{};
    made->context = &here.context;
    made->pd = domain;
    made->addr = address;
    made->length = length;
    made->access = access;
    made->lkey = here.next_key++;
    made->rkey = here.next_key++;
    here.registrations[made->lkey] = here.registrations[made->rkey] = made;
    ++static_cast<Domain*>(domain)->users;
    ++here.counts.registrations;
    return made;
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, std::size_t length, std::uint64_t, unsigned int access) {
    return ibv_reg_mr(domain, address, length, static_cast<int>(access));
}

int ibv_dereg_mr(ibv_mr* memory) {
    const Entered entered;
    --static_cast<Domain*>(memory->pd)->users;
    world().registrations.erase(memory->lkey);
    world().registrations.erase(memory->rkey);
    delete static_cast<Registration*>(memory);
    return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
    auto* const made = new Channel{};
    made->context = context;
    made->fd = made->signal.fd;
    return made;
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
    const Entered entered;
    if (channel->refcnt > 0) return still_used("a completion channel");
    delete static_cast<Channel*>(channel);
    return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel, int) {
    const Entered entered;
    if (entries < 1 || entries > world().limits.max_cqe) {
        errno = EINVAL;
        return nullptr;
    }
    auto* const made = new Queue{};
    made->context = context;
    made->channel = channel;
    made->cq_context = cq_context;
    made->cqe = entries;
    if (channel != nullptr) ++channel->refcnt;
    return made;
}

int ibv_destroy_cq(ibv_cq* cq) {
    const Entered entered;
    auto* const queue = static_cast<Queue*>(cq);
    if (queue->users > 0) return still_used("a completion queue");
    if (cq->channel != nullptr) {
        auto& channel = static_cast<Channel&>(*cq->channel);
        --channel.refcnt;
        std::erase(channel.rung, queue);
    }
    delete queue;
    return 0;
}

int ibv_get_cq_event(ibv_comp_channel* from, ibv_cq** cq, void** cq_context) {
    const Entered entered;
    auto& channel = static_cast<Channel&>(*from);
    if (channel.rung.empty()) {
        errno = EAGAIN;
        return -1;
    }
    *cq = channel.rung.front();
    *cq_context = (*cq)->cq_context;
    channel.rung.pop_front();
    channel.signal.set(!channel.rung.empty());
    return 0;
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned int many) {
    const Entered entered;
    static_cast<Queue*>(cq)->unacknowledged -= static_cast<int>(many);
}

ibv_srq* ibv_create_srq(ibv_pd* domain, ibv_srq_init_attr* wanted) {
    const Entered entered;
    if (wanted->attr.max_wr > static_cast<std::uint32_t>(world().limits.max_srq_wr)) {
        errno = EINVAL;
        return nullptr;
    }
    auto* const made = new SharedQueue{};
    made->context = &world().context;
    made->pd = domain;
    made->max_wr = wanted->attr.max_wr;
    ++static_cast<Domain*>(domain)->users;
    world().shared.insert(made);
    return made;
}

int ibv_destroy_srq(ibv_srq* srq) {
    const Entered entered;
    auto* const shared = static_cast<SharedQueue*>(srq);
    if (shared->users > 0) return still_used("a shared receive queue");
    --static_cast<Domain*>(srq->pd)->users;
    world().shared.erase(shared);
    delete shared;
    return 0;
}

}  // extern "C"
