/* What paced.c notes every half second: counters, processor time, and what TCP tells of its sockets. */
#ifndef PACED_SAMPLES_H
#define PACED_SAMPLES_H

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "paced_clients.h"

#define SAMPLE_NS 500000000ull
#define MAX_WATCHED 32

/* Fields of Linux's struct tcp_info by their places, as headers of C libraries lack the newer ones. */
#define TCP_INFO_RETRANSMITTED 100
#define TCP_INFO_SEGMENTS_OUT 136
#define TCP_INFO_SEGMENTS_IN 140
#define TCP_INFO_OUT_OF_ORDER 224
#define TCP_INFO_RECEIVE_WINDOW 232

struct process {
    const char *name;
    struct watched pids;
};

static struct process processes[MAX_WATCHED];
static int process_count;
static atomic_int sender_thread, receiver_thread;

/* NAME=PID,PID... */
static void watch_process(char *words) {
    char *pids = strchr(words, '=');
    if (!pids) fail("--watch is NAME=PID,PID...");
    if (process_count == MAX_WATCHED) fail("at most %d processes", MAX_WATCHED);
    *pids++ = 0;
    processes[process_count].name = words;
    watch_pids(&processes[process_count++].pids, pids);
}

struct tcp {
    long retransmitted, out_of_order, segments;
    double window; /* the least of subscribers, as a part of the largest that the same one had */
    long unsent, unread;
};

static u32 tcp_field(const u8 *info, socklen_t length, size_t at) {
    u32 value = 0;
    if (at + sizeof value <= length) memcpy(&value, info + at, sizeof value);
    return value;
}

static void add_socket(struct tcp *sum, int fd, u32 *window) {
    u8 info[512];
    socklen_t length = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length)) fail("no TCP_INFO: %s", strerror(errno));
    sum->retransmitted += tcp_field(info, length, TCP_INFO_RETRANSMITTED);
    sum->out_of_order += tcp_field(info, length, TCP_INFO_OUT_OF_ORDER);
    sum->segments += tcp_field(info, length, TCP_INFO_SEGMENTS_OUT) + tcp_field(info, length, TCP_INFO_SEGMENTS_IN);
    if (window) *window = tcp_field(info, length, TCP_INFO_RECEIVE_WINDOW);
}

static struct tcp look_at_sockets(void) {
    struct tcp sum = {.window = 1};
    for (int i = 0; i < publisher_count; i++) {
        int count = 0;
        ioctl(publishers[i].fd, SIOCOUTQ, &count);
        sum.unsent += count;
        add_socket(&sum, publishers[i].fd, NULL);
    }
    for (int i = 0; i < subscriber_count; i++) {
        struct subscriber_client *s = subscribers + i;
        int count = 0;
        ioctl(s->fd, SIOCINQ, &count);
        sum.unread += count;
        add_socket(&sum, s->fd, &s->window);
        if (s->window > s->widest) s->widest = s->window;
        double part = s->widest ? (double)s->window / (double)s->widest : 1;
        if (part < sum.window) sum.window = part;
    }
    return sum;
}

/* Seconds on a processor, and waiting for one. */
static void thread_times(int thread, double *ran, double *waited) {
    char path[64];
    unsigned long long run = 0, wait = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", thread);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%llu %llu", &run, &wait) != 2) fail("cannot read %s", path);
    fclose(file);
    *ran = (double)run * 1e-9;
    *waited = (double)wait * 1e-9;
}

/* Everything since the start, as a line of JSON. */
static void print_sample(void) {
    double sent_ran, sent_waited, received_ran, received_waited;
    u64 t = now_ns();
    long counts[] = {atomic_load(&attempted), atomic_load(&completed), atomic_load(&received), atomic_load(&overdue), atomic_load(&held)};
    struct tcp tcp = look_at_sockets();
    thread_times(atomic_load(&sender_thread), &sent_ran, &sent_waited);
    thread_times(atomic_load(&receiver_thread), &received_ran, &received_waited);
    printf("{\"at\": %llu, \"attempted\": %ld, \"completed\": %ld, \"received\": %ld, \"overdue\": %ld, \"held\": %ld, ",
           (unsigned long long)t, counts[0], counts[1], counts[2], counts[3], counts[4]);
    printf("\"sender\": %.6f, \"sender_waited\": %.6f, \"receiver\": %.6f, \"receiver_waited\": %.6f, ", sent_ran, sent_waited,
           received_ran, received_waited);
    printf("\"retransmitted\": %ld, \"out_of_order\": %ld, \"segments\": %ld, \"window\": %.4f, \"unsent\": %ld, \"unread\": %ld, \"cpu\": {",
           tcp.retransmitted, tcp.out_of_order, tcp.segments, tcp.window, tcp.unsent, tcp.unread);
    for (int i = 0; i < process_count; i++)
        printf("%s\"%s\": %.6f", i ? ", " : "", processes[i].name, broker_cpu(&processes[i].pids));
    printf("}}\n");
    fflush(stdout);
}

#endif
