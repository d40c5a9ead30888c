// The mock device sees every rule broken that it knows: each once, by hand.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "mock_verbs.h"

namespace incast::mock_verbs {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint32_t depth = 4;
constexpr std::uint32_t receives = 2;

/// A queue pair with all that it needs, and an id that it is of.
struct End {
    rdma_event_channel* events = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    ibv_pd* domain = nullptr;
    ibv_cq* queue = nullptr;
    ibv_srq* shared = nullptr;
    ibv_mr* registration = nullptr;
    std::vector<std::byte> memory = std::vector<std::byte>(4096);

    void furnish(int entries) {
        domain = ibv_alloc_pd(id->verbs);
        queue = ibv_create_cq(id->verbs, entries, nullptr, nullptr, 0);
        ibv_srq_init_attr wanted{};
        wanted.attr = {.max_wr = receives, .max_sge = 1, .srq_limit = 0};
        shared = ibv_create_srq(domain, &wanted);
        registration =
            ibv_reg_mr_iova2(domain, memory.data(), memory.size(), 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        ibv_qp_init_attr pair{};
        pair.send_cq = pair.recv_cq = queue;
        pair.srq = shared;
        pair.qp_type = IBV_QPT_RC;
        pair.cap = {
            .max_send_wr = depth, .max_recv_wr = 0, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16};
        ASSERT_EQ(rdma_create_qp(id, domain, &pair), 0);
    }
    [[nodiscard]] ibv_sge part(std::uint32_t bytes) const {
        return {reinterpret_cast<std::uintptr_t>(memory.data()), bytes, registration->lkey};
    }
    rdma_cm_event_type next_event(rdma_cm_id** of = nullptr) const {
        rdma_cm_event* event = nullptr;
        if (rdma_get_cm_event(events, &event) != 0) return RDMA_CM_EVENT_TIMEWAIT_EXIT;
        const rdma_cm_event_type kind = event->event;
        if (of != nullptr) *of = event->id;
        rdma_ack_cm_event(event);
        return kind;
    }
    int receive(std::uint32_t bytes) const {
        ibv_sge room = part(bytes);
        ibv_recv_wr wr{.wr_id = 1, .next = nullptr, .sg_list = &room, .num_sge = 1};
        ibv_recv_wr* bad = nullptr;
        return ibv_post_srq_recv(shared, &wr, &bad);
    }
    void give_back() {
        if (id != nullptr && id->qp != nullptr) rdma_destroy_qp(id);
        if (id != nullptr) rdma_destroy_id(id);
        if (shared != nullptr) ibv_destroy_srq(shared);
        if (queue != nullptr) ibv_destroy_cq(queue);
        if (registration != nullptr) ibv_dereg_mr(registration);
        if (domain != nullptr) ibv_dealloc_pd(domain);
        rdma_destroy_event_channel(events);
    }
};

class Rules : public testing::Test {
protected:
    void SetUp() override {
        reset();
        keep_violations(true);
        connect();
    }
    void TearDown() override {
        a_.give_back();
        b_.give_back();
        rdma_destroy_id(listener_);
        rdma_destroy_event_channel(listening_);
        reset();
        keep_violations(false);
    }

    void connect(int entries = 64) {
        listening_ = rdma_create_event_channel();
        ASSERT_EQ(rdma_create_id(listening_, &listener_, nullptr, RDMA_PS_TCP), 0);
        sockaddr_in at{};
        at.sin_family = AF_INET;
        ASSERT_EQ(rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&at)), 0);
        ASSERT_EQ(rdma_listen(listener_, 1), 0);
        at.sin_port = rdma_get_src_port(listener_);
        ASSERT_EQ(rdma_create_id(a_.events, &a_.id, nullptr, RDMA_PS_TCP), 0);
        ASSERT_EQ(rdma_resolve_addr(a_.id, nullptr, reinterpret_cast<sockaddr*>(&at), 1), 0);
        ASSERT_EQ(a_.next_event(), RDMA_CM_EVENT_ADDR_RESOLVED);
        a_.furnish(entries);
        rdma_conn_param with{};
        with.rnr_retry_count = 1;
        ASSERT_EQ(rdma_connect(a_.id, &with), 0);
        rdma_event_channel* const own = std::exchange(b_.events, listening_);
        ASSERT_EQ(b_.next_event(&b_.id), RDMA_CM_EVENT_CONNECT_REQUEST);
        b_.events = own;
        b_.furnish(entries);
    }
    void accept() {
        rdma_conn_param with{};
        ASSERT_EQ(rdma_accept(b_.id, &with), 0);
    }

    /// Of a's `bytes`, or of nothing; signalled.
    struct Wanted {
        ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
        std::uint32_t bytes = 0;
        unsigned flags = IBV_SEND_SIGNALED;
        std::uint32_t rkey = 0;
        std::uint64_t offset = 0;
        int parts = 1;
    };
    int post(const Wanted& wanted) {
        ibv_sge part = a_.part(wanted.bytes);
        ibv_send_wr wr{};
        wr.wr_id = ++posted_;
        wr.sg_list = &part;
        wr.num_sge = wanted.bytes > 0 ? wanted.parts : 0;
        wr.opcode = wanted.opcode;
        wr.send_flags = wanted.flags;
        wr.wr.rdma = {reinterpret_cast<std::uintptr_t>(b_.memory.data()) + wanted.offset, wanted.rkey};
        ibv_send_wr* bad = nullptr;
        return ibv_post_send(a_.id->qp, &wr, &bad);
    }
    ibv_wc_status next_status() {
        ibv_wc completion{};
        return ibv_poll_cq(a_.queue, 1, &completion) == 1 ? completion.status : IBV_WC_GENERAL_ERR;
    }

    rdma_event_channel* listening_ = nullptr;
    rdma_cm_id* listener_ = nullptr;
    End a_;
    End b_;
    std::uint64_t posted_ = 0;
};

TEST_F(Rules, NothingIsSaidOfWhatIsRight) {
    accept();
    ASSERT_EQ(b_.receive(64), 0);
    EXPECT_EQ(post({.bytes = 8, .rkey = b_.registration->rkey, .offset = 4088}), 0);
    EXPECT_EQ(post({.opcode = IBV_WR_SEND, .bytes = 64}), 0);
    EXPECT_EQ(next_status(), IBV_WC_SUCCESS);
    EXPECT_EQ(next_status(), IBV_WC_SUCCESS);
    EXPECT_THAT(violations(), IsEmpty());
}

TEST_F(Rules, MoreThanASendQueueHolds) {
    accept();
    for (std::uint32_t number = 0; number < depth; ++number)
        EXPECT_EQ(post({}), 0);
    EXPECT_EQ(post({}), ENOMEM) << "what has ended takes up a place until its completion is polled";
    EXPECT_THAT(violations(), ElementsAre(Rule::send_queue_full));
    EXPECT_EQ(next_status(), IBV_WC_SUCCESS);
    EXPECT_EQ(post({}), 0);
}

TEST_F(Rules, ASendQueueThatNobodySignals) {
    accept();
    for (std::uint32_t number = 0; number < depth; ++number)
        EXPECT_EQ(post({.flags = 0}), 0);
    EXPECT_EQ(post({}), ENOMEM);
    EXPECT_THAT(violations(), ElementsAre(Rule::never_signalled));
}

TEST_F(Rules, MoreThanAReceiveQueueHolds) {
    for (std::uint32_t number = 0; number < receives; ++number)
        EXPECT_EQ(b_.receive(64), 0);
    EXPECT_EQ(b_.receive(64), ENOMEM);
    EXPECT_THAT(violations(), ElementsAre(Rule::receive_queue_full));
}

TEST_F(Rules, MoreCompletionsThanTheirQueueHolds) {
    accept();
    ibv_cq* const large = std::exchange(a_.queue, ibv_create_cq(a_.id->verbs, 1, nullptr, nullptr, 0));
    rdma_destroy_qp(a_.id);
    rdma_destroy_qp(b_.id);
    ibv_destroy_cq(large);
    ibv_qp_init_attr pair{};
    pair.send_cq = pair.recv_cq = a_.queue;
    pair.srq = a_.shared;
    pair.cap = {.max_send_wr = depth, .max_recv_wr = 0, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    ASSERT_EQ(rdma_create_qp(a_.id, a_.domain, &pair), 0);
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(a_.id->qp, &error, IBV_QP_STATE), 0);
    EXPECT_EQ(post({}), 0);
    EXPECT_EQ(post({}), 0);
    EXPECT_THAT(violations(), ElementsAre(Rule::completions_overflow));
}

TEST_F(Rules, MorePartsThanAskedFor) {
    accept();
    EXPECT_EQ(post({.bytes = 8, .rkey = b_.registration->rkey, .parts = 2}), EINVAL);
    EXPECT_THAT(violations(), ElementsAre(Rule::too_many_parts));
}

TEST_F(Rules, MoreInlineThanAllowed) {
    accept();
    EXPECT_EQ(post({.bytes = 17, .flags = IBV_SEND_INLINE, .rkey = b_.registration->rkey}), EINVAL);
    EXPECT_THAT(violations(), ElementsAre(Rule::inline_too_large));
}

TEST_F(Rules, MemoryThatIsNotRegistered) {
    accept();
    EXPECT_EQ(post({.bytes = 4097, .rkey = b_.registration->rkey}), 0);
    EXPECT_EQ(next_status(), IBV_WC_LOC_PROT_ERR);
    EXPECT_THAT(violations(), ElementsAre(Rule::local_key));
    EXPECT_EQ(post({}), 0);
    EXPECT_EQ(next_status(), IBV_WC_WR_FLUSH_ERR) << "the queue pair is in error";
}

TEST_F(Rules, ThePeersMemory) {
    accept();
    EXPECT_EQ(post({.bytes = 8, .rkey = b_.registration->rkey, .offset = 4089}), 0);
    EXPECT_EQ(next_status(), IBV_WC_REM_ACCESS_ERR);
    EXPECT_THAT(violations(), ElementsAre(Rule::remote_key));
}

TEST_F(Rules, ReadsNeedTheRightToRead) {
    accept();
    EXPECT_EQ(post({.opcode = IBV_WR_RDMA_READ, .bytes = 8, .rkey = b_.registration->rkey}), 0);
    EXPECT_EQ(next_status(), IBV_WC_REM_ACCESS_ERR);
    EXPECT_THAT(violations(), ElementsAre(Rule::remote_key));
}

TEST_F(Rules, ASendThatDoesNotFitIntoItsReceive) {
    accept();
    ASSERT_EQ(b_.receive(63), 0);
    EXPECT_EQ(post({.opcode = IBV_WR_SEND, .bytes = 64}), 0);
    EXPECT_EQ(next_status(), IBV_WC_REM_INV_REQ_ERR);
    EXPECT_THAT(violations(), ElementsAre(Rule::message_too_long));
}

TEST_F(Rules, SendingBeforeThereIsAConnection) {
    EXPECT_EQ(post({}), EINVAL);
    EXPECT_THAT(violations(), ElementsAre(Rule::pair_state));
}

TEST_F(Rules, AQueuePairIsMovedStateByState) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = a_.queue;
    wanted.srq = a_.shared;
    wanted.qp_type = IBV_QPT_RC;
    ibv_qp* const pair = ibv_create_qp(a_.domain, &wanted);
    ASSERT_NE(pair, nullptr);
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RTR;
    EXPECT_EQ(ibv_modify_qp(pair, &to, IBV_QP_STATE), EINVAL);
    EXPECT_THAT(violations(), ElementsAre(Rule::pair_state)) << "the first one is INIT";
    to.qp_state = IBV_QPS_INIT;
    constexpr int all = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    EXPECT_EQ(ibv_modify_qp(pair, &to, all & ~IBV_QP_PORT), EINVAL);
    EXPECT_THAT(violations(), ElementsAre(Rule::pair_state, Rule::attributes));
    EXPECT_EQ(ibv_modify_qp(pair, &to, all), 0);
    EXPECT_EQ(ibv_modify_qp(a_.id->qp, &to, all), EINVAL) << "rdma_cm moves those of its own";
    EXPECT_EQ(violations().size(), 3U);
    EXPECT_EQ(ibv_destroy_qp(pair), 0);
}

TEST_F(Rules, SendsAndImmediatesNeedAReceive) {
    accept();
    EXPECT_EQ(post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM}), 0);
    EXPECT_EQ(next_status(), IBV_WC_RNR_RETRY_EXC_ERR);
    EXPECT_THAT(violations(), ElementsAre(Rule::receiver_not_ready));
}

TEST_F(Rules, PrivateDataThatDoesNotFit) {
    std::vector<std::byte> much(57);
    rdma_conn_param with{};
    with.private_data = much.data();
    with.private_data_len = 57;
    EXPECT_NE(rdma_connect(a_.id, &with), 0);
    EXPECT_THAT(violations(), ElementsAre(Rule::private_data));
}

TEST_F(Rules, GivingBackWhatIsInUse) {
    EXPECT_EQ(ibv_dealloc_pd(a_.domain), EBUSY);
    EXPECT_EQ(ibv_destroy_cq(a_.queue), EBUSY);
    EXPECT_EQ(ibv_destroy_srq(a_.shared), EBUSY);
    EXPECT_THAT(violations(), ElementsAre(Rule::in_use, Rule::in_use, Rule::in_use));
}

TEST_F(Rules, IwarpHasNoImmediates) {
    accept();
    set_iwarp(true);
    ASSERT_EQ(b_.receive(64), 0);
    EXPECT_EQ(post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM}), EINVAL);
    EXPECT_EQ(post({.opcode = IBV_WR_SEND, .bytes = 8}), 0);
    EXPECT_THAT(violations(), IsEmpty());
}

}  // namespace
}  // namespace incast::mock_verbs
