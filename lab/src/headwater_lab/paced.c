/* Load by the clock: publishers with an interval each, as in the benchmark of Banno, Fujita and Takeuchi.
 *
 *   paced load --plan FILE --interval-us N [...]   publishers and subscribers; prints a sample each half second
 *   paced probe --pair PORT:PORT [...]             a publisher and a subscriber each, for latency; until standard
 *                                                  input ends
 *
 * Theory of `load`. The plan has a line for each client: `publisher PORT TOPIC` or `subscriber PORT TOPIC`. Each
 * publisher sends a message per interval by a send of its own, nothing is batched; intervals of different publishers
 * begin at different times. Interval 0: the next message as soon as the socket has taken the one before. Three points
 * of time count for each message: sent (`attempted`: the first try), completed (QoS 0: the socket took all of it; QoS 1:
 * PUBACK; QoS 2: PUBCOMP) and received. One thread sends and gets acknowledgements, one receives, and the main one takes
 * the samples: counters, CPU of each watched process and of both threads, and what TCP tells of all sockets.
 *
 * What the generator itself could be slow at is in the samples, and the reader judges (reproduce/coordination/
 * detector.py): processor time of a thread and time it waited for a processor; `overdue`, messages that were due and not
 * tried though their sockets would have taken them, its send queue; `held`, the same where the socket was full, which
 * is the broker's doing; the least receive window of subscribers as a part of the largest that the same one had; segments
 * that were sent again or came out of order. --slow-send-us and --slow-receive-us make it slow on purpose.
 *
 * Before anything counts, each publisher says hello until all subscribers of its topic have heard it: the ways through
 * several brokers are open then. `probe` does likewise.
 *
 * Exit status: 0 measured, whatever was lost; 1 cannot run.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "paced_clients.h"
#include "paced_samples.h"

/* --- the sending thread --------------------------------------------------------------------------------- */

/* Nanoseconds until the next message is due; 0: at once; -1: every socket is full. */
static i64 send_due(u64 t) {
    i64 wait = -1;
    for (int i = 0; i < publisher_count; i++) {
        struct publisher *p = publishers + i;
        if (is_blocked(p)) continue;
        if (p->due <= t) publish_message(p, t);
        if (is_blocked(p)) continue;
        i64 left = p->due > t ? (i64)(p->due - t) : 0;
        if (wait < 0 || left < wait) wait = left;
    }
    return wait;
}

static void poll_publishers(int epoll, i64 wait_ns) {
    struct epoll_event events[64];
    struct timespec limit = {wait_ns / 1000000000, wait_ns % 1000000000};
    int count = epoll_pwait2(epoll, events, 64, &limit, NULL);
    for (int i = 0; i < count; i++) serve_publisher(events[i].data.ptr);
}

static void begin_running(void) {
    u64 t = now_ns();
    for (int i = 0; i < publisher_count; i++) publishers[i].due = t + opt.interval_ns * (u64)i / (u64)publisher_count;
}

static void *send_all_messages(void *nothing) {
    int epoll = epoll_create1(EPOLL_CLOEXEC), running = 0;
    prctl(PR_SET_TIMERSLACK, 1);
    atomic_store(&sender_thread, (int)syscall(SYS_gettid));
    for (int i = 0; i < publisher_count; i++) enter_loop(epoll, publishers[i].fd, publishers + i, EPOLLIN);
    publisher_epoll = epoll;
    while (atomic_load(&stage) != END_STAGE) {
        i64 wait = 20000000;
        if (atomic_load(&stage) == HELLO_STAGE) {
            for (int i = 0; i < publisher_count; i++)
                if (!is_blocked(publishers + i)) say_hello(publishers + i);
        } else if (atomic_load(&stage) == RUN_STAGE) {
            if (!running++) begin_running();
            i64 due = send_due(now_ns());
            if (due >= 0 && due < wait) wait = due;
        }
        poll_publishers(epoll, wait);
    }
    return nothing;
}

static void *receive_all_messages(void *nothing) {
    struct epoll_event events[64];
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    atomic_store(&receiver_thread, (int)syscall(SYS_gettid));
    for (int i = 0; i < subscriber_count; i++) enter_loop(epoll, subscribers[i].fd, subscribers + i, EPOLLIN);
    while (atomic_load(&stage) != END_STAGE) {
        int count = epoll_wait(epoll, events, 64, 20);
        for (int i = 0; i < count; i++) receive_messages(events[i].data.ptr);
    }
    return nothing;
}

/* --- the main thread ------------------------------------------------------------------------------------ */

static void pause_until(u64 t) {
    struct timespec at = {(time_t)(t / 1000000000), (long)(t % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {}
}

static void wait_for_ways(void) {
    u64 begin = now_ns();
    long wanted = wanted_hellos();
    while (atomic_load(&heard_hellos) < wanted) {
        if (now_ns() - begin > OPEN_LIMIT)
            fail("%ld of %ld ways from a publisher to a subscriber did not open", wanted - atomic_load(&heard_hellos), wanted);
        pause_until(now_ns() + 5000000);
    }
    printf("{\"opened_s\": %.3f}\n", (double)(now_ns() - begin) * 1e-9);
}

/* Waits until everything has come, or nothing more has for `drain` seconds; `drain_limit` seconds at most. */
static void drain(void) {
    u64 begin = now_ns(), progress = begin, t = begin;
    long before = -1;
    while (atomic_load(&received) < expected_messages() && t - progress < (u64)(opt.drain * 1e9) && t - begin < (u64)(opt.drain_limit * 1e9)) {
        pause_until(t + 5000000);
        t = now_ns();
        if (atomic_load(&received) != before) progress = t;
        before = atomic_load(&received);
    }
    pause_until(now_ns() + 50000000); /* whoever sends twice sends now */
}

static void print_end(void) {
    struct violations v = all_violations();
    printf("{\"sent\": %ld, \"expected\": %ld, \"received\": %ld, \"repeated\": %ld, \"gaps\": %ld, \"misrouted\": %ld, "
           "\"corrupt\": %ld, \"mean_us\": %.1f, \"p50_us\": %d, \"p99_us\": %d, \"acknowledged_us\": %.1f}\n",
           atomic_load(&attempted), expected_messages(), atomic_load(&received), v.disorder, v.gaps, v.misrouted, v.corrupt,
           mean_latency(&latency), percentile(&latency, 0.5), percentile(&latency, 0.99), mean_latency(&completion));
}

static int load(void) {
    pthread_t sending, receiving;
    if (!opt.plan) fail("--plan is needed");
    read_plan(opt.plan);
    connect_all();
    if (pthread_create(&receiving, NULL, receive_all_messages, NULL) || pthread_create(&sending, NULL, send_all_messages, NULL))
        fail("cannot start a thread");
    wait_for_ways();
    atomic_store(&stage, RUN_STAGE);
    u64 next = now_ns() + (u64)(opt.warmup * 1e9), end = next + (u64)(opt.seconds * 1e9);
    pause_until(next);
    atomic_store(&measuring, 1);
    for (print_sample(); next < end; print_sample()) {
        next = next + SAMPLE_NS < end ? next + SAMPLE_NS : end;
        pause_until(next);
    }
    atomic_store(&measuring, 0);
    atomic_store(&stage, STOP_STAGE);
    drain();
    atomic_store(&stage, END_STAGE);
    pthread_join(sending, NULL);
    pthread_join(receiving, NULL);
    print_end();
    return 0;
}

/* --- probe ---------------------------------------------------------------------------------------------- */

/* Prints what has come, and returns when `until` is reached (0) or standard input ends (1). */
static int follow_probes(u64 until) {
    struct pollfd files[2 * MAX_PAIRS + 1];
    for (u64 t; (t = now_ns()) < until;) {
        struct timespec limit = {(time_t)((until - t) / 1000000000), (long)((until - t) % 1000000000)};
        int count = 0;
        for (int i = 0; i < publisher_count; i++) files[count++] = (struct pollfd){.fd = publishers[i].fd, .events = POLLIN};
        for (int i = 0; i < subscriber_count; i++) files[count++] = (struct pollfd){.fd = subscribers[i].fd, .events = POLLIN};
        files[count++] = (struct pollfd){.fd = 0, .events = POLLIN};
        if (ppoll(files, (nfds_t)count, &limit, NULL) <= 0) continue;
        for (int i = 0; i < publisher_count; i++)
            if (files[i].revents) serve_publisher(publishers + i);
        for (int i = 0; i < subscriber_count; i++)
            if (files[publisher_count + i].revents) receive_messages(subscribers + i);
        if (files[count - 1].revents) return 1;
    }
    return 0;
}

static int probe(void) {
    prctl(PR_SET_TIMERSLACK, 1);
    if (!publisher_count) fail("--pair is needed");
    setvbuf(stdout, NULL, _IOLBF, 0);
    publisher_epoll = epoll_create1(EPOLL_CLOEXEC); /* nobody waits for it: a probe's socket does not fill */
    connect_all();
    tells_each = 1;
    for (u64 begin = now_ns(); atomic_load(&heard_hellos) < wanted_hellos();) {
        if (now_ns() - begin > OPEN_LIMIT) fail("the way from publisher to subscriber did not open");
        for (int i = 0; i < publisher_count; i++) say_hello(publishers + i);
        follow_probes(now_ns() + 20000000);
    }
    printf("{\"ready\": 1}\n");
    for (u64 next = now_ns();;) {
        for (int i = 0; i < publisher_count; i++) {
            publish_message(publishers + i, now_ns());
            printf("{\"pair\": %d, \"number\": %u, \"sent\": %llu}\n", i, publishers[i].sequence - 1,
                   (unsigned long long)publishers[i].sent_ns);
        }
        next += opt.interval_ns;
        if (follow_probes(next)) return 0;
    }
}

/* --- options -------------------------------------------------------------------------------------------- */

static void parse_options(int count, char **words) {
    static const struct option names[] = {
        {"plan", 1, 0, 'p'}, {"interval-us", 1, 0, 'i'}, {"seconds", 1, 0, 'd'}, {"warmup", 1, 0, 'u'}, {"drain", 1, 0, 'D'}, {"drain-limit", 1, 0, 'L'},
        {"qos", 1, 0, 'q'}, {"payload", 1, 0, 's'}, {"watch", 1, 0, 'w'}, {"pair", 1, 0, 'P'}, {"slow-send-us", 1, 0, 'x'},
        {"slow-receive-us", 1, 0, 'y'}, {0, 0, 0, 0}};
    for (int o; (o = getopt_long(count, words, "", names, NULL)) != -1;) switch (o) {
        case 'p': opt.plan = optarg; break;
        case 'i': opt.interval_ns = strtoull(optarg, NULL, 10) * 1000; break;
        case 'd': opt.seconds = atof(optarg); break;
        case 'u': opt.warmup = atof(optarg); break;
        case 'D': opt.drain = atof(optarg); break;
        case 'L': opt.drain_limit = atof(optarg); break;
        case 'q': opt.qos = atoi(optarg); break;
        case 's': opt.payload = atoi(optarg); break;
        case 'w': watch_process(optarg); break;
        case 'P': add_pair(optarg); break;
        case 'x': opt.slow_send_ns = strtoull(optarg, NULL, 10) * 1000; break;
        case 'y': opt.slow_receive_ns = strtoull(optarg, NULL, 10) * 1000; break;
        default: exit(1);
        }
    if (opt.qos < 0 || opt.qos > 2) fail("--qos is 0, 1 or 2");
    if (opt.payload < (int)sizeof(struct stamp) || opt.payload > MAX_PAYLOAD)
        fail("a payload has %zu to %d bytes", sizeof(struct stamp), MAX_PAYLOAD);
}

int main(int count, char **words) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count < 2) fail("usage: paced load|probe [options]");
    parse_options(count - 1, words + 1);
    if (!strcmp(words[1], "load")) return load();
    if (!strcmp(words[1], "probe")) return probe();
    fail("unknown mode %s", words[1]);
}
