// Which versions the nodes of a run speak: of the rendezvous each with the coordinator, of control messages all of them
// the same one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/versions.h"
#include "runtime/launch/rendezvous.h"
#include "wire/control.h"

namespace incast::runtime {

/// What a hello says of its versions. "" or why its sender cannot be let in.
[[nodiscard]] std::string wrong_rendezvous_version(const Json& hello);
/// Of the program that says hello; "" if it does not say it, or nonsense.
[[nodiscard]] std::string program_of(const Json& hello);
/// Those of control messages. A hello without them is of 0.1.0, which speaks version 1; nothing: they make no sense.
[[nodiscard]] std::optional<base::Versions> control_versions_of(const Json& hello);
/// What a node of this program says of itself: the rest of a hello is the run's.
[[nodiscard]] Json hello_with_versions(const std::string& program);

/// What all nodes that were let in so far speak; then, once they are introduced to each other, one version of it.
class Agreement {
public:
    explicit Agreement(base::Versions ours = wire::control_versions) : versions_(ours) {}
    /// "": it speaks some of them, and the others are out of the question from here on. Else why it cannot be let in.
    [[nodiscard]] std::string take(std::optional<base::Versions> theirs, const std::string& program);
    /// Decides, the first time, for the newest.
    std::uint32_t decide();

private:
    base::Versions versions_;
};

/// Takes what the coordinator's list of peers says was decided. Error: this program does not speak it.
Result<Ok> take_decision(const Json& peers, std::uint8_t& version, base::Versions ours = wire::control_versions);

}  // namespace incast::runtime
