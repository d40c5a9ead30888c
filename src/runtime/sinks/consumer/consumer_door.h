// How processes attach to a builder unit: its address, its connections, and the memory that goes over them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <incast/result.h>
#include <incast/transport.h>

#include "consumer/layout.h"
#include "os/descriptor.h"
#include "os/poller.h"
#include "os/spare.h"
#include "runtime/sinks/consumer/consumer_queue.h"

namespace incast::sinks {

/// A mapping of a memory file that was made here.
class SharedPages {
public:
    SharedPages() = default;
    static Result<SharedPages> make(std::size_t bytes);
    SharedPages(SharedPages&& other) noexcept;
    SharedPages& operator=(SharedPages&& other) noexcept;
    ~SharedPages();
    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
    [[nodiscard]] const os::Descriptor& file() const { return file_; }
    /// The mapping stays.
    void close_file() { file_.close(); }

private:
    SharedPages(os::Descriptor file, std::span<std::byte> bytes) : file_(std::move(file)), bytes_(bytes) {}
    os::Descriptor file_;
    std::span<std::byte> bytes_;
};

/// A process that is attached.
struct Attached {
    Attached(std::uint64_t number, os::Descriptor connection, SharedPages for_queue, SharedPages for_control,
             std::uint32_t window);
    void wake_if_asleep();

    std::uint64_t id;
    os::Descriptor socket;
    SharedPages queue_pages;
    SharedPages control_pages;
    ConsumerQueue queue;
    Time progress = 0;  // when it last gave something back, or got something while it had nothing
};

class ConsumerDoor {
public:
    /// Listens. Errors: the address is taken, which says by whom.
    static Result<ConsumerDoor> open(const std::string& name, std::uint32_t node);

    /// Everybody gets these: what they say of the run and of sizes, and the descriptors for payload and directory.
    void furnish(const consumer::Welcome& welcome, os::Descriptor payload, os::Descriptor directory);

    struct News {
        std::vector<std::unique_ptr<Attached>> come;
        std::vector<std::uint64_t> gone;   // their connections ended
        std::vector<std::uint64_t> noisy;  // they ring more than there is reason for
        std::uint64_t refused = 0;         // processes that could not come: full, or of another user
    };
    /// Does not wait. At most `room` are let in.
    void look(std::size_t room, News& news);
    void forget(const Attached& process);
    /// Readable: look() has something to do, or somebody rang.
    [[nodiscard]] int fd() const { return poller_.fd(); }

private:
    explicit ConsumerDoor(os::Descriptor listener);
    void accept_all(std::size_t room, News& news);
    void hear(std::uint64_t id, News& news);
    bool is_first_refusal_of(const os::Descriptor& socket);
    Result<std::unique_ptr<Attached>> let_in(os::Descriptor socket);

    os::Poller poller_;
    os::Descriptor listener_;
    os::Spare spare_;
    os::Descriptor payload_;
    os::Descriptor directory_;
    consumer::Welcome welcome_;
    std::vector<std::pair<std::uint64_t, int>> sockets_;  // of attached, by id
    std::uint64_t next_id_ = 1;                           // 0 is the listener
    std::array<pid_t, 16> refused_{};                     // the last ones; 0: none
    std::size_t next_refused_ = 0;
};

}  // namespace incast::sinks
