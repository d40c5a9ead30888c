#include "transport/mpi/library.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <mpi.h>
#include <unistd.h>

namespace incast::transport::mpi {

namespace {

constexpr std::size_t ended_at_once = 256;
// The ranks of a run end together; one that takes longer than this is not waited for.
constexpr auto patience = std::chrono::milliseconds(500);

std::string text_of(int error) {
    std::string text(MPI_MAX_ERROR_STRING, '\0');
    int length = 0;
    if (MPI_Error_string(error, text.data(), &length) != MPI_SUCCESS) return "error " + std::to_string(error);
    text.resize(static_cast<std::size_t>(length));
    return text;
}

class World final : public Library {
public:
    World() {
        (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        // Of its own, so that nothing that others do in this process is mixed with it.
        (void)MPI_Comm_dup(MPI_COMM_WORLD, &all_);
        (void)MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN);
        (void)MPI_Comm_rank(all_, &rank_);
        (void)MPI_Comm_size(all_, &size_);
        int* bound = nullptr;
        int is_set = 0;
        (void)MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&bound), &is_set);
        tags_ = is_set != 0 && bound != nullptr ? static_cast<std::uint32_t>(*bound) : 32767;
        indices_.resize(ended_at_once);
        statuses_.resize(ended_at_once);
        ended_.reserve(ended_at_once);
    }

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    [[nodiscard]] std::uint32_t tags() const override { return tags_; }

    void send(int rank, std::uint32_t tag, Bytes bytes, std::uint64_t what) override {
        MPI_Request request = MPI_REQUEST_NULL;
        const int error = MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, rank, static_cast<int>(tag),
                                    all_, &request);
        begin(request, error, what);  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker): test() looks for its end
    }

    void receive(int rank, std::uint32_t tag, std::span<std::byte> into, std::uint64_t what) override {
        MPI_Request request = MPI_REQUEST_NULL;
        const int error = MPI_Irecv(into.data(), static_cast<int>(into.size()), MPI_BYTE,
                                    rank == any_rank ? MPI_ANY_SOURCE : rank, static_cast<int>(tag), all_, &request);
        begin(request, error, what);  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker): test() looks for its end
    }

    void cancel(std::uint64_t what) override {
        for (std::size_t at = 0; at < requests_.size(); ++at)
            if (begun_[at] == what && requests_[at] != MPI_REQUEST_NULL) (void)MPI_Cancel(&requests_[at]);
    }

    std::span<const Ended> test() override {
        ended_.clear();
        for (const std::uint64_t what : failed_)
            ended_.push_back({what, 0, false});
        failed_.clear();
        if (requests_.empty()) return ended_;
        int count = 0;
        // Fills at most as many places as there are requests.
        indices_.resize(std::max(requests_.size(), ended_at_once));
        statuses_.resize(indices_.size());
        const int error = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, indices_.data(),
                                       statuses_.data());
        if (count == MPI_UNDEFINED || (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS)) return ended_;
        for (int each = 0; each < count; ++each) {
            const auto at = static_cast<std::size_t>(indices_[static_cast<std::size_t>(each)]);
            const MPI_Status& status = statuses_[static_cast<std::size_t>(each)];
            int bytes = 0;
            int is_cancelled = 0;
            (void)MPI_Get_count(&status, MPI_BYTE, &bytes);
            (void)MPI_Test_cancelled(&status, &is_cancelled);
            const bool is_good = is_cancelled == 0 && (error == MPI_SUCCESS || status.MPI_ERROR == MPI_SUCCESS);
            ended_.push_back({begun_[at], bytes > 0 ? static_cast<std::size_t>(bytes) : 0, is_good});
        }
        if (count > 0) forget_ended();
        return ended_;
    }

    void somebody_died() override { is_whole_ = false; }

    /// At the end of the process. False: it has to go without MPI_Finalize. MPI wants that nothing is under way then,
    /// and what was begun cannot always be taken back: Open MPI's MPI_Cancel was seen to fail.
    bool leave() {
        if (!is_whole_ || !requests_.empty()) return false;
        MPI_Request all_are_here = MPI_REQUEST_NULL;
        if (MPI_Ibarrier(all_, &all_are_here) != MPI_SUCCESS) return false;
        const auto until = std::chrono::steady_clock::now() + patience;
        for (int is_done = 0; is_done == 0;) {
            if (MPI_Test(&all_are_here, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
            if (is_done != 0) break;
            if (std::chrono::steady_clock::now() > until) return false;
            ::usleep(100);
        }
        return MPI_Finalize() == MPI_SUCCESS;
    }

private:
    void begin(MPI_Request request, int error, std::uint64_t what) {
        if (error != MPI_SUCCESS) {
            failed_.push_back(what);
            return;
        }
        requests_.push_back(request);
        begun_.push_back(what);
    }
    /// MPI has put nothing in place of what ended. The order of the others stays: the first begun are the first found.
    void forget_ended() {
        std::size_t kept = 0;
        for (std::size_t at = 0; at < requests_.size(); ++at) {
            if (requests_[at] == MPI_REQUEST_NULL) continue;
            requests_[kept] = requests_[at];
            begun_[kept++] = begun_[at];
        }
        requests_.resize(kept);
        begun_.resize(kept);
    }

    MPI_Comm all_ = MPI_COMM_NULL;
    int rank_ = 0;
    int size_ = 1;
    std::uint32_t tags_ = 0;
    bool is_whole_ = true;
    std::vector<MPI_Request> requests_;  // under way
    std::vector<std::uint64_t> begun_;   // what each of them is
    std::vector<std::uint64_t> failed_;  // could not even begin
    std::vector<int> indices_;
    std::vector<MPI_Status> statuses_;
    std::vector<Ended> ended_;
};

World* the_world = nullptr;

/// Before the library's own handlers, which expect that MPI_Finalize was called.
void leave_at_exit(int status, void*) {
    if (the_world->leave()) return;
    (void)std::fflush(nullptr);
    ::_exit(status);
}

Result<Library*> start() {
    int is_there = 0;
    (void)MPI_Initialized(&is_there);
    if (is_there != 0) return Error{"mpi: this process uses MPI already, which only one can"};
    int provided = 0;
    if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided); error != MPI_SUCCESS)
        return Error{"mpi: MPI_Init_thread: " + text_of(error)};
    if (provided < MPI_THREAD_SERIALIZED) return Error{"mpi: this MPI does not work with threads"};
    the_world = new World;  // until the end of the process
    (void)::on_exit(leave_at_exit, nullptr);
    return the_world;
}

}  // namespace

Result<Library*> start_library() {
    static const Result<Library*> started = start();
    return started;
}

}  // namespace incast::transport::mpi
