/* MQTT packets for the load generator: reading headers, connecting, subscribing.
 *
 * Connecting and subscribing happen before anything is measured, so these calls block and are simple. Only
 * `next_packet` and the small writers at the top are used while measuring.
 */
#ifndef LOADGEN_MQTT_H
#define LOADGEN_MQTT_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "loadgen_transport.h"

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

enum packet_type {
    CONNECT = 0x10, CONNACK = 0x20, PUBLISH = 0x30, PUBACK = 0x40, PUBREC = 0x50, PUBREL = 0x60, PUBCOMP = 0x70,
    SUBSCRIBE = 0x80, SUBACK = 0x90, PINGRESP = 0xD0, DISCONNECT = 0xE0
};

#define MAX_TOPIC 128
#define MAX_BROKERS 16
#define FILTERS_PER_SUBSCRIBE 200

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) fail("out of memory");
    return memory;
}

static inline u32 read_u16(const u8 *p) { return (u32)p[0] << 8 | p[1]; }

static inline u8 *write_u16(u8 *p, u32 value) {
    p[0] = (u8)(value >> 8);
    p[1] = (u8)value;
    return p + 2;
}

static u8 *write_length(u8 *p, u32 length) {
    do {
        u8 digit = length & 127;
        length >>= 7;
        *p++ = length ? digit | 128 : digit;
    } while (length);
    return p;
}

static u8 *write_string(u8 *p, const char *text) {
    size_t length = strlen(text);
    p = write_u16(p, (u32)length);
    memcpy(p, text, length);
    return p + length;
}

/* A variable byte integer at *p. Returns 0 when it is not complete before `end`. */
static inline int read_length(const u8 **p, const u8 *end, u32 *value) {
    const u8 *q = *p;
    u32 result = 0;
    for (int shift = 0; shift < 28; shift += 7) {
        if (q == end) return 0;
        u8 digit = *q++;
        result |= (u32)(digit & 127) << shift;
        if (digit < 128) {
            *p = q;
            *value = result;
            return 1;
        }
    }
    fail("the broker sent a malformed length");
    return 0;
}

/* Finds the packet at `p`: its body starts at *body and ends at *next. Returns 0 when it is not complete. */
static inline int next_packet(const u8 *p, const u8 *end, const u8 **body, const u8 **next) {
    u32 length;
    if (end - p < 2) return 0;
    if (p[1] < 128) {
        length = p[1];
        p += 2;
    } else {
        p++;
        if (!read_length(&p, end, &length)) return 0;
    }
    if ((u64)(end - p) < length) return 0;
    *body = p;
    *next = p + length;
    return 1;
}

static void send_all(int fd, const u8 *bytes, size_t count) {
    while (count) {
        ssize_t sent = send_bytes(fd, bytes, count);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) fail("cannot send: %s", strerror(errno));
        bytes += sent;
        count -= (size_t)sent;
    }
}

static void receive_all(int fd, u8 *bytes, size_t count) {
    while (count) {
        ssize_t got = receive_bytes(fd, bytes, count);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) fail("the broker closed a connection during set-up");
        if (got < 0) fail("cannot receive: %s", strerror(errno));
        bytes += got;
        count -= (size_t)got;
    }
}

/* Blocks for one packet; its body goes to `body`. Returns the first byte. */
static u8 receive_packet(int fd, u8 *body, size_t capacity, u32 *length) {
    u8 first, digit;
    int shift = 0;
    receive_all(fd, &first, 1);
    *length = 0;
    do {
        receive_all(fd, &digit, 1);
        *length |= (u32)(digit & 127) << shift;
        shift += 7;
    } while (digit & 128 && shift < 28);
    if (*length > capacity) fail("the broker sent a packet of %u bytes during set-up", *length);
    receive_all(fd, body, *length);
    return first;
}

/* The brokers of a run: clients number 0, 1, 2... go to them in turn. */
struct brokers {
    int ports[MAX_BROKERS], count;
};

static void add_brokers(struct brokers *b, char *list) {
    for (char *item = strtok(list, ","); item; item = strtok(NULL, ",")) {
        if (b->count == MAX_BROKERS) fail("at most %d brokers", MAX_BROKERS);
        b->ports[b->count++] = atoi(item);
    }
}

static int port_of(const struct brokers *b, int number) { return b->ports[number % b->count]; }

static int keep_sessions; /* clients connect to sessions that outlive their connections */

/* Writes a CONNECT without keep alive, with clean start unless sessions are kept. */
static size_t encode_connect(u8 *packet, int version, const char *client_id) {
    u8 *p = packet;
    *p++ = CONNECT;
    u32 properties = version != 5 ? 0 : keep_sessions ? 6 : 1;
    p = write_length(p, (u32)strlen(client_id) + 12 + properties);
    p = write_string(p, "MQTT");
    *p++ = (u8)version;
    *p++ = keep_sessions ? 0 : 0x02;
    p = write_u16(p, 0);
    if (version == 5) *p++ = keep_sessions ? 5 : 0;
    if (version == 5 && keep_sessions) { /* session expiry interval: a day */
        *p++ = 0x11;
        p = write_u16(p, 1);
        p = write_u16(p, 0x5180);
    }
    p = write_string(p, client_id);
    return (size_t)(p - packet);
}

/* A connection to the broker on loopback, secured if that is wanted; retries while its accept queue is full. */
static int open_connection(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int attempt = 0; attempt < 200; attempt++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) fail("cannot make a socket: %s", strerror(errno));
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
            int on = 1;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            secure(fd);
            return fd;
        }
        close(fd);
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    fail("cannot connect to port %d: %s", port, strerror(errno));
    return -1;
}

static int connect_client(int port, int version, const char *client_id) {
    u8 packet[256], body[4096];
    u32 length;
    int fd = open_connection(port);
    send_all(fd, packet, encode_connect(packet, version, client_id));
    u8 first = receive_packet(fd, body, sizeof body, &length);
    if (first != CONNACK || length < 2 || body[1] != 0)
        fail("CONNECT refused: packet 0x%02x, reason 0x%02x", first, length > 1 ? body[1] : 0);
    return fd;
}

/* Filters gathered into SUBSCRIBE packets; `granted` and `refused` count the broker's answers. */
struct subscriber {
    int fd, version, qos;
    u32 packet_id, waiting;
    u8 *body, *end;
    long granted, refused;
};

static void begin_subscribing(struct subscriber *s, int fd, int version, int qos) {
    *s = (struct subscriber){.fd = fd, .version = version, .qos = qos, .packet_id = 1};
    s->body = s->end = allocate(FILTERS_PER_SUBSCRIBE, MAX_TOPIC + 3);
}

static void flush_filters(struct subscriber *s) {
    u8 header[16], body[4096], *p = header;
    u32 length;
    if (!s->waiting) return;
    *p++ = SUBSCRIBE | 2;
    p = write_length(p, (u32)(s->end - s->body) + 2 + (s->version == 5));
    p = write_u16(p, s->packet_id);
    if (s->version == 5) *p++ = 0;
    send_all(s->fd, header, (size_t)(p - header));
    send_all(s->fd, s->body, (size_t)(s->end - s->body));
    do { /* retained messages may come before the SUBACK; only small ones do, in the tests that retain */
        u8 first = receive_packet(s->fd, body, sizeof body, &length);
        if (first == SUBACK) break;
        if ((first & 0xF0) != PUBLISH) fail("SUBSCRIBE answered by packet 0x%02x", first);
    } while (1);
    if (length < s->waiting) fail("SUBACK with too few reason codes");
    for (u32 i = length - s->waiting; i < length; i++) {
        if (body[i] < 0x80) s->granted++;
        else s->refused++;
    }
    s->end = s->body;
    s->waiting = 0;
    s->packet_id = s->packet_id % 65535 + 1;
}

static void add_filter(struct subscriber *s, const char *filter) {
    s->end = write_string(s->end, filter);
    *s->end++ = (u8)s->qos;
    if (++s->waiting == FILTERS_PER_SUBSCRIBE) flush_filters(s);
}

static void finish_subscribing(struct subscriber *s) {
    flush_filters(s);
    free(s->body);
}

#endif
