// SIGINT and SIGTERM as something a loop can look at.
#pragma once

namespace incast::runtime {

/// From now on SIGINT, SIGTERM and SIGHUP are counted instead of ending the process. Sleeping system calls return when
/// one arrives.
void count_interrupts();
[[nodiscard]] int interrupts();

/// A process that another one watches over: it ends with its parent, and a terminal's Ctrl-C is the parent's business.
void live_with_parent(int parent_pid);

}  // namespace incast::runtime
