/* Load generator for MQTT brokers on loopback: one thread, one epoll, many clients.
 *
 *   loadgen traffic --port N [...]   publishers and subscribers; prints rate, CPU per message, latency, violations
 *   loadgen hold --port N [...]      idle connections with subscriptions, until standard input ends
 *   loadgen storm --port N [...]     short connections, one after the other
 *   loadgen cipher --port N --tls F  prints what TLS agrees on with the broker
 *
 * Theory of `traffic`. Publisher i and subscriber j belong to group i mod topics and j mod topics. Everybody in a
 * group shares one topic, so each subscriber must get all messages of the group's publishers and no others.
 * A publisher may have `window` messages under way: sent, but not yet at all subscribers (for QoS 1 and 2 also not
 * yet acknowledged). Small windows give one packet per wake-up of the broker, large ones give batches. With
 * `--rate` the window does not count and messages leave one by one at fixed times.
 * With `--share NAME` the subscribers of a group are members of one shared group: every message comes to exactly one
 * of them, a member never sees a publisher go back, and each publisher has a window of its own.
 * `--port` may be a list: client number i of each kind goes to broker i mod brokers. With as many topics as brokers,
 * the brokers need not know of each other. With `--publisher-port` those in `--port` are the subscribers' brokers, and
 * publishers go to others, of the same cluster.
 * With `--tls FILE` all connections have TLS, to servers that an authority in FILE has signed (loadgen_transport.h).
 * With `--keep-sessions` clients resume sessions, so that a broker with a disk has to keep what is under way.
 * The generator must be much cheaper than the brokers: a publisher's packets all have the same length and lie ready
 * in memory, and only stamp, packet id and topic number are patched before a batch is sent. What comes back is
 * parsed packet by packet, and each payload's stamp is checked for order and loss (loadgen_stats.h).
 *
 * Exit status: 0 all is well, 1 cannot run, 3 messages were lost, reordered, repeated, misrouted or changed.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <limits.h>

#include "loadgen_clients.h"

/* --- the measured loop ---------------------------------------------------------------------------------- */

struct sample {
    u64 time;
    long sent, delivered, receive_calls;
    double broker_cpu, own_cpu;
};

static struct sample take_sample(u64 t) {
    return (struct sample){t, total_sent, total_delivered, receive_calls, broker_cpu(&opt.watched), own_cpu()};
}

static long expected_deliveries(void) {
    long count = 0;
    for (int i = 0; i < group_count; i++) count += groups[i].sent * groups[i].copies;
    return count;
}

/* Deliveries that count: in a shared group a message that comes again does not make up for one that is missing. */
static long arrived(void) { return total_delivered - violations.repeated; }

static void poll_once(int epoll, int timeout_ms) {
    struct epoll_event events[256];
    int count = epoll_wait(epoll, events, 256, timeout_ms);
    for (int i = 0; i < count; i++) receive(events[i].data.ptr);
}

static void flush_all(void) {
    for (int i = 0; i < opt.subscribers; i++)
        if (!is_idle(subscribers + i)) flush(subscribers + i);
    for (int i = 0; i < opt.publishers; i++)
        if (!is_idle(publishers + i)) flush(publishers + i);
}

static void publish_until(int epoll, u64 end) {
    for (u64 t; (t = now_ns()) < end;) {
        if (opt.rate > 0) {
            publish_by_rate(t);
            nanosleep(&(struct timespec){0, 10000}, NULL);
        } else {
            publish_by_window();
        }
        if (opt.qos) flush_all();
        poll_once(epoll, opt.rate > 0 ? 0 : 1);
    }
}

/* Waits until everything has come, or nothing more has for `drain` seconds. */
static void drain(int epoll) {
    u64 start = now_ns(), progress = start, t = start;
    long delivered = total_delivered, expected = expected_deliveries();
    while (arrived() < expected && t - progress < (u64)(opt.drain * 1e9) && t - start < 15000000000u) {
        flush_all();
        poll_once(epoll, 1);
        t = now_ns();
        if (total_delivered != delivered) progress = t;
        delivered = total_delivered;
    }
    for (int i = 0; i < 20; i++) poll_once(epoll, 1); /* whoever sends twice sends now */
}

static int report(const struct sample *a, const struct sample *b) {
    double seconds = (double)(b->time - a->time) * 1e-9, cpu = b->broker_cpu - a->broker_cpu;
    double own = b->own_cpu - a->own_cpu;
    long delivered = b->delivered - a->delivered;
    long lost = expected_deliveries() - arrived(), least = LONG_MAX, most = 0;
    for (int i = 0; i < opt.subscribers; i++) {
        if (subscribers[i].delivered < least) least = subscribers[i].delivered;
        if (subscribers[i].delivered > most) most = subscribers[i].delivered;
    }
    double per_message = 1e6 / (double)(delivered ? delivered : 1);
    printf("{\"rate\": %.0f, \"in_rate\": %.0f, \"us\": %.4f, \"broker_cpu\": %.3f, \"loadgen_cpu\": %.3f, "
           "\"loadgen_us\": %.4f, \"mean\": %.1f, \"p50\": %d, \"p99\": %d, \"messages_per_read\": %.1f, \"delivered\": %ld, "
           "\"published\": %ld, \"least\": %ld, \"most\": %ld, \"lost\": %ld, \"gaps\": %ld, \"disorder\": %ld, "
           "\"misrouted\": %ld, \"corrupt\": %ld, \"repeated\": %ld}\n",
           (double)delivered / seconds, (double)(b->sent - a->sent) / seconds, cpu * per_message, cpu / seconds,
           own / seconds, own * per_message, mean_latency(&latency), percentile(&latency, 0.5), percentile(&latency, 0.99),
           (double)delivered / (double)(b->receive_calls - a->receive_calls + 1), total_delivered, total_sent, least,
           most, lost, violations.gaps, violations.disorder, violations.misrouted, violations.corrupt,
           violations.repeated);
    return lost || violations.gaps || violations.disorder || violations.misrouted || violations.corrupt ||
                   violations.repeated
               ? 3
               : 0;
}

static int traffic(void) {
    if (opt.publishers < opt.topics || opt.subscribers < (opt.filters == EVERYTHING ? 1 : opt.topics))
        fail("every topic needs a publisher and a subscriber");
    if (opt.fresh_topics && opt.filters == EXACT) fail("fresh topics need --filters hash, plus or everything");
    if (opt.user_properties && opt.version != 5) fail("user properties need --mqtt 5");
    if (opt.payload < (int)sizeof(struct stamp)) fail("a payload has at least %zu bytes", sizeof(struct stamp));
    if ((size_t)opt.payload + properties_length() > MAX_PACKET - PACKET_OVERHEAD) fail("the packets would be too long");
    int epoll = set_up_traffic();
    u64 begin = now_ns() + (u64)(opt.warmup * 1e9);
    publish_until(epoll, begin);
    struct sample before = take_sample(now_ns());
    measuring_latency = opt.rate > 0 || opt.latency;
    publish_until(epoll, begin + (u64)(opt.seconds * 1e9));
    struct sample after = take_sample(now_ns());
    measuring_latency = 0;
    drain(epoll);
    return report(&before, &after);
}

/* --- options -------------------------------------------------------------------------------------------- */

static enum filters filters_named(const char *name) {
    static const char *const names[] = {"exact", "hash", "plus", "everything"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, names[i])) return (enum filters)i;
    fail("--filters is exact, hash, plus or everything");
    return EXACT;
}

static void parse_options(int count, char **words) {
    static const struct option names[] = {
        {"port", 1, 0, 'p'}, {"publisher-port", 1, 0, 'o'}, {"mqtt", 1, 0, 'V'}, {"publishers", 1, 0, 'P'},
        {"subscribers", 1, 0, 'S'}, {"topics", 1, 0, 'T'}, {"qos", 1, 0, 'q'}, {"payload", 1, 0, 's'}, {"user-properties", 1, 0, 'k'},
        {"retain", 0, 0, 'R'}, {"window", 1, 0, 'w'}, {"burst", 1, 0, 'B'}, {"rate", 1, 0, 'r'},
        {"seconds", 1, 0, 'd'}, {"warmup", 1, 0, 'u'}, {"drain", 1, 0, 'D'}, {"topic-cycle", 1, 0, 'c'},
        {"fresh-topics", 0, 0, 'f'}, {"filters", 1, 0, 'F'}, {"clients", 1, 0, 'C'}, {"subscriptions", 1, 0, 'n'},
        {"broker-pids", 1, 0, 'b'}, {"parallel", 1, 0, 'x'},
        {"share", 1, 0, 'g'}, {"latency", 0, 0, 'l'}, {"tls", 1, 0, 't'}, {"keep-sessions", 0, 0, 'K'},
        {0, 0, 0, 0}};
    for (int o; (o = getopt_long(count, words, "", names, NULL)) != -1;) switch (o) {
        case 'p': add_brokers(&opt.brokers, optarg); break;
        case 'o': add_brokers(&opt.publisher_brokers, optarg); break;
        case 'V': opt.version = atoi(optarg); break;
        case 'P': opt.publishers = atoi(optarg); break;
        case 'S': opt.subscribers = atoi(optarg); break;
        case 'T': opt.topics = atoi(optarg); break;
        case 'q': opt.qos = atoi(optarg); break;
        case 's': opt.payload = atoi(optarg); break;
        case 'k': opt.user_properties = atoi(optarg); break;
        case 'R': opt.retain = 1; break;
        case 'w': opt.window = atoi(optarg); break;
        case 'B': opt.burst = atoi(optarg); break;
        case 'r': opt.rate = atof(optarg); break;
        case 'd': opt.seconds = atof(optarg); break;
        case 'u': opt.warmup = atof(optarg); break;
        case 'D': opt.drain = atof(optarg); break;
        case 'c': opt.topic_cycle = atoi(optarg); break;
        case 'f': opt.fresh_topics = 1; break;
        case 'F': opt.filters = filters_named(optarg); break;
        case 'C': opt.crowd.clients = atol(optarg); break;
        case 'n': opt.crowd.subscriptions = atol(optarg); break;
        case 'b': watch_pids(&opt.watched, optarg); break;
        case 'x': opt.parallel = atoi(optarg); break;
        case 'g': opt.share = optarg; break;
        case 'l': opt.latency = 1; break;
        case 'K': keep_sessions = 1; break;
        case 't': use_tls(optarg); break;
        default: exit(1);
        }
    if (!opt.brokers.count) fail("--port is needed");
    if (!opt.publisher_brokers.count) opt.publisher_brokers = opt.brokers;
    opt.crowd.port = opt.brokers.ports[0];
    opt.crowd.version = opt.version;
}

static int tell_cipher(void) {
    if (!is_secured()) fail("--tls is needed");
    int fd = open_connection(opt.brokers.ports[0]);
    printf("%s %s\n", tls_version_of(fd), cipher_of(fd));
    return 0;
}

static void raise_file_limit(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int count, char **words) {
    if (count < 2) fail("usage: loadgen traffic|hold|storm|cipher --port N [options]");
    parse_options(count - 1, words + 1);
    raise_file_limit();
    if (!strcmp(words[1], "traffic")) return traffic();
    if (!strcmp(words[1], "hold")) return hold(&opt.crowd);
    if (!strcmp(words[1], "storm")) {
        struct storm storm = {opt.brokers.ports[0], opt.version, opt.parallel, opt.seconds, opt.warmup, opt.watched};
        return run_storm(&storm);
    }
    if (!strcmp(words[1], "cipher")) return tell_cipher();
    fail("unknown mode %s", words[1]);
}
