/* The publishers and subscribers of the load generator: set-up, sending, receiving. Theory: loadgen.c. */
#ifndef LOADGEN_CLIENTS_H
#define LOADGEN_CLIENTS_H

#include "loadgen_crowd.h"

#define RECEIVE_BUFFER (1 << 18)
#define MAX_PACKET (RECEIVE_BUFFER / 4)
#define PACKET_OVERHEAD (MAX_TOPIC + 64)

enum filters { EXACT, HASH, PLUS, EVERYTHING };

static struct {
    int version, publishers, subscribers, topics, qos, payload, user_properties, retain;
    int window, burst, latency;
    const char *share;
    double rate, seconds, warmup, drain;
    int topic_cycle, fresh_topics;
    enum filters filters;
    struct crowd crowd;
    struct watched watched;
    struct brokers brokers, publisher_brokers;
    int parallel;
} opt = {.version = 4, .publishers = 10, .subscribers = 50, .topics = 5, .payload = 80, .window = 1000,
         .burst = 600, .seconds = 2, .warmup = 0.5, .drain = 2, .parallel = 50};

struct group {
    long publishers, subscribers, sent, delivered;
    long copies; /* deliveries of each message: one in a shared group, otherwise one to each subscriber */
};

struct client {
    int fd, number;
    struct group *group;
    /* Bytes that must go out: first the batch of packets, then acknowledgements. */
    u8 *batch;
    size_t batch_bytes, batch_sent;
    u8 *replies;
    size_t reply_bytes, reply_capacity;
    /* The start of a packet whose end has not arrived. */
    u8 *partial;
    size_t partial_bytes;
    /* Publishers: */
    u32 sequence, packet_id;
    long completed, arrived; /* acknowledged; come to a member of the shared group */
    struct seen seen;
    size_t packet_length, packet_id_at, topic_number_at, stamp_at;
    /* Subscribers: the next sequence number of every publisher. */
    u32 *expected;
    long delivered;
};

static struct group *groups;
static int group_count;
static struct client *publishers, *subscribers;
static struct violations violations;
static struct latency latency;
static int measuring_latency;
static long total_sent, total_delivered, receive_calls;
static u64 first_fresh_topic;
static u8 receive_buffer[RECEIVE_BUFFER];

/* --- topics --------------------------------------------------------------------------------------------- */

static int changes_topic(void) { return opt.topic_cycle > 0 || opt.fresh_topics; }

/* The topic of publisher `publisher`; `number` counts when it changes topic with every message. */
static void topic_name(char *topic, int publisher, u64 number) {
    int length = snprintf(topic, MAX_TOPIC, "bench/topic/%05d", publisher % opt.topics);
    if (changes_topic()) snprintf(topic + length, MAX_TOPIC - (size_t)length, "/%05d/%010llu", publisher, (unsigned long long)number);
}

static void patch_digits(u8 *last, u64 number) {
    for (int i = 0; i < 10; i++, number /= 10) *last-- = (u8)('0' + number % 10);
}

/* Every group of publishers and subscribers is a shared group of its own: they differ by filter. */
static void add_own_filter(struct subscriber *s, const char *filter) {
    char shared[MAX_TOPIC];
    if (opt.share) {
        snprintf(shared, sizeof shared, "$share/%.32s/%.80s", opt.share, filter);
        filter = shared;
    }
    add_filter(s, filter);
}

static void subscribe(struct client *c, int topic) {
    char filter[MAX_TOPIC];
    struct subscriber s;
    begin_subscribing(&s, c->fd, opt.version, opt.qos);
    if (opt.filters == EVERYTHING) {
        add_own_filter(&s, "#");
    } else if (opt.filters == HASH) {
        snprintf(filter, sizeof filter, "bench/topic/%05d/#", topic);
        add_own_filter(&s, filter);
    } else if (opt.filters == PLUS) {
        snprintf(filter, sizeof filter, changes_topic() ? "+/topic/%05d/+/+" : "+/topic/%05d", topic);
        add_own_filter(&s, filter);
    } else if (!changes_topic()) {
        topic_name(filter, topic, 0);
        add_own_filter(&s, filter);
    } else {
        for (int p = topic; p < opt.publishers; p += opt.topics)
            for (int number = 0; number < opt.topic_cycle; number++) {
                topic_name(filter, p, (u64)number);
                add_own_filter(&s, filter);
            }
    }
    finish_subscribing(&s);
    if (s.refused) fail("the broker refused %ld subscriptions", s.refused);
}

/* --- publishing ----------------------------------------------------------------------------------------- */

#define USER_PROPERTY "\x26\0\4key0\0\7value00"
#define USER_PROPERTY_LENGTH (sizeof USER_PROPERTY - 1)

static u32 properties_length(void) { return (u32)(opt.user_properties * (int)USER_PROPERTY_LENGTH); }

/* Lays out `burst` equal PUBLISH packets in the publisher's batch and notes where they have to be patched. */
static void prepare_batch(struct client *c) {
    char topic[MAX_TOPIC];
    u8 packet[MAX_PACKET], *p = packet;
    topic_name(topic, c->number, 0);
    u32 body = (u32)strlen(topic) + 2 + (opt.qos ? 2 : 0) + (u32)opt.payload;
    if (opt.version == 5) {
        u8 scratch[4];
        body += (u32)(write_length(scratch, properties_length()) - scratch) + properties_length();
    }
    *p++ = (u8)(PUBLISH | opt.qos << 1 | opt.retain);
    p = write_length(p, body);
    p = write_string(p, topic);
    c->topic_number_at = (size_t)(p - packet) - 1;
    c->packet_id_at = (size_t)(p - packet);
    if (opt.qos) p = write_u16(p, 0);
    if (opt.version == 5) {
        p = write_length(p, properties_length());
        for (int i = 0; i < opt.user_properties; i++) {
            memcpy(p, USER_PROPERTY, USER_PROPERTY_LENGTH);
            p += USER_PROPERTY_LENGTH;
        }
    }
    c->stamp_at = (size_t)(p - packet);
    memset(p, 'x', (size_t)opt.payload);
    c->packet_length = c->stamp_at + (size_t)opt.payload;
    c->batch = allocate((size_t)opt.burst, c->packet_length);
    for (int i = 0; i < opt.burst; i++) memcpy(c->batch + (size_t)i * c->packet_length, packet, c->packet_length);
}

/* Makes the next `count` messages the batch to be sent. The batch before must have gone out. */
static void fill_batch(struct client *c, long count) {
    struct stamp stamp = {.publisher = (u32)c->number, .sequence = c->sequence, .sent_ns = now_ns()};
    u8 *packet = c->batch;
    for (long i = 0; i < count; i++, packet += c->packet_length) {
        memcpy(packet + c->stamp_at, &stamp, sizeof stamp);
        if (opt.qos) {
            c->packet_id = c->packet_id % 65535 + 1;
            write_u16(packet + c->packet_id_at, c->packet_id);
        }
        if (opt.fresh_topics) patch_digits(packet + c->topic_number_at, first_fresh_topic + stamp.sequence);
        else if (opt.topic_cycle) patch_digits(packet + c->topic_number_at, stamp.sequence % (u32)opt.topic_cycle);
        stamp.sequence++;
    }
    c->sequence = stamp.sequence;
    c->batch_sent = 0;
    c->batch_bytes = (size_t)count * c->packet_length;
    c->group->sent += count;
    total_sent += count;
}

static int is_idle(const struct client *c) { return c->batch_sent == c->batch_bytes && !c->reply_bytes; }

/* Sends what the socket takes. Acknowledgements never cut into a batch. */
static void flush(struct client *c) {
    while (c->batch_sent < c->batch_bytes) {
        ssize_t sent = send_bytes(c->fd, c->batch + c->batch_sent, c->batch_bytes - c->batch_sent);
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) fail("cannot send: %s", strerror(errno));
        c->batch_sent += (size_t)sent;
    }
    while (c->reply_bytes) {
        ssize_t sent = send_bytes(c->fd, c->replies, c->reply_bytes);
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) fail("cannot send: %s", strerror(errno));
        c->reply_bytes -= (size_t)sent;
        memmove(c->replies, c->replies + sent, c->reply_bytes);
    }
}

/* How many messages fit into the publisher's window, or into its share of the window of a group. */
static long room(const struct client *c) {
    const struct group *g = c->group;
    if (opt.share) return opt.window - ((long)c->sequence - c->arrived);
    long under_way = g->sent - g->delivered / g->copies;
    return ((long)opt.window * g->publishers - under_way) / g->publishers;
}

/* How many messages the publisher may send now: what there is room for, but no crumbs of a large window. */
static long credit(const struct client *c) {
    long count = room(c);
    if (count > opt.window) count = opt.window;
    if (opt.qos) {
        long unacknowledged = (long)c->sequence - c->completed;
        if (opt.window - unacknowledged < count) count = opt.window - unacknowledged;
    }
    if (count > opt.burst) count = opt.burst;
    long crumb = opt.window / 4 < opt.burst ? opt.window / 4 : opt.burst;
    return count >= crumb && count > 0 ? count : 0;
}

static void publish_by_window(void) {
    for (int i = 0; i < opt.publishers; i++) {
        struct client *c = publishers + i;
        if (is_idle(c)) {
            long count = credit(c);
            if (count) fill_batch(c, count);
        }
        flush(c);
    }
}

/* Sends every message whose time has come, the publishers in turn. */
static void publish_by_rate(u64 t) {
    static u64 due;
    static int turn;
    if (!due) due = t;
    for (int sent = 0; due <= t && sent < 5000; sent++) {
        struct client *c = publishers + turn;
        turn = (turn + 1) % opt.publishers;
        due += (u64)(1e9 / opt.rate);
        flush(c);
        if (!is_idle(c)) continue; /* the socket is full: the broker is behind */
        if (opt.qos && (long)c->sequence - c->completed >= 900) continue;
        fill_batch(c, 1);
        flush(c);
    }
}

/* --- receiving ------------------------------------------------------------------------------------------ */

static void reply(struct client *c, u8 first, const u8 *packet_id) {
    if (c->reply_bytes + 4 > c->reply_capacity) {
        c->reply_capacity = c->reply_capacity ? 2 * c->reply_capacity : 4096;
        c->replies = realloc(c->replies, c->reply_capacity);
        if (!c->replies) fail("out of memory");
    }
    u8 *p = c->replies + c->reply_bytes;
    p[0] = first;
    p[1] = 2;
    p[2] = packet_id[0];
    p[3] = packet_id[1];
    c->reply_bytes += 4;
}

static inline void take_message(struct client *c, u8 first, const u8 *body, const u8 *end, u64 t) {
    if (__builtin_expect(first & 1, 0)) { /* retained before we came: not part of the stream */
        if (opt.qos && first & 6) reply(c, first & 2 ? PUBACK : PUBREC, body + 2 + read_u16(body));
        return;
    }
    const u8 *p = body + 2 + read_u16(body);
    int qos = first >> 1 & 3;
    if (qos) {
        reply(c, qos == 1 ? PUBACK : PUBREC, p);
        p += 2;
    }
    u32 properties = 0;
    if (opt.version == 5) {
        if (!read_length(&p, end, &properties)) fail("the broker sent a PUBLISH with broken properties");
        p += properties;
    }
    c->group->delivered++;
    c->delivered++;
    total_delivered++;
    if (__builtin_expect(end - p != opt.payload || qos != opt.qos || properties < properties_length(), 0)) {
        violations.corrupt++;
        return;
    }
    struct stamp stamp;
    memcpy(&stamp, p, sizeof stamp);
    if (opt.share && stamp.publisher < (u32)opt.publishers) {
        struct client *publisher = publishers + stamp.publisher;
        publisher->arrived += check_shared(&violations, c->expected, &publisher->seen, &stamp);
    } else {
        check_order(&violations, c->expected, (u32)opt.publishers, &stamp);
    }
    if (measuring_latency) add_latency(&latency, t - stamp.sent_ns);
}

static void take_acknowledgement(struct client *c, u8 first, const u8 *body, const u8 *end) {
    if (end - body > 2 && body[2] >= 0x80) fail("the broker refused a message: reason 0x%02x", body[2]);
    switch (first & 0xF0) {
    case PUBACK:
    case PUBCOMP:
        /* A subscriber of QoS 2 gets no PUBCOMP, so this is a publisher. */
        c->completed++;
        break;
    case PUBREC: reply(c, PUBREL | 2, body); break;
    case PUBREL: reply(c, PUBCOMP, body); break;
    case PINGRESP: break;
    default: fail("unexpected packet 0x%02x from the broker", first);
    }
}

static void keep_partial(struct client *c, const u8 *from, const u8 *end) {
    c->partial_bytes = (size_t)(end - from);
    if (c->partial_bytes > MAX_PACKET) fail("the broker sends a packet longer than any that was published");
    if (!c->partial) c->partial = allocate(1, MAX_PACKET);
    memcpy(c->partial, from, c->partial_bytes);
}

/* One read: everything complete in it is checked and counted. Returns 0 if there was nothing to read. */
static int receive_once(struct client *c) {
    if (c->partial_bytes) memcpy(receive_buffer, c->partial, c->partial_bytes);
    ssize_t got = receive_bytes(c->fd, receive_buffer + c->partial_bytes, RECEIVE_BUFFER - c->partial_bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) fail("the broker closed the connection of %s %d", c->expected ? "subscriber" : "publisher", c->number);
    if (c->expected) receive_calls++;
    const u8 *p = receive_buffer, *end = p + c->partial_bytes + got, *body, *next;
    u64 t = measuring_latency ? now_ns() : 0;
    while (next_packet(p, end, &body, &next)) {
        if ((*p & 0xF0) == PUBLISH) take_message(c, *p, body, next, t);
        else take_acknowledgement(c, *p, body, next);
        p = next;
    }
    c->partial_bytes = 0;
    if (p < end) keep_partial(c, p, end);
    if (c->reply_bytes) flush(c);
    return 1;
}

static void receive(struct client *c) {
    while (receive_once(c) && is_unread(c->fd)) {}
}

/* --- set-up --------------------------------------------------------------------------------------------- */

static void enter_loop(struct client *c, int epoll) {
    unblock(c->fd);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event);
}

static void set_up_subscriber(struct client *c, int number) {
    char client_id[32];
    snprintf(client_id, sizeof client_id, "sub%d", number);
    c->number = number;
    c->group = groups + number % group_count;
    c->group->subscribers++;
    c->group->copies = opt.share ? 1 : c->group->subscribers;
    c->fd = connect_client(port_of(&opt.brokers, number), opt.version, client_id);
    c->expected = allocate((size_t)opt.publishers, sizeof *c->expected);
    for (int p = 0; p < opt.publishers; p++) c->expected[p] = p % group_count == number % group_count ? 0 : MISROUTED;
    subscribe(c, number % opt.topics);
}

static void set_up_publisher(struct client *c, int number) {
    char client_id[32];
    int send_buffer = 262144;
    snprintf(client_id, sizeof client_id, "pub%d", number);
    c->number = number;
    c->group = groups + number % group_count;
    c->group->publishers++;
    c->fd = connect_client(port_of(&opt.publisher_brokers, number), opt.version, client_id);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
    prepare_batch(c);
}

static int set_up_traffic(void) {
    long granted, refused;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    group_count = opt.filters == EVERYTHING ? 1 : opt.topics;
    groups = allocate((size_t)group_count, sizeof *groups);
    subscribers = allocate((size_t)opt.subscribers, sizeof *subscribers);
    publishers = allocate((size_t)opt.publishers, sizeof *publishers);
    first_fresh_topic = now_ns() / 1000 % 5000000000u; /* grows faster than any publisher: no run repeats a topic */
    gather_crowd(&opt.crowd, &granted, &refused);
    if (refused) fail("the broker refused %ld subscriptions of the crowd", refused);
    for (int i = 0; i < opt.subscribers; i++) set_up_subscriber(subscribers + i, i);
    for (int i = 0; i < opt.publishers; i++) set_up_publisher(publishers + i, i);
    for (int i = 0; i < opt.subscribers; i++) enter_loop(subscribers + i, epoll);
    for (int i = 0; i < opt.publishers; i++) enter_loop(publishers + i, epoll);
    return epoll;
}

#endif
