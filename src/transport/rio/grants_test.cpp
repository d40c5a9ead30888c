// What was granted to one peer is reached by no other, whatever that one does: with keys that it made up, and past the
// transport, with raw operations of SoftRIO.
#include <algorithm>
#include <array>
#include <cerrno>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "os/descriptor.h"
#include "support/rio_nodes.h"
#include "transport/blob.h"
#include "transport/rio/endpoint.h"

namespace incast::transport::rio {
namespace {

/// A fabric of each kind, that no other test is in.
struct Fresh {
    explicit Fresh(std::string_view kind) : name(fresh_fabric()) {
        if (kind != "udp") return;
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof address;
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        EXPECT_EQ(::bind(keeps_port.fd(), any, bytes), 0);
        EXPECT_EQ(::getsockname(keeps_port.fd(), any, &bytes), 0);
        name = "udp:loopback:" + std::to_string(ntohs(address.sin_port));
    }
    os::Descriptor keeps_port{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    std::string name;
};

class Grants : public testing::TestWithParam<const char*> {
protected:
    /// Ends when the nodes have polled so often that what is under way is there.
    Status outcome(Node& writer, std::initializer_list<Node*> nodes, Remote target, Token token) {
        const std::array<std::byte, 64> head{std::byte{0xEE}};
        EXPECT_EQ(writer.endpoint->write(Peer{0}, head, {}, {target, 0}, {}, token), Post::pending);
        for (const Time until = now() + 20 * ps_per_s; now() < until;) {
            for (Node* node : nodes) {
                for (const Event& event : node->poll())
                    if (node == &writer && event.kind == Event::Kind::completed && event.token == token)
                        return event.status;
            }
        }
        return Status::cancelled;
    }
};

TEST_P(Grants, TC_M14_WhoLiesReachesNothingOfWhatWasGrantedToOthers) {
    const Fresh fabric(GetParam());
    Node owner(0, {}, fabric.name);
    Node honest(1, {}, fabric.name);
    Node liar(2, {}, fabric.name);
    const Local others = owner.endpoint->allocate(8192).value();
    const Local own = owner.endpoint->allocate(8192).value();
    const Blob first = owner.endpoint->expose(others, {.peer = Peer{1}, .read = false}).value();  // before it is there
    join(owner, 0, honest, 1);
    join(owner, 0, liar, 2);
    const Blob second = owner.endpoint->expose(own, {.peer = Peer{2}, .read = false}).value();  // and after
    const auto is_untouched = [&] {
        return std::ranges::all_of(owner.endpoint->memory(others), [](std::byte each) { return each == std::byte{}; });
    };

    EXPECT_FALSE(liar.endpoint->import_key(Peer{0}, first)) << "for another node";
    Key forged;
    ASSERT_TRUE(from_blob(first, forged));
    ASSERT_NE(forged.place.is_guarded, 0U);
    const std::uint64_t address = forged.place.address;
    forged.peer = 2;
    const Remote stolen = liar.endpoint->import_key(Peer{0}, to_blob(forged)).value();
    EXPECT_EQ(outcome(liar, {&owner, &honest, &liar}, stolen, 7), Status::remote_fault);
    EXPECT_TRUE(is_untouched());

    // Past the transport: another handle of the same master port, as the same endpoint.
    const auto raw = api::MasterPort::open(2, O_NONBLOCK);
    ASSERT_TRUE(raw) << raw.error().message;
    Address of_owner;
    ASSERT_TRUE(from_blob(owner.endpoint->address(), of_owner));
    std::array<std::byte, 4096> lies{};
    lies.fill(std::byte{0xEE});
    for (const std::size_t bytes : {std::size_t{8}, lies.size()}) {
        const Bytes some = Bytes(lies).first(bytes);
        (void)raw->write(of_owner.destid, address, some, api::Completion::left).value();  // nobody answers on udp
        EXPECT_FALSE(raw->post(of_owner.destid, address, some)) << "how it ends is never told";
        EXPECT_EQ(raw->write(of_owner.destid, address, some, api::Completion::placed), std::errc::io_error);
        for (const api::Stores stores : {api::Stores::plain, api::Stores::streaming}) {
            api::Cookie cookie = 0;
            ASSERT_FALSE(raw->start_write(of_owner.destid, address, some, cookie, stores));
            EXPECT_EQ(raw->ended(cookie, 10'000), std::error_code(EIO, std::generic_category()));
        }
        EXPECT_EQ(raw->read(of_owner.destid, address, std::span(lies).first(bytes)), std::errc::io_error);
    }
    EXPECT_TRUE(is_untouched());

    const Remote granted = liar.endpoint->import_key(Peer{0}, second).value();
    const std::array<std::byte, 64> head{std::byte{1}};
    ASSERT_EQ(liar.endpoint->write(Peer{0}, head, {}, {granted, 0}, Notice(3), 0), Post::done);
    ASSERT_TRUE(comes({&owner, &honest, &liar}, Event::Kind::notice)) << "the liar's connection is as it was";
    EXPECT_EQ(owner.endpoint->memory(own)[0], std::byte{1});
    const Remote theirs = honest.endpoint->import_key(Peer{0}, first).value();
    ASSERT_EQ(honest.endpoint->write(Peer{0}, head, {}, {theirs, 0}, Notice(4), 0), Post::done);
    ASSERT_TRUE(comes({&owner, &honest, &liar}, Event::Kind::notice));
    EXPECT_EQ(owner.endpoint->memory(others)[0], std::byte{1});

    // What was released is reached by nobody, and costs nobody its connection.
    ASSERT_TRUE(owner.endpoint->release(others));
    EXPECT_EQ(outcome(honest, {&owner, &honest, &liar}, theirs, 9), Status::remote_fault);
    EXPECT_EQ(owner.downs + honest.downs + liar.downs, 0);
}

TEST_P(Grants, TC_M14_TheyGoWithTheirPeer) {
    const Fresh fabric(GetParam());
    Node owner(0, {}, fabric.name);
    const Local region = owner.endpoint->allocate(4096).value();
    const Blob blob = owner.endpoint->expose(region, {.peer = Peer{1}}).value();
    Key key;
    ASSERT_TRUE(from_blob(blob, key));
    Address of_owner;
    ASSERT_TRUE(from_blob(owner.endpoint->address(), of_owner));
    api::Destid destid = 0;
    {
        Node peer(1, {}, fabric.name);
        join(owner, 0, peer, 1);
        Address of_peer;
        ASSERT_TRUE(from_blob(peer.endpoint->address(), of_peer));
        destid = of_peer.destid;
        const auto raw = api::MasterPort::open(1, O_NONBLOCK);
        ASSERT_TRUE(raw);
        const std::byte byte{1};
        EXPECT_FALSE(raw->write(of_owner.destid, key.place.address, {&byte, 1}, api::Completion::placed));
    }
    ASSERT_TRUE(comes({&owner}, Event::Kind::peer_down));
    const auto next = api::MasterPort::join(fabric.name, O_NONBLOCK);
    ASSERT_TRUE(next);
    ASSERT_EQ(next->destid(), destid) << "it has the id of the one that has ended";
    const std::byte byte{2};
    EXPECT_EQ(next->write(of_owner.destid, key.place.address, {&byte, 1}, api::Completion::placed),
              std::errc::io_error);
    EXPECT_EQ(owner.endpoint->memory(region)[0], std::byte{1});
}

INSTANTIATE_TEST_SUITE_P(Fabrics, Grants, testing::Values("shm", "udp"),
                         [](const auto& fabric) { return std::string(fabric.param); });

}  // namespace
}  // namespace incast::transport::rio
