// A value, or one clear error. Used on control paths only; the hot path has return codes (see transport.h).
#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace incast {

/// What went wrong, as one line for a person: it names the thing, its value and what was expected.
struct Error {
    std::string message;
};

/// Either a value or an Error. `value()` of an error aborts: check first.
template <class T>
class [[nodiscard]] Result {
public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    [[nodiscard]] bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    [[nodiscard]] T& value() & { return *checked(); }
    [[nodiscard]] const T& value() const& { return *const_cast<Result*>(this)->checked(); }
    [[nodiscard]] T&& value() && { return std::move(*checked()); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T* operator->() { return checked(); }
    const T* operator->() const { return const_cast<Result*>(this)->checked(); }

    [[nodiscard]] const Error& error() const { return std::get<1>(state_); }

private:
    T* checked() {
        T* value = std::get_if<0>(&state_);
        if (value == nullptr) {
            std::abort();
        }
        return value;
    }
    std::variant<T, Error> state_;
};

/// Success without a value.
struct Ok {};

}  // namespace incast
