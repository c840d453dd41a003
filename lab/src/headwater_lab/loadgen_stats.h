/* What the load generator measures: CPU time, latency, and the order and completeness of every delivery. */
#ifndef LOADGEN_STATS_H
#define LOADGEN_STATS_H

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "loadgen_mqtt.h"

static u64 now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * 1000000000u + (u64)t.tv_nsec;
}

/* --- CPU time ------------------------------------------------------------------------------------------- */

#define MAX_PIDS 64

struct watched {
    int pids[MAX_PIDS], count;
};

static void watch_pids(struct watched *w, char *list) {
    for (char *item = strtok(list, ","); item; item = strtok(NULL, ",")) {
        if (w->count == MAX_PIDS) fail("at most %d processes", MAX_PIDS);
        w->pids[w->count++] = atoi(item);
    }
}

/* CPU seconds of all threads of the broker's processes. schedstat counts nanoseconds; /proc/PID/stat only ticks. */
static double broker_cpu(const struct watched *w) {
    double seconds = 0;
    for (int i = 0; i < w->count; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, "/proc/%d/task", w->pids[i]);
        DIR *tasks = opendir(folder);
        if (!tasks) fail("broker process %d is gone", w->pids[i]);
        for (struct dirent *task; (task = readdir(tasks));) {
            char path[400], text[128];
            if (task->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s/schedstat", folder, task->d_name);
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            if (fd < 0) continue; /* the thread has just ended */
            ssize_t count = read(fd, text, sizeof text - 1);
            close(fd);
            if (count <= 0) continue;
            text[count] = 0;
            seconds += (double)atoll(text) * 1e-9;
        }
        closedir(tasks);
    }
    return seconds;
}

static double own_cpu(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + 1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

/* --- latency -------------------------------------------------------------------------------------------- */

#define LATENCY_BUCKETS 200000 /* of one microsecond; the last holds everything longer */

struct latency {
    u32 buckets[LATENCY_BUCKETS];
    u64 total_us, count;
};

static inline void add_latency(struct latency *l, u64 ns) {
    u64 us = ns / 1000;
    l->buckets[us < LATENCY_BUCKETS ? us : LATENCY_BUCKETS - 1]++;
    l->total_us += us;
    l->count++;
}

static double mean_latency(const struct latency *l) { return l->count ? (double)l->total_us / (double)l->count : 0; }

/* The smallest latency in microseconds that `fraction` of the messages did not exceed. */
static int percentile(const struct latency *l, double fraction) {
    u64 total = 0, seen = 0;
    for (int i = 0; i < LATENCY_BUCKETS; i++) total += l->buckets[i];
    for (int i = 0; i < LATENCY_BUCKETS && total; i++) {
        seen += l->buckets[i];
        if ((double)seen >= (double)total * fraction) return i;
    }
    return 0;
}

/* --- order and loss ------------------------------------------------------------------------------------- */

/* Every payload starts with who sent it, the how-manieth of that publisher it is, and when. All topics of a
 * publisher share one sequence, so a subscriber that gets all of them sees every reordering across topics. */
struct stamp {
    u32 publisher, sequence;
    u64 sent_ns;
};

#define MISROUTED UINT32_MAX /* stands for the sequence of a publisher this subscriber must not hear */

struct violations {
    long gaps;      /* messages that were skipped when a later one of the same publisher came */
    long disorder;  /* messages that came after a later one, or twice */
    long misrouted; /* messages this subscriber did not ask for */
    long corrupt;   /* wrong payload length, QoS or properties */
    long repeated;  /* messages that two members of a shared group got, or one got twice */
};

static void note_violation(struct violations *v, u32 *expected, u32 sequence) {
    if (*expected == MISROUTED) {
        v->misrouted++;
    } else if (sequence > *expected) {
        v->gaps += sequence - *expected;
        *expected = sequence + 1;
    } else {
        v->disorder++;
    }
}

/* `expected` has one entry per publisher: the sequence number that this subscriber must see next. */
static inline void check_order(struct violations *v, u32 *expected, u32 publishers, const struct stamp *stamp) {
    if (__builtin_expect(stamp->publisher >= publishers, 0)) {
        v->corrupt++;
        return;
    }
    u32 *next = expected + stamp->publisher;
    if (__builtin_expect(stamp->sequence == *next && *next != MISROUTED, 1)) ++*next;
    else note_violation(v, next, stamp->sequence);
}

/* Members of a shared group: a member skips what the others get, but never goes back; and of each publisher's
 * messages `seen` has one bit, which shows whether anybody has had it before. */
struct seen {
    u64 *words;
    size_t count;
};

static int is_repeated(struct seen *seen, u32 sequence) {
    size_t word = sequence / 64;
    u64 bit = (u64)1 << sequence % 64;
    if (__builtin_expect(word >= seen->count, 0)) {
        size_t grown = 2 * word + 1024;
        seen->words = realloc(seen->words, grown * sizeof *seen->words);
        if (!seen->words) fail("out of memory");
        memset(seen->words + seen->count, 0, (grown - seen->count) * sizeof *seen->words);
        seen->count = grown;
    }
    int repeated = (seen->words[word] & bit) != 0;
    seen->words[word] |= bit;
    return repeated;
}

/* Returns 1 if the message comes for the first time. */
static inline int check_shared(struct violations *v, u32 *expected, struct seen *seen, const struct stamp *stamp) {
    u32 *next = expected + stamp->publisher;
    if (__builtin_expect(*next == MISROUTED, 0)) v->misrouted++;
    else if (__builtin_expect(stamp->sequence < *next, 0)) v->disorder++;
    else *next = stamp->sequence + 1;
    int repeated = is_repeated(seen, stamp->sequence);
    v->repeated += repeated;
    return !repeated;
}

#endif
