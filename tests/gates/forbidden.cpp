// Not part of any program: proves that the sans-IO gate sees a clock.
#include <chrono>

long long forbidden_clock() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
}
