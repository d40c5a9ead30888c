// SIGINT and SIGTERM as something a loop can look at.
#pragma once

#include <incast/transport.h>

namespace incast::os {

/// From now on SIGINT, SIGTERM and SIGHUP are counted instead of ending the process, SIGHUP once at most, and not where
/// the program was started to ignore it (nohup). Sleeping system calls return when one arrives.
void count_interrupts();
[[nodiscard]] int interrupts();

/// The end of that process counts as an interrupt, which watcher_is_gone() finds out. 0: nobody watches.
void watch_over(int pid);
/// True once that process has ended. Cheap enough for each turn of a loop.
bool watcher_is_gone(Time now);
/// Since this was found out; 0: it is there.
Time watcher_gone_for(Time now);

/// A process that another one watches over: it ends with its parent, and a terminal's Ctrl-C is the parent's business.
void live_with_parent(int parent_pid);

}  // namespace incast::os
