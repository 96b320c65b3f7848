// C++ threads: promises and futures, exceptions that cross threads, thread-local objects, condition
// variables, atomic waits, an ordered pipeline.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace {

struct Local {
    std::string name;
    uint64_t state = 7;
};
thread_local Local local;

template <typename T> class Channel {
  public:
    void put(T value) {
        std::unique_lock<std::mutex> hold(lock_);
        room_.wait(hold, [&] { return queue_.size() < 8; });
        queue_.push_back(std::move(value));
        filled_.notify_one();
    }
    T take() {
        std::unique_lock<std::mutex> hold(lock_);
        filled_.wait(hold, [&] { return !queue_.empty(); });
        T value = std::move(queue_.front());
        queue_.pop_front();
        room_.notify_one();
        return value;
    }

  private:
    std::mutex lock_;
    std::condition_variable room_, filled_;
    std::deque<T> queue_;
};

void stage(Channel<std::string> &in, Channel<std::string> &out, int me) {
    local.name = "stage " + std::to_string(me);
    for (;;) {
        std::string text = in.take();
        if (text.empty()) break;
        local.state = local.state * 31 + text.size();
        CHECK(local.name == "stage " + std::to_string(me));
        out.put(text + "/" + std::to_string(local.state % 1000));
    }
    out.put("");
}

uint64_t fails_at_times(long i) {
    if (i % 5 == 0) throw std::runtime_error("fault " + std::to_string(i));
    return value_at(static_cast<uint64_t>(i));
}

}  // namespace

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 1500);
    Channel<std::string> a, b, c;
    std::thread first([&] { stage(a, b, 1); }), second([&] { stage(b, c, 2); });
    std::thread feeder([&] {
        for (long i = 0; i < n; i++) a.put("item " + std::to_string(i));
        a.put("");
    });
    std::map<std::string, long> seen;
    std::shared_mutex guard;
    for (long i = 0; i < n; i++) {
        std::string text = c.take();
        add_bytes(text.data(), text.size());
        std::unique_lock<std::shared_mutex> hold(guard);
        seen[text]++;
        hold.unlock();
        if (i % 10 == 0) {
            auto result = std::async(std::launch::async, fails_at_times, i / 10);
            try {
                add(result.get());
                CHECK(i / 10 % 5 != 0);
            } catch (const std::runtime_error &e) {
                CHECK(i / 10 % 5 == 0);
                add_bytes(e.what(), strlen(e.what()));
            }
        }
        work(2);
    }
    CHECK(c.take().empty());
    feeder.join();
    first.join();
    second.join();
    add(seen.size());
    return finish("threads.cpp");
}
