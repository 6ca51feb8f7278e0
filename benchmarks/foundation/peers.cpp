// The C++ peers: `peers CONTEST CONTENDER [--quick]` plays one round and prints its figures as JSON.
//
// std::async, std::expected and exceptions are always there. Taskflow, BS::thread_pool and eventpp take part if their
// headers are on the include path (CPLUS_INCLUDE_PATH), and say "absent" if not. Each contest does what the Rust file
// of the same name does, step by step: same work, same way to wait, same batches.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#if __has_include(<taskflow/taskflow.hpp>)
#include <taskflow/taskflow.hpp>
#define HAS_TASKFLOW 1
#endif

#if __has_include("BS_thread_pool.hpp")
#include "BS_thread_pool.hpp"
#define HAS_BS 1
#endif

#if __has_include(<eventpp/callbacklist.h>)
#include <eventpp/callbacklist.h>
#include <eventpp/eventdispatcher.h>
#define HAS_EVENTPP 1
#endif

#if __has_include(<expected>) && __cplusplus > 202002L
#include <expected>
#else
#include <tl/expected.hpp>
namespace std {
using tl::expected, tl::unexpected;
}
#endif

namespace {

using Clock = std::chrono::steady_clock;
using Figures = std::vector<std::pair<const char *, double>>;

// Thrown by a contest that this contender takes no part in.
struct NoPart {};

// Keeps the compiler from knowing what becomes of a value: it goes through memory, as with Rust's black_box.
template <class T> void keep(T const &value) { asm volatile("" : : "r"(&value) : "memory"); }

// Keeps the compiler from knowing what a value is.
std::uint64_t unknown(std::uint64_t value) {
    asm volatile("" : "+r"(value));
    return value;
}

double nanoseconds(Clock::duration time) { return std::chrono::duration<double, std::nano>(time).count(); }

// ---- clock.rs -------------------------------------------------------------------------------------------------------

double percentile(std::vector<double> &values, double share) {
    std::sort(values.begin(), values.end());
    auto index = static_cast<std::size_t>(static_cast<double>(values.size()) * share);
    return values[std::min(index, values.size() - 1)];
}

template <class Batch> double per_batch(std::size_t calls, Batch batch) {
    constexpr int batches = 9;
    batch();
    std::vector<double> times;
    for (int index = 0; index < batches; ++index) {
        auto begin = Clock::now();
        batch();
        times.push_back(nanoseconds(Clock::now() - begin) / static_cast<double>(calls));
    }
    return percentile(times, 0.5);
}

template <class Call> double per_call(std::size_t calls, Call call) {
    return per_batch(calls, [&] {
        for (std::size_t index = 0; index < calls; ++index) call(index);
    });
}

// ---- countdown.rs ---------------------------------------------------------------------------------------------------

class Countdown {
  public:
    explicit Countdown(std::size_t tasks) : left(tasks) {}

    void ran() {
        if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) last.release();
    }

    void wait() { last.acquire(); }

  private:
    std::atomic<std::size_t> left;
    std::binary_semaphore last{0};
};

// ---- pools.rs -------------------------------------------------------------------------------------------------------

unsigned workers() { return std::max(1U, std::thread::hardware_concurrency()); }

#ifdef HAS_TASKFLOW
class Taskflow {
  public:
    template <class Task> void spawn(Task task) { executor.silent_async(std::move(task)); }
    template <class Task> std::uint64_t call(Task task) { return executor.async(std::move(task)).get(); }

  private:
    tf::Executor executor{workers()};
};
#endif

#ifdef HAS_BS
class BsPool {
  public:
    template <class Task> void spawn(Task task) { pool.detach_task(std::move(task)); }
    template <class Task> std::uint64_t call(Task task) { return pool.submit_task(std::move(task)).get(); }

  private:
    BS::thread_pool<> pool{workers()};
};
#endif

// A thread for each task. A future must be kept, because its destructor waits for its thread.
class Async {
  public:
    template <class Task> void spawn(Task task) {
        // A program has to bound its threads somehow; here the oldest is waited for.
        if (futures.size() == most) futures.pop_front();
        futures.push_back(std::async(std::launch::async, std::move(task)));
    }
    template <class Task> std::uint64_t call(Task task) {
        return std::async(std::launch::async, std::move(task)).get();
    }

  private:
    static constexpr std::size_t most = 64;
    std::deque<std::future<void>> futures;
};

// ---- submit.rs ------------------------------------------------------------------------------------------------------

template <class Pool> double submit_outside(Pool &pool, std::size_t tasks) {
    return per_batch(tasks, [&] {
        auto *countdown = new Countdown(tasks);
        for (std::size_t index = 0; index < tasks; ++index) pool.spawn([countdown] { countdown->ran(); });
        countdown->wait();
    });
}

template <class Pool> double submit_inside(Pool &pool, std::size_t tasks) {
    return per_batch(tasks, [&] {
        auto *countdown = new Countdown(tasks);
        pool.spawn([&pool, countdown, tasks] {
            for (std::size_t index = 0; index < tasks; ++index) pool.spawn([countdown] { countdown->ran(); });
        });
        countdown->wait();
    });
}

template <class Pool> double submit_and_join(Pool &pool, std::size_t tasks) {
    return per_call(tasks, [&](std::size_t index) {
        if (pool.call([index] { return static_cast<std::uint64_t>(index); }) != index) std::abort();
    }) / 1e3;
}

// ---- latency.rs -----------------------------------------------------------------------------------------------------

enum class Around { Idle, Asleep, Loaded };

void spin_hint() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
}

template <class Pool> std::vector<double> collect(Pool &pool, Around around, std::size_t samples) {
    using namespace std::chrono_literals;
    constexpr auto pause = 1ms;
    constexpr auto patience = 600ms;
    constexpr int spins = 1000;
    auto *ended = new std::atomic<std::uint64_t>(0);
    auto origin = Clock::now();
    auto now = [origin] { return static_cast<std::uint64_t>((Clock::now() - origin).count()); };
    std::size_t warm = std::min<std::size_t>(50, samples);
    std::vector<double> times;
    times.reserve(samples);
    for (std::size_t index = 0; index < samples + warm; ++index) {
        if (around == Around::Asleep) std::this_thread::sleep_for(pause);
        ended->store(0, std::memory_order_relaxed);
        auto submitted = now();
        pool.spawn([ended, now] { ended->store(now(), std::memory_order_release); });
        int looks = 0;
        std::uint64_t end;
        while ((end = ended->load(std::memory_order_acquire)) == 0) {
            if (looks < spins) {
                ++looks;
                spin_hint();
            } else {
                std::this_thread::yield();
            }
        }
        if (index >= warm) times.push_back(static_cast<double>(end - submitted));
        if (Clock::now() - origin > patience && !times.empty()) break;
    }
    return times;
}

template <class Pool> Figures latency(Pool &pool, Around around, std::size_t samples) {
    std::atomic<bool> stop{false};
    std::vector<std::jthread> busy;
    if (around == Around::Loaded) {
        for (unsigned index = 0; index < workers(); ++index) {
            busy.emplace_back([&stop] {
                std::uint64_t turns = 0;
                while (!stop.load(std::memory_order_relaxed)) turns = unknown(turns + 1);
            });
        }
    }
    auto times = collect(pool, around, samples);
    stop.store(true, std::memory_order_relaxed);
    double p50 = percentile(times, 0.5);
    return {{"p50", p50 / 1e3}, {"p99", percentile(times, 0.99) / 1e3}};
}

// The contests of pools. `share` is the part of the work that a slow contender does.
template <class Pool> Figures tasks(std::string_view contest, Pool &pool, std::size_t less, std::size_t share = 1) {
    if (contest == "submit") return {{"task", submit_outside(pool, 50'000 / less / share)}};
    if (contest == "submit-inside") return {{"task", submit_inside(pool, 50'000 / less / share)}};
    if (contest == "submit-join") return {{"task", submit_and_join(pool, 5'000 / less / share)}};
    if (contest == "latency-idle") return latency(pool, Around::Idle, 20'000 / less);
    if (contest == "latency-asleep") return latency(pool, Around::Asleep, 20'000 / less);
    if (contest == "latency-loaded") return latency(pool, Around::Loaded, 20'000 / less);
    throw NoPart{};
}

// ---- publish.rs -----------------------------------------------------------------------------------------------------

struct Event {
    std::uint64_t number;
    std::uint64_t value;
};

const std::string topic = "orders.new";

#ifdef HAS_EVENTPP
// One topic: a list of callbacks.
class Callbacks {
  public:
    template <class Handler> void subscribe(Handler handler) { list.append(std::move(handler)); }
    void publish(Event const &event) { list(event); }

  private:
    eventpp::CallbackList<void(Event const &)> list;
};

// Topics by name.
class Dispatcher {
  public:
    template <class Handler> void subscribe(Handler handler) {
        dispatcher.appendListener(topic, std::move(handler));
    }
    void publish(Event const &event) { dispatcher.dispatch(topic, event); }

  private:
    struct Policies {
        using ArgumentPassingMode = eventpp::ArgumentPassingExcludeEvent;
    };
    eventpp::EventDispatcher<std::string, void(Event const &), Policies> dispatcher;
};
#endif

template <class Bus> void fill(Bus &bus, std::size_t count) {
    for (std::size_t index = 0; index < count; ++index) {
        bus.subscribe([index](Event const &event) { keep(std::pair(event.value, index)); });
    }
}

template <class Bus> void publish_many(Bus &bus, std::size_t events) {
    for (std::size_t index = 0; index < events; ++index) {
        Event event{index, 7};
        keep(event);
        bus.publish(event);
    }
}

// Nanoseconds from the moment that the first of so many publishers begins until the last is done.
template <class Bus> double side_by_side(unsigned publishers, Bus &bus, std::size_t events) {
    std::atomic<unsigned> missing{publishers};
    std::vector<Clock::time_point> begins(publishers), ends(publishers);
    {
        std::vector<std::jthread> threads;
        for (unsigned index = 0; index < publishers; ++index) {
            threads.emplace_back([&, index] {
                missing.fetch_sub(1, std::memory_order_acq_rel);
                while (missing.load(std::memory_order_acquire) != 0) spin_hint();
                begins[index] = Clock::now();
                publish_many(bus, events);
                ends[index] = Clock::now();
            });
        }
    }
    return nanoseconds(*std::max_element(ends.begin(), ends.end()) - *std::min_element(begins.begin(), begins.end()));
}

template <class Bus> double scaling(Bus &bus, std::size_t events) {
    constexpr int turns = 10;
    double alone = std::numeric_limits<double>::max(), together = alone;
    for (int turn = 0; turn < turns; ++turn) {
        alone = std::min(alone, side_by_side(1, bus, events));
        together = std::min(together, side_by_side(2, bus, events));
    }
    return 2.0 * alone / together;
}

template <class Bus> Figures events(std::string_view contest, Bus &bus, std::size_t less) {
    auto dash = contest.rfind('-');
    if (dash == contest.npos) throw NoPart{};
    auto name = contest.substr(0, dash);
    auto subscribers = std::strtoull(contest.data() + dash + 1, nullptr, 10);
    if (subscribers == 0) throw NoPart{};
    fill(bus, subscribers);
    if (name == "publish") {
        auto count = 1'000'000 / subscribers / less;
        return {{"event", per_batch(count, [&] { publish_many(bus, count); })}};
    }
    if (name == "publishers") return {{"gain", scaling(bus, 1'000'000 / subscribers / less)}};
    throw NoPart{};
}

// ---- frames.rs ------------------------------------------------------------------------------------------------------

#define NEVER_INLINED [[gnu::noinline, gnu::noclone]]

// The least that an error with a code and a message can be: two words, passed by value.
struct Plain {
    using Error = struct Fields {
        int code;
        const char *message;
    };
    static Error make() { return {6, "odd numbers do not fit"}; }
};

// What Ropewalk's error is: one pointer to everything else.
struct Boxed {
    struct Fields {
        int code;
        std::string_view message;
        std::unique_ptr<std::exception> source;
    };
    using Error = std::unique_ptr<Fields>;
    static Error make() { return std::make_unique<Fields>(6, "odd numbers do not fit", nullptr); }
};

template <class Kind, int depth> struct Frames {
    using Answer = std::expected<std::uint64_t, typename Kind::Error>;

    NEVER_INLINED static Answer ask(std::uint64_t number) {
        if constexpr (depth == 0) {
            if ((number & 1) == 0) return number;
            return std::unexpected(Kind::make());
        } else {
            auto below = Frames<Kind, depth - 1>::ask(number);
            if (!below) return std::unexpected(std::move(below.error()));
            return *below + 1;
        }
    }
};

template <int depth> struct Throwing {
    NEVER_INLINED static std::uint64_t ask(std::uint64_t number) {
        if constexpr (depth == 0) {
            if ((number & 1) == 0) return number;
            throw std::runtime_error("odd numbers do not fit");
        } else {
            return Throwing<depth - 1>::ask(number) + 1;
        }
    }
};

template <class Kind> Figures expected(std::string_view contest, std::size_t less) {
    if (contest != "frames") throw NoPart{};
    auto time = [&](std::uint64_t odd) {
        return per_call(1'000'000 / less, [odd](std::size_t index) {
            keep(Frames<Kind, 10>::ask(unknown(2 * index + odd)));
        });
    };
    double value = time(0);
    return {{"value", value}, {"error", time(1)}};
}

Figures thrown(std::string_view contest, std::size_t less) {
    if (contest != "frames") throw NoPart{};
    auto time = [](std::uint64_t odd, std::size_t calls) {
        return per_call(calls, [odd](std::size_t index) {
            try {
                keep(Throwing<10>::ask(unknown(2 * index + odd)));
            } catch (std::runtime_error const &error) {
                keep(error);
            }
        });
    };
    double value = time(0, 1'000'000 / less);
    return {{"value", value}, {"error", time(1, 10'000 / less)}};
}

// ---- the command line -----------------------------------------------------------------------------------------------

template <class Contender> Figures with(Figures (*contest)(std::string_view, Contender &, std::size_t),
                                        std::string_view name, std::size_t less) {
    Contender contender;
    return contest(name, contender, less);
}

Figures play(std::string_view contest, std::string_view contender, std::size_t less) {
    if (contender == "std::async") {
        Async pool;
        return tasks(contest, pool, less, 20);
    }
#ifdef HAS_TASKFLOW
    if (contender == "taskflow") {
        Taskflow pool;
        return tasks(contest, pool, less);
    }
#endif
#ifdef HAS_BS
    if (contender == "BS::thread_pool") {
        BsPool pool;
        return tasks(contest, pool, less);
    }
#endif
#ifdef HAS_EVENTPP
    if (contender == "eventpp, list") return with<Callbacks>(events, contest, less);
    if (contender == "eventpp, name") return with<Dispatcher>(events, contest, less);
#endif
    if (contender == "std::expected, two fields") return expected<Plain>(contest, less);
    if (contender == "std::expected, pointer") return expected<Boxed>(contest, less);
    if (contender == "exception") return thrown(contest, less);
    return {};
}

} // namespace

int main(int count, char **arguments) {
    std::vector<std::string_view> words(arguments + 1, arguments + count);
    bool quick = std::erase(words, "--quick") != 0;
    if (words.size() != 2) {
        std::fprintf(stderr, "usage: peers CONTEST CONTENDER [--quick]\n");
        return 2;
    }
    try {
        auto figures = play(words[0], words[1], quick ? 100 : 1);
        if (figures.empty()) {
            std::printf("{\"absent\": \"header not found\"}\n");
            return 0;
        }
        const char *before = "{";
        for (auto [name, value] : figures) {
            std::printf("%s\"%s\": %.9g", before, name, value);
            before = ", ";
        }
        std::printf("}\n");
    } catch (NoPart) {
        std::fprintf(stderr, "peers: the contender takes no part in this contest\n");
        return 2;
    }
    return 0;
}
