// Connections for channelised messages (CM). The C functions for them wait, and have no descriptor: connecting is done
// by a thread, which lives only while there is something to connect; the rest is called by the endpoint's owner where
// it knows that something is there, and then waits for a millisecond at most.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "softrio/cpp/channel.h"

namespace incast::transport::rio {

namespace api = incast::rio;

/// Every endpoint listens at this channel; it has its channel numbers for itself.
inline constexpr std::uint16_t cm_channel = 100;

/// The first message of a connection: whose it is.
struct Introduction {
    static constexpr std::uint64_t expected_magic = 0x314D434F49525343;  // "CSRIOCM1"
    std::uint64_t magic = expected_magic;
    std::uint64_t attempt = 0;  // of the node that dials
    std::uint32_t node = 0;
    std::uint32_t zero = 0;
};

struct Arrived {
    api::Socket socket;  // not open: `why`
    std::uint32_t node = 0;
    std::uint64_t attempt = 0;  // of the node that dialled
    std::string why;
};

class PostOffice {
public:
    static Result<std::unique_ptr<PostOffice>> open(const api::MasterPort& port);
    PostOffice(const PostOffice&) = delete;
    PostOffice& operator=(const PostOffice&) = delete;
    ~PostOffice();

    /// Connects to `node`, as `self`; dialled() tells how it ended.
    void dial(std::uint32_t node, api::Destid destid, std::uint32_t self, std::uint64_t attempt);
    /// Nobody wants that connection any more.
    void cancel(std::uint32_t node);
    std::optional<Arrived> dialled();
    /// Somebody who dialled here, if there is one by now; waits for a millisecond at most.
    std::optional<Arrived> accept();

private:
    struct Job {
        std::uint32_t node = 0;
        api::Destid destid = 0;
        Introduction introduction;
    };
    PostOffice(api::Mailbox mailbox, api::Socket listener)
        : mailbox_(std::move(mailbox)), listener_(std::move(listener)) {}
    void work();
    [[nodiscard]] Arrived connect(const Job& job);
    /// The call that waits looks at it without the lock.
    void stop(int value) { __atomic_store_n(&stop_, value, __ATOMIC_RELAXED); }

    api::Mailbox mailbox_;
    api::Socket listener_;
    std::deque<api::Socket> strangers_;  // accepted, not yet introduced
    std::mutex mutex_;                   // of all below
    std::deque<Job> jobs_;
    std::deque<Arrived> dialled_;
    std::optional<std::uint32_t> dialling_;
    bool working_ = false;
    volatile int stop_ = 0;  // the call of `dialling_` is to end
    std::thread thread_;
};

}  // namespace incast::transport::rio
