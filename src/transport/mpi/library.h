// What is used of MPI: messages of fixed places, sent and received without blocking. The source is the only one that
// sees mpi.h, and is compiled for each library; everything else of the transport is compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <incast/transport.h>

namespace incast::transport::mpi {

inline constexpr int any_rank = -1;

class Library {
public:
    Library() = default;
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
    virtual ~Library() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    /// Tags are below this.
    [[nodiscard]] virtual std::uint32_t tags() const = 0;

    // --- not from two threads at a time
    /// `what` names it in test(). The bytes are left alone until then.
    virtual void send(int rank, std::uint32_t tag, Bytes bytes, std::uint64_t what) = 0;
    /// A longer message than that is an error, which test() tells.
    virtual void receive(int rank, std::uint32_t tag, std::span<std::byte> into, std::uint64_t what) = 0;
    /// Gives up a receive that nothing was sent to. It still ends in test().
    virtual void cancel(std::uint64_t what) = 0;

    struct Ended {
        std::uint64_t what = 0;
        std::size_t bytes = 0;  // received
        bool is_good = false;   // false: cancelled, or an error
    };
    /// Progress: what has ended since the last call, valid until the next.
    virtual std::span<const Ended> test() = 0;

    /// A rank is dead or gone: the process will leave without MPI_Finalize, which would wait for it.
    virtual void somebody_died() = 0;
};

/// Starts MPI when it is first called in a process, and never ends it before the process ends. Error: one line.
Result<Library*> start_library();

}  // namespace incast::transport::mpi
