// The mock device: what connections without rdma_cm need of libibverbs.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <arpa/inet.h>

#include "mock_objects.h"

using namespace incast::mock_verbs;

namespace {

struct Step {
    ibv_qp_state from;
    ibv_qp_state to;
    int attributes;
};
// InfiniBand architecture specification, table of queue pair state transitions: those that a reliable connection needs.
constexpr std::array<Step, 3> steps{
    {{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
     {IBV_QPS_INIT, IBV_QPS_RTR,
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
          IBV_QP_MIN_RNR_TIMER},
     {IBV_QPS_RTR, IBV_QPS_RTS,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC}}};

void set_receiving(Pair& pair, const ibv_qp_attr& to) {
    World& here = world();
    const auto found = here.pairs.find(to.dest_qp_num);
    pair.peer = found == here.pairs.end() ? nullptr : found->second;
    pair.rq_psn = to.rq_psn;
    here.path = {.lid = to.ah_attr.dlid,
                 .service_level = to.ah_attr.sl,
                 .traffic_class = to.ah_attr.grh.traffic_class,
                 .is_global = to.ah_attr.is_global != 0,
                 .gid_index = to.ah_attr.grh.sgid_index,
                 .mtu = static_cast<std::uint32_t>(to.path_mtu),
                 .reads_of_peer = to.max_dest_rd_atomic};
}

void set_sending(Pair& pair, const ibv_qp_attr& to) {
    Path& path = world().path;
    pair.sq_psn = to.sq_psn;
    pair.rnr_retry = to.rnr_retry;
    path.timeout = to.timeout;
    path.retry = to.retry_cnt;
    path.rnr_retry = to.rnr_retry;
    path.reads = to.max_rd_atomic;
}

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
    const Entered entered;
    auto** const list = new ibv_device*[2]{&world().device, nullptr};
    *count = world().is_removed ? 0 : 1;
    return list;
}

void ibv_free_device_list(ibv_device** list) {
    delete[] list;
}

ibv_context* ibv_open_device(ibv_device* device) {
    const Entered entered;
    auto* const made = new Opened{};
    static_cast<verbs_context&>(*made) = world().extended;
    made->context.device = device;
    made->context.async_fd = made->signal.fd;
    made->number = world().devices_opened++;
    world().opened.insert(made);
    return &made->context;
}

int ibv_close_device(ibv_context* context) {
    const Entered entered;
    auto* const opened = static_cast<Opened*>(verbs_get_ctx(context));
    world().opened.erase(opened);
    delete opened;
    return 0;
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* to) {
    const Entered entered;
    auto& opened = static_cast<Opened&>(*verbs_get_ctx(context));
    if ((!world().is_removed && !opened.is_ended) || std::exchange(opened.is_told, true)) {
        errno = EAGAIN;
        return -1;
    }
    opened.signal.set(false);
    to->event_type = IBV_EVENT_DEVICE_FATAL;
    return 0;
}

void ibv_ack_async_event(ibv_async_event*) {}

ssize_t _ibv_query_gid_table(ibv_context*, ibv_gid_entry* to, std::size_t most, std::uint32_t, std::size_t) {
    const Entered entered;
    const Port& port = world().port;
    std::size_t count = 0;
    for (; count < std::min(most, port.gids.size()); ++count) {
        ibv_gid_entry entry{};
        if (::inet_pton(AF_INET6, port.gids[count].c_str(), entry.gid.raw) != 1) {
            entry.gid.raw[10] = entry.gid.raw[11] = 0xff;
            (void)::inet_pton(AF_INET, port.gids[count].c_str(), entry.gid.raw + 12);
        }
        entry.gid_index = static_cast<std::uint32_t>(count);
        entry.port_num = 1;
        entry.gid_type = port.is_infiniband ? IBV_GID_TYPE_IB
                         : count == 0       ? IBV_GID_TYPE_ROCE_V1
                                            : IBV_GID_TYPE_ROCE_V2;
        to[count] = entry;
    }
    return static_cast<ssize_t>(count);
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
    const Entered entered;
    Pair* const made = create_pair(domain, *wanted);
    if (made == nullptr) return nullptr;
    made->by_hand = true;
    made->state = IBV_QPS_RESET;
    return made;
}

int ibv_destroy_qp(ibv_qp* qp) {
    const Entered entered;
    (void)destroy_pair(static_cast<Pair*>(qp));
    return 0;
}

int ibv_query_ece(ibv_qp* qp, ibv_ece* to) {
    const Entered entered;
    const auto& opened = static_cast<const Opened&>(*verbs_get_ctx(qp->context));
    if (opened.ece_vendor == 0) return EOPNOTSUPP;
    const bool is_connected = qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS;
    *to = {opened.ece_vendor, is_connected ? static_cast<Pair*>(qp)->ece : opened.ece_options, 0};
    return 0;
}

int ibv_set_ece(ibv_qp* qp, ibv_ece* to) {
    const Entered entered;
    const auto& opened = static_cast<const Opened&>(*verbs_get_ctx(qp->context));
    if (opened.ece_vendor == 0) return EOPNOTSUPP;
    if (qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_INIT)
        world().broke(Rule::pair_state, "ECE in state " + std::to_string(qp->state));
    if (to->vendor_id != opened.ece_vendor || to->comp_mask != 0) return EINVAL;
    static_cast<Pair*>(qp)->ece = to->options & opened.ece_options;
    return 0;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* to, int mask) {
    const Entered entered;
    World& here = world();
    auto& pair = static_cast<Pair&>(*qp);
    if ((mask & IBV_QP_STATE) == 0) return EINVAL;
    if (here.is_removed) return EIO;
    if (to->qp_state == IBV_QPS_ERR) {
        to_error(pair);
        return 0;
    }
    const auto* const step = std::ranges::find_if(
        steps, [&](const Step& each) { return each.from == pair.state && each.to == to->qp_state; });
    if (!pair.by_hand || step == steps.end()) {
        here.broke(Rule::pair_state, "from " + std::to_string(pair.state) + " to " + std::to_string(to->qp_state));
        return EINVAL;
    }
    if (mask != step->attributes) {
        here.broke(Rule::attributes, "mask " + std::to_string(mask) + " for state " + std::to_string(to->qp_state));
        return EINVAL;
    }
    if (to->qp_state == IBV_QPS_RTR) {
        if (here.failing_paths > 0) {
            --here.failing_paths;
            return here.path_error;
        }
        // RoCE knows no other way than by GIDs.
        if (!here.port.is_infiniband && to->ah_attr.is_global == 0) return EINVAL;
        set_receiving(pair, *to);
    } else if (to->qp_state == IBV_QPS_RTS) {
        set_sending(pair, *to);
    }
    pair.state = to->qp_state;
    return 0;
}

}  // extern "C"
