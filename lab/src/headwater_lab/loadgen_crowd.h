/* Clients that do not publish: a crowd that holds connections and subscriptions, and a storm of short connections. */
#ifndef LOADGEN_CROWD_H
#define LOADGEN_CROWD_H

#include <sys/epoll.h>

#include "loadgen_stats.h"

struct crowd {
    int port, version;
    long clients, subscriptions; /* subscriptions: of all clients together */
};

/* None of these filters matches a topic of the traffic, but every fourth shares its first levels, so that a
 * broker cannot dismiss them at the root; half have wildcards. */
static void crowd_filter(char *filter, long number) {
    switch (number % 4) {
    case 0: snprintf(filter, MAX_TOPIC, "site/%ld/device/%ld/state", number / 1000, number); break;
    case 1: snprintf(filter, MAX_TOPIC, "site/%ld/device/%ld/command", number / 1000, number); break;
    case 2: snprintf(filter, MAX_TOPIC, "site/+/device/%ld/alarm", number); break;
    default: snprintf(filter, MAX_TOPIC, "bench/topic/+/crowd/%ld/#", number);
    }
}

/* Connects the clients and deals the filters out to them; the connections stay open. */
static void gather_crowd(const struct crowd *crowd, long *granted, long *refused) {
    long number = 0;
    *granted = *refused = 0;
    for (long i = 0; i < crowd->clients; i++) {
        char text[MAX_TOPIC];
        struct subscriber s;
        snprintf(text, sizeof text, "crowd%ld", i);
        begin_subscribing(&s, connect_client(crowd->port, crowd->version, text), crowd->version, 0);
        for (long last = crowd->subscriptions * (i + 1) / crowd->clients; number < last; number++) {
            crowd_filter(text, number);
            add_filter(&s, text);
        }
        finish_subscribing(&s);
        *granted += s.granted;
        *refused += s.refused;
    }
}

/* Prints one line when everybody is there, then keeps the crowd until standard input ends. */
static int hold(const struct crowd *crowd) {
    long granted, refused;
    char byte;
    u64 start = now_ns();
    gather_crowd(crowd, &granted, &refused);
    printf("{\"clients\": %ld, \"granted\": %ld, \"refused\": %ld, \"seconds\": %.3f}\n", crowd->clients, granted,
           refused, (double)(now_ns() - start) * 1e-9);
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {}
    return 0;
}

/* --- storm: connect, CONNECT, CONNACK, DISCONNECT, wait for the broker to close, again -------------------- */

struct storm {
    int port, version, parallel;
    double seconds, warmup;
    struct watched watched;
};

struct visitor {
    int fd;
    long visits;
    int answered;
};

static void start_visit(const struct storm *storm, int epoll, struct visitor *v) {
    u8 packet[256];
    char client_id[64];
    snprintf(client_id, sizeof client_id, "storm%p-%ld", (void *)v, v->visits++);
    v->fd = open_connection(storm->port);
    v->answered = 0;
    send_all(v->fd, packet, encode_connect(packet, storm->version, client_id));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = v};
    epoll_ctl(epoll, EPOLL_CTL_ADD, v->fd, &event);
}

/* Returns 1 when the visit is over. The broker closes first, so the waiting sockets (TIME_WAIT) are on its side
 * and the generator does not run out of ports. */
static int continue_visit(struct visitor *v) {
    static const u8 disconnect[] = {DISCONNECT, 0};
    u8 answer[512];
    ssize_t got = recv(v->fd, answer, sizeof answer, 0);
    if (got > 0 && !v->answered) {
        if (got < 4 || answer[0] != CONNACK || answer[3] != 0) fail("the storm's CONNECT was refused");
        v->answered = 1;
        send_all(v->fd, disconnect, sizeof disconnect);
        return 0;
    }
    if (!v->answered) fail("the broker closed a connection of the storm before CONNACK");
    if (got > 0) return 0;
    close(v->fd);
    return 1;
}

static int run_storm(const struct storm *storm) {
    if (is_secured()) fail("the storm has no TLS");
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct visitor *visitors = allocate((size_t)storm->parallel, sizeof *visitors);
    struct epoll_event events[256];
    u64 begin = now_ns() + (u64)(storm->warmup * 1e9), end = begin + (u64)(storm->seconds * 1e9), measured_from = 0, t;
    double cpu_before = 0;
    long visits = 0;
    for (int i = 0; i < storm->parallel; i++) start_visit(storm, epoll, visitors + i);
    while ((t = now_ns()) < end) {
        if (!measured_from && t >= begin) {
            measured_from = t;
            cpu_before = broker_cpu(&storm->watched);
            visits = 0;
        }
        int count = epoll_wait(epoll, events, 256, 10);
        for (int i = 0; i < count; i++) {
            struct visitor *v = events[i].data.ptr;
            if (!continue_visit(v)) continue;
            visits++;
            start_visit(storm, epoll, v);
        }
    }
    double cpu = broker_cpu(&storm->watched) - cpu_before, seconds = (double)(t - measured_from) * 1e-9;
    if (!visits) fail("no connection of the storm was completed");
    printf("{\"rate\": %.0f, \"us\": %.3f, \"connections\": %ld}\n", (double)visits / seconds,
           cpu * 1e6 / (double)visits, visits);
    return 0;
}

#endif
