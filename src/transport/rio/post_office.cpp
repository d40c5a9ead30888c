#include "transport/rio/post_office.h"

#include <cstring>
#include <utility>

namespace incast::transport::rio {

namespace {

constexpr std::uint32_t moment_ms = 1;
constexpr std::size_t max_strangers = 256;

}  // namespace

Result<std::unique_ptr<PostOffice>> PostOffice::open(const api::MasterPort& port) {
    auto mailbox = api::Mailbox::open(port);
    if (!mailbox) return mailbox.error();
    api::Socket listener = mailbox->socket();
    if (!listener.is_open()) return Error{"RapidIO CM: out of memory"};
    if (const std::error_code error = listener.listen(cm_channel))
        return Error{"RapidIO CM: channel " + std::to_string(cm_channel) + ": " + error.message()};
    return std::unique_ptr<PostOffice>(new PostOffice(std::move(*mailbox), std::move(listener)));
}

PostOffice::~PostOffice() {
    {
        const std::lock_guard lock(mutex_);
        jobs_.clear();
        stop(1);
    }
    if (thread_.joinable()) thread_.join();
}

void PostOffice::dial(std::uint32_t node, api::Destid destid, std::uint32_t self, std::uint64_t attempt) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({node, destid, {.attempt = attempt, .node = self}});
    if (working_) return;
    // The one before has ended, or does so without taking this lock again.
    if (thread_.joinable()) thread_.join();
    working_ = true;
    thread_ = std::thread([this] { work(); });
}

void PostOffice::cancel(std::uint32_t node) {
    const std::lock_guard lock(mutex_);
    std::erase_if(jobs_, [&](const Job& job) { return job.node == node; });
    if (dialling_ == node) stop(1);
}

std::optional<Arrived> PostOffice::dialled() {
    const std::lock_guard lock(mutex_);
    if (dialled_.empty()) return std::nullopt;
    Arrived arrived = std::move(dialled_.front());
    dialled_.pop_front();
    return arrived;
}

Arrived PostOffice::connect(const Job& job) {
    Arrived arrived{.socket = mailbox_.socket(), .node = job.node, .attempt = job.introduction.attempt, .why = {}};
    std::error_code error = std::make_error_code(std::errc::not_enough_memory);
    if (arrived.socket.is_open()) error = arrived.socket.connect(job.destid, cm_channel, &stop_);
    if (!error) {
        api::Letter letter;
        std::memcpy(letter.payload().data(), &job.introduction, sizeof job.introduction);
        error = arrived.socket.send(letter, sizeof job.introduction, &stop_);
    }
    if (error) {
        arrived.socket.close();
        arrived.why = "CM: " + error.message();
    }
    return arrived;
}

void PostOffice::work() {
    std::unique_lock lock(mutex_);
    while (!jobs_.empty()) {
        const Job job = jobs_.front();
        jobs_.pop_front();
        dialling_ = job.node;
        stop(0);
        lock.unlock();
        Arrived arrived = connect(job);
        lock.lock();
        dialling_.reset();
        dialled_.push_back(std::move(arrived));
    }
    working_ = false;
}

std::optional<Arrived> PostOffice::accept() {
    if (strangers_.size() == max_strangers) strangers_.pop_front();
    api::Socket made;
    if (!listener_.accept(made, moment_ms)) strangers_.push_back(std::move(made));
    if (strangers_.empty()) return std::nullopt;
    // In turn, so that one that says nothing keeps nobody waiting.
    api::Socket stranger = std::move(strangers_.front());
    strangers_.pop_front();
    api::Letter letter;
    const std::error_code error = stranger.receive(letter, moment_ms);
    if (error == std::errc::timed_out) {
        strangers_.push_back(std::move(stranger));
        return std::nullopt;
    }
    Introduction introduction;
    std::memcpy(&introduction, letter.payload().data(), sizeof introduction);
    if (error || introduction.magic != Introduction::expected_magic) return std::nullopt;
    return Arrived{std::move(stranger), introduction.node, introduction.attempt, {}};
}

}  // namespace incast::transport::rio
