// Where the time of an I/O thread goes, stage by stage: for `incast bridge zmq --breakdown` (docs/zeromq.md).
#pragma once

#include <algorithm>
#include <vector>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

namespace zmq {

/// What an I/O thread is at. Time counts for one stage alone: the innermost.
enum Stage {
    stage_wait,      // epoll_wait: it sleeps, or asks the kernel
    stage_commands,  // other descriptors and the commands of libzmq: its mailbox
    stage_post,      // the hub: what was written leaves, what came is seen, credits
    stage_arm,       // asks the hub whether it may sleep
    stage_loop,      // between the others, in the loop of channels
    stage_encode,    // messages from the session into the engine's buffer
    stage_copy_in,   // from the engine's buffer into the channel; it leaves at once if the hub had nothing to do
    stage_decode,    // from bytes to messages, which are handed to the application
    stage_copy_out,  // from the ring into the decoder's buffer, or into the message
    stage_count
};

class Stages {
public:
    /// Null, unless INCAST_ZMQ_STAGES names a file: each I/O thread that has channels appends a line of JSON to it.
    static Stages* make() {
        const char* const path = getenv("INCAST_ZMQ_STAGES");
        return path == NULL || *path == '\0' ? NULL : new Stages(path);
    }
    Stages(const Stages&) = delete;
    Stages& operator=(const Stages&) = delete;
    ~Stages() {
        static const char* const names[] = {"wait",   "commands", "post",   "arm",      "loop",
                                            "encode", "copy_in",  "decode", "copy_out", "wait_cpu"};
        FILE* const file = since_ns_ == 0 ? NULL : fopen(path_, "a");
        if (file == NULL) return;
        for (int i = 0; i <= stage_count; ++i) {
            const unsigned long long sum = static_cast<unsigned long long>(usual_sum(turns_[i]));
            fprintf(file, "%s\"%s\": {\"ns\": %llu, \"turns\": %zu}", i == 0 ? "{" : ", ", names[i], sum,
                    turns_[i].size());
        }
        fprintf(file, "}\n");
        fclose(file);
    }

    /// Time counts for that stage from now on; the one before is returned.
    Stage enter(Stage stage) {
        const uint64_t now = clock_ns(CLOCK_MONOTONIC);
        const Stage before = now_;
        if (since_ns_ != 0) turn_ns_[before] += now - since_ns_;
        since_ns_ = now;
        now_ = stage;
        return before;
    }
    void begin_wait() {
        enter(stage_wait);
        end_turn();
        wait_cpu_since_ns_ = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    }
    void end_wait() {
        if (now_ != stage_wait) return;  // the first channel came meanwhile
        turn_ns_[stage_count] = clock_ns(CLOCK_THREAD_CPUTIME_ID) - wait_cpu_since_ns_;
        enter(stage_commands);
    }

private:
    explicit Stages(const char* path) : path_(path) {}
    static uint64_t clock_ns(clockid_t clock) {
        timespec now;
        clock_gettime(clock, &now);
        return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
    }
    /// A turn of the loop is over: from one wait to the next.
    void end_turn() {
        for (int i = 0; i <= stage_count; ++i) {
            if (turn_ns_[i] != 0 && turns_[i].size() < most_turns) turns_[i].push_back(turn_ns_[i]);
            turn_ns_[i] = 0;
        }
    }
    /// The sum of all, with the mean of the others for the longest 2 %: these are the start, and preemption.
    static uint64_t usual_sum(std::vector<uint64_t>& turns) {
        const size_t kept = turns.size() - turns.size() / 50;
        std::sort(turns.begin(), turns.end());
        uint64_t sum = 0;
        for (size_t i = 0; i < kept; ++i)
            sum += turns[i];
        return kept == 0 ? 0 : sum / kept * turns.size();
    }

    static const size_t most_turns = 1 << 22;

    const char* path_;
    Stage now_ = stage_loop;
    uint64_t since_ns_ = 0;
    uint64_t wait_cpu_since_ns_ = 0;
    uint64_t turn_ns_[stage_count + 1] = {};  // the last one is the CPU time of the wait
    std::vector<uint64_t> turns_[stage_count + 1];
};

/// While it lives, time counts for that stage. Without stages it does nothing.
class InStage {
public:
    InStage(Stages* stages, Stage stage) : stages_(stages) {
        if (stages_ != NULL) before_ = stages_->enter(stage);
    }
    InStage(const InStage&) = delete;
    InStage& operator=(const InStage&) = delete;
    ~InStage() {
        if (stages_ != NULL) stages_->enter(before_);
    }

private:
    Stages* const stages_;
    Stage before_ = stage_loop;
};

}  // namespace zmq
