/* Publishers and subscribers of paced.c: plan, connecting, one send per message, receiving. */
#ifndef PACED_CLIENTS_H
#define PACED_CLIENTS_H

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#include "loadgen_stats.h"

typedef int64_t i64;

#define MAX_CLIENTS 4096
#define MAX_PAIRS 16
#define MAX_TOPICS 64
#define MAX_PAYLOAD 1024
#define RECEIVE_BUFFER 65536
#define HELLO UINT32_MAX           /* the sequence number of what does not count */
#define OPEN_LIMIT 30000000000ull  /* until all ways have to be open */
#define SEND_BUFFER 65536          /* of a publisher: what it says is not taken for taken by the broker */
#define MOST_UNACKNOWLEDGED 60000

static struct {
    const char *plan;
    int qos, payload;
    u64 interval_ns, slow_send_ns, slow_receive_ns;
    double seconds, warmup, drain, drain_limit;
} opt = {.payload = 32, .seconds = 60, .warmup = 1, .drain = 2, .drain_limit = 15, .interval_ns = 1000000000};

/* Bytes that the socket has not taken yet. */
struct outgoing {
    u8 *bytes;
    size_t count, capacity;
};

struct publisher {
    int fd, number, port, topic;
    u8 packet[MAX_PAYLOAD + 64];
    size_t length, packet_id_at, stamp_at;
    struct outgoing out;
    u64 due, sent_ns;
    int was_held; /* its socket was full since the last message */
    u32 sequence, packet_id;
    long unacknowledged;
    u64 *sent_at; /* by packet id */
    u8 partial[8];
    size_t partial_bytes;
};

struct subscriber_client {
    int fd, number, port, topic;
    u32 *expected; /* by publisher: the next sequence number */
    u8 *heard;     /* by publisher: it has said hello */
    struct violations violations;
    struct outgoing out;
    u8 *partial;
    size_t partial_bytes;
    u32 window, widest; /* the receive window, and the largest it was */
};

static atomic_int stage; /* HELLO until all ways are open, then RUN, then STOP: nothing more is sent */
enum { HELLO_STAGE, RUN_STAGE, STOP_STAGE, END_STAGE };

static struct publisher *publishers;
static struct subscriber_client *subscribers;
static int publisher_count, subscriber_count, publisher_epoll, tells_each;
static atomic_long attempted, completed, received, overdue, held, heard_hellos;
static atomic_int measuring;
static struct latency latency, completion;

/* --- the plan ------------------------------------------------------------------------------------------- */

static void add_publisher(int port, int topic) {
    if (!publishers) publishers = allocate(MAX_CLIENTS, sizeof *publishers);
    if (publisher_count == MAX_CLIENTS) fail("at most %d publishers", MAX_CLIENTS);
    publishers[publisher_count] = (struct publisher){.number = publisher_count, .port = port, .topic = topic};
    publisher_count++;
}

static void add_subscriber(int port, int topic) {
    if (!subscribers) subscribers = allocate(MAX_CLIENTS, sizeof *subscribers);
    if (subscriber_count == MAX_CLIENTS) fail("at most %d subscribers", MAX_CLIENTS);
    subscribers[subscriber_count] = (struct subscriber_client){.number = subscriber_count, .port = port, .topic = topic};
    subscriber_count++;
}

static void read_plan(const char *name) {
    char kind[16];
    int port, topic;
    FILE *file = fopen(name, "r");
    if (!file) fail("cannot read %s: %s", name, strerror(errno));
    while (fscanf(file, "%15s %d %d", kind, &port, &topic) == 3) {
        if (topic < 0 || topic >= MAX_TOPICS) fail("topics are 0 to %d", MAX_TOPICS - 1);
        if (!strcmp(kind, "publisher")) add_publisher(port, topic);
        else if (!strcmp(kind, "subscriber")) add_subscriber(port, topic);
        else fail("the plan has a %s", kind);
    }
    if (!feof(file)) fail("a line of the plan is: publisher|subscriber PORT TOPIC");
    fclose(file);
    if (!publisher_count || !subscriber_count) fail("the plan needs publishers and subscribers");
}

/* PORT:PORT, where it publishes and where it subscribes. */
static void add_pair(const char *ports) {
    int from, to;
    if (sscanf(ports, "%d:%d", &from, &to) != 2) fail("--pair is PORT:PORT");
    if (publisher_count == MAX_PAIRS) fail("at most %d pairs", MAX_PAIRS);
    add_subscriber(to, MAX_TOPICS + publisher_count);
    add_publisher(from, MAX_TOPICS + publisher_count);
}

/* Of this run only: what a broker still has of another one does not come here. */
static void topic_name(char *topic, int number) {
    if (number < MAX_TOPICS) snprintf(topic, MAX_TOPIC, "coordination/%d/topic/%d", (int)getpid(), number);
    else snprintf(topic, MAX_TOPIC, "coordination/%d/probe/%d", (int)getpid(), number - MAX_TOPICS);
}

/* Of the messages that were attempted, all copies. */
static long expected_messages(void) {
    long copies[MAX_TOPICS + MAX_PAIRS] = {0}, count = 0;
    for (int i = 0; i < subscriber_count; i++) copies[subscribers[i].topic]++;
    for (int i = 0; i < publisher_count; i++) count += (long)publishers[i].sequence * copies[publishers[i].topic];
    return count;
}

static long wanted_hellos(void) {
    long count = 0;
    for (int i = 0; i < subscriber_count; i++)
        for (int p = 0; p < publisher_count; p++) count += publishers[p].topic == subscribers[i].topic;
    return count;
}

static struct violations all_violations(void) {
    struct violations sum = {0};
    for (int i = 0; i < subscriber_count; i++) {
        const struct violations *v = &subscribers[i].violations;
        sum.gaps += v->gaps;
        sum.disorder += v->disorder;
        sum.misrouted += v->misrouted;
        sum.corrupt += v->corrupt;
    }
    return sum;
}

/* --- sending -------------------------------------------------------------------------------------------- */

static void watch_events(int epoll, int operation, int fd, void *client, u32 events) {
    struct epoll_event event = {.events = events, .data.ptr = client};
    epoll_ctl(epoll, operation, fd, &event);
}

static void enter_loop(int epoll, int fd, void *client, u32 events) {
    unblock(fd);
    watch_events(epoll, EPOLL_CTL_ADD, fd, client, events);
}

/* What the socket takes of them; -1 is a failure. */
static size_t send_some(int fd, const u8 *bytes, size_t count) {
    size_t total = 0;
    while (total < count) {
        ssize_t sent = send_bytes(fd, bytes + total, count - total);
        if (sent < 0 && errno == EAGAIN) break;
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) fail("cannot send: %s", strerror(errno));
        total += (size_t)sent;
    }
    return total;
}

static void keep_outgoing(struct outgoing *out, const u8 *bytes, size_t count) {
    if (out->count + count > out->capacity) {
        out->capacity = 2 * (out->count + count) + 256;
        out->bytes = realloc(out->bytes, out->capacity);
        if (!out->bytes) fail("out of memory");
    }
    memcpy(out->bytes + out->count, bytes, count);
    out->count += count;
}

static void flush_outgoing(int fd, struct outgoing *out) {
    size_t sent = send_some(fd, out->bytes, out->count);
    out->count -= sent;
    memmove(out->bytes, out->bytes + sent, out->count);
}

static int is_blocked(const struct publisher *p) {
    return p->out.count || (opt.qos && p->unacknowledged >= MOST_UNACKNOWLEDGED);
}

static void prepare_packet(struct publisher *p) {
    char topic[MAX_TOPIC];
    u8 *at = p->packet;
    topic_name(topic, p->topic);
    *at++ = (u8)(PUBLISH | opt.qos << 1);
    at = write_length(at, (u32)strlen(topic) + 2 + (opt.qos ? 2 : 0) + (u32)opt.payload);
    at = write_string(at, topic);
    p->packet_id_at = (size_t)(at - p->packet);
    if (opt.qos) at = write_u16(at, 0);
    p->stamp_at = (size_t)(at - p->packet);
    memset(at, 'x', (size_t)opt.payload);
    p->length = p->stamp_at + (size_t)opt.payload;
}

/* One send. The first byte may be of QoS 0 for what needs no acknowledgement. */
static void send_packet(struct publisher *p, u32 sequence) {
    struct stamp stamp = {.publisher = (u32)p->number, .sequence = sequence, .sent_ns = now_ns()};
    p->sent_ns = stamp.sent_ns;
    memcpy(p->packet + p->stamp_at, &stamp, sizeof stamp);
    if (opt.qos) {
        p->packet_id = p->packet_id % 65535 + 1;
        write_u16(p->packet + p->packet_id_at, p->packet_id);
        p->sent_at[p->packet_id] = sequence == HELLO ? 0 : stamp.sent_ns;
        p->unacknowledged++;
    }
    size_t sent = send_some(p->fd, p->packet, p->length);
    if (sent < p->length) {
        keep_outgoing(&p->out, p->packet + sent, p->length - sent);
        p->was_held = 1;
        watch_events(publisher_epoll, EPOLL_CTL_MOD, p->fd, p, EPOLLIN | EPOLLOUT);
    }
}

static void say_hello(struct publisher *p) { send_packet(p, HELLO); }

static void burn(u64 ns) {
    for (u64 end = now_ns() + ns; now_ns() < end;) {}
}

static void complete(struct publisher *p, u64 sent_ns) {
    if (!sent_ns) return;
    u64 t = now_ns();
    atomic_fetch_add_explicit(&completed, 1, memory_order_relaxed);
    if (atomic_load_explicit(&measuring, memory_order_relaxed)) add_latency(&completion, t - sent_ns);
    if (tells_each)
        printf("{\"pair\": %d, \"number\": %u, \"completed\": %llu}\n", p->number, p->sequence - 1, (unsigned long long)t);
}

/* A message that is due. Slots that have gone by are counted and left out: nobody catches up by bursts. */
static void publish_message(struct publisher *p, u64 t) {
    u64 interval = opt.interval_ns;
    if (opt.slow_send_ns) burn(opt.slow_send_ns);
    if (interval && t > p->due + interval && !tells_each)
        atomic_fetch_add_explicit(p->was_held ? &held : &overdue, (long)((t - p->due) / interval), memory_order_relaxed);
    p->due = t > p->due + interval ? t + interval : p->due + interval;
    p->was_held = 0;
    atomic_fetch_add_explicit(&attempted, 1, memory_order_relaxed);
    send_packet(p, p->sequence++);
    if (!opt.qos && !p->out.count) complete(p, p->sent_ns);
}

static void answer(int fd, struct outgoing *out, u8 first, const u8 *packet_id) {
    u8 packet[4] = {first, 2, packet_id[0], packet_id[1]};
    keep_outgoing(out, packet, sizeof packet);
    flush_outgoing(fd, out);
}

/* Acknowledgements of two bytes, and what waits to be sent. */
static void serve_publisher(struct publisher *p) {
    u8 buffer[RECEIVE_BUFFER];
    if (p->out.count) {
        flush_outgoing(p->fd, &p->out);
        if (!p->out.count) {
            watch_events(publisher_epoll, EPOLL_CTL_MOD, p->fd, p, EPOLLIN);
            if (!opt.qos) complete(p, p->sent_ns);
        }
    }
    memcpy(buffer, p->partial, p->partial_bytes);
    ssize_t got = receive_bytes(p->fd, buffer + p->partial_bytes, sizeof buffer - p->partial_bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) fail("the broker at port %d closed the connection of publisher %d", p->port, p->number);
    const u8 *at = buffer, *end = buffer + p->partial_bytes + got, *body, *next;
    for (; next_packet(at, end, &body, &next); at = next) {
        if (*at == PUBREC) answer(p->fd, &p->out, PUBREL | 2, body);
        if (*at != PUBACK && *at != PUBCOMP) continue;
        p->unacknowledged--;
        complete(p, p->sent_at[read_u16(body)]);
    }
    p->partial_bytes = (size_t)(end - at);
    if (p->partial_bytes > sizeof p->partial) fail("the broker sent a publisher something else than acknowledgements");
    memcpy(p->partial, at, p->partial_bytes);
}

/* --- receiving ------------------------------------------------------------------------------------------ */

static void take_hello(struct subscriber_client *s, u32 publisher) {
    if (publisher >= (u32)publisher_count || s->expected[publisher] == MISROUTED || s->heard[publisher]) return;
    s->heard[publisher] = 1;
    atomic_fetch_add(&heard_hellos, 1);
}

static void take_message(struct subscriber_client *s, u8 first, const u8 *body, const u8 *end, u64 t) {
    const u8 *at = body + 2 + read_u16(body);
    int qos = first >> 1 & 3;
    if (qos) {
        answer(s->fd, &s->out, qos == 1 ? PUBACK : PUBREC, at);
        at += 2;
    }
    if (end - at != opt.payload) {
        s->violations.corrupt++;
        return;
    }
    struct stamp stamp;
    memcpy(&stamp, at, sizeof stamp);
    if (stamp.sequence == HELLO) {
        take_hello(s, stamp.publisher);
        return;
    }
    long repeated = s->violations.disorder, misrouted = s->violations.misrouted;
    check_order(&s->violations, s->expected, (u32)publisher_count, &stamp);
    if (s->violations.disorder != repeated || s->violations.misrouted != misrouted) return;
    if (tells_each)
        printf("{\"pair\": %u, \"number\": %u, \"received\": %llu}\n", stamp.publisher, stamp.sequence, (unsigned long long)t);
    if (opt.slow_receive_ns && atomic_load(&stage) == RUN_STAGE) burn(opt.slow_receive_ns);
    atomic_fetch_add_explicit(&received, 1, memory_order_relaxed);
    if (atomic_load_explicit(&measuring, memory_order_relaxed)) add_latency(&latency, t - stamp.sent_ns);
}

/* One read: everything complete in it is checked and counted. */
static void receive_messages(struct subscriber_client *s) {
    u8 buffer[RECEIVE_BUFFER];
    memcpy(buffer, s->partial, s->partial_bytes);
    ssize_t got = receive_bytes(s->fd, buffer + s->partial_bytes, sizeof buffer - s->partial_bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) fail("the broker at port %d closed the connection of subscriber %d", s->port, s->number);
    const u8 *at = buffer, *end = buffer + s->partial_bytes + got, *body, *next;
    u64 t = now_ns();
    for (; next_packet(at, end, &body, &next); at = next) {
        if ((*at & 0xF0) == PUBLISH) take_message(s, *at, body, next, t);
        else if ((*at & 0xF0) == PUBREL) answer(s->fd, &s->out, PUBCOMP, body);
    }
    s->partial_bytes = (size_t)(end - at);
    if (s->partial_bytes > RECEIVE_BUFFER / 2) fail("the broker sends a packet longer than any that was published");
    memcpy(s->partial, at, s->partial_bytes);
    if (s->out.count) flush_outgoing(s->fd, &s->out);
}

/* --- connecting ----------------------------------------------------------------------------------------- */

static void connect_subscriber(struct subscriber_client *s, const char *kind) {
    char id[32], topic[MAX_TOPIC];
    struct subscriber wanted;
    snprintf(id, sizeof id, "%s%d-sub%d", kind, (int)getpid(), s->number);
    topic_name(topic, s->topic);
    s->fd = connect_client(s->port, 4, id);
    s->expected = allocate((size_t)publisher_count, sizeof *s->expected);
    s->heard = allocate((size_t)publisher_count, 1);
    s->partial = allocate(1, RECEIVE_BUFFER);
    for (int p = 0; p < publisher_count; p++) s->expected[p] = publishers[p].topic == s->topic ? 0 : MISROUTED;
    begin_subscribing(&wanted, s->fd, 4, opt.qos);
    add_filter(&wanted, topic);
    finish_subscribing(&wanted);
    if (wanted.refused) fail("the broker at port %d refused a subscription", s->port);
}

static void connect_publisher(struct publisher *p, const char *kind) {
    char id[32];
    int send_buffer = SEND_BUFFER;
    snprintf(id, sizeof id, "%s%d-pub%d", kind, (int)getpid(), p->number);
    p->fd = connect_client(p->port, 4, id);
    setsockopt(p->fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
    if (opt.qos) p->sent_at = allocate(65536, sizeof *p->sent_at);
    prepare_packet(p);
}

static void connect_all(void) {
    const char *kind = publishers[0].topic < MAX_TOPICS ? "load" : "probe";
    for (int i = 0; i < subscriber_count; i++) connect_subscriber(subscribers + i, kind);
    for (int i = 0; i < publisher_count; i++) connect_publisher(publishers + i, kind);
    if (publishers[0].topic < MAX_TOPICS) return;
    for (int i = 0; i < subscriber_count; i++) unblock(subscribers[i].fd);
    for (int i = 0; i < publisher_count; i++) enter_loop(publisher_epoll, publishers[i].fd, publishers + i, EPOLLIN);
}

#endif
