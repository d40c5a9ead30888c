// How programs become sources of a readout unit: an address for each source, the connections, and the memory that goes
// over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include <incast/result.h>

#include "os/descriptor.h"
#include "os/mapping.h"
#include "os/poller.h"
#include "os/spare.h"
#include "runtime/sources/program_ring.h"
#include "source/layout.h"

namespace incast::sources {

/// A process that is attached, or was, and what it left.
struct Program {
    os::Descriptor socket;
    std::unique_ptr<os::Mapping> memory;
    ProgramRing ring;
    pid_t process = 0;
    bool has_gone = false;  // its connection has ended
};

class ProgramDoor {
public:
    /// Listens for one source more, of those that `welcome` is for. Errors: the address is taken, which says by whom.
    Result<Ok> open(const std::string& name, const source::Welcome& welcome);

    /// Lets in who waits where there is room, and sees who has gone. Does not wait.
    void look();
    /// The program of the index-th source that was opened; null: none.
    [[nodiscard]] Program* program(std::size_t index) { return desks_[index].program.get(); }
    /// Its place is free again.
    void dismiss(std::size_t index);
    [[nodiscard]] std::size_t size() const { return desks_.size(); }

private:
    struct Desk {
        os::Descriptor listener;
        source::Welcome welcome;
        std::unique_ptr<Program> program;
    };
    void accept(std::size_t index);
    [[nodiscard]] std::unique_ptr<Program> let_in(os::Descriptor socket, const source::Welcome& welcome, pid_t process);

    os::Poller poller_;
    os::Spare spare_;
    std::vector<Desk> desks_;
};

}  // namespace incast::sources
