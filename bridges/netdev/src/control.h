// How the device of a running program is asked about, and ended: a Unix socket with an abstract name, which is gone
// with the program and seen in the network namespace of the device alone, as the device itself.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "descriptor.h"

namespace incast::netdev {

/// Of the program that asks.
[[nodiscard]] Descriptor listen_for_questions(const std::string& device);
/// Takes one question and says what `answer` makes of it, to the same user and root alone. Waits for a second at most.
void answer_one(const Descriptor& listener, const std::function<std::string(const std::string&)>& answer);

/// What the program of that device answers. Failure: there is none, or it does not answer.
[[nodiscard]] std::string ask(const std::string& device, const std::string& question);
/// Those of this network namespace that have a program here.
[[nodiscard]] std::vector<std::string> devices_here();

}  // namespace incast::netdev
