/* A native guest with several threads: one sits in POLL without an end, and the others make calls meanwhile. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <time.h>

#include "guest.h"

enum { THREADS = 4, ROUNDS = 200 };

static zi_handle_t loop;
static pthread_mutex_t done_lock = PTHREAD_MUTEX_INITIALIZER;
static int done_threads = 0;

static int threads_done(void) {
    int done;
    pthread_mutex_lock(&done_lock);
    done = done_threads;
    pthread_mutex_unlock(&done_lock);
    return done;
}

/* Each round opens, uses and ends a handle of its own while the main thread polls. */
static void *calls(void *unused) {
    struct timespec pause = {0, 50 * 1000 * 1000};
    int i;
    (void)unused;
    /* By now the main thread sits in POLL. */
    nanosleep(&pause, NULL);
    for (i = 0; i < ROUNDS; i++) {
        uint8_t reply[64];
        uint8_t frame[24];
        zi_ptr_t block = zi_alloc(64);
        zi_handle_t info = open_cap("sys", "info", NULL, 0);
        CHECK(block != 0);
        CHECK(info >= 3);
        CHECK_IS(zi_write(info, ZI_PTR(frame), put_frame(frame, 3, 9, NULL, 0)), 24);
        CHECK_IS(zi_read(info, ZI_PTR(reply), sizeof reply), 24 + 20);
        CHECK_IS(zi_end(info), 0);
        CHECK_IS(zi_free(block), 0);
    }
    pthread_mutex_lock(&done_lock);
    done_threads++;
    pthread_mutex_unlock(&done_lock);
    /* Any call ends the wait of the main thread, which then sees that this thread is done. */
    CHECK_IS(zi_handle_hflags(loop), 7);
    return NULL;
}

/* Blocks in standard input, which the test never closes. */
static void *input(void *unused) {
    char byte;
    (void)unused;
    zi_read(0, ZI_PTR(&byte), 1);
    return NULL;
}

int main(void) {
    static uint8_t reply[256];
    pthread_t threads[THREADS], reader;
    int i, polls = 0;
    loop = open_cap("sys", "loop", NULL, 0);
    CHECK(loop >= 3);
    CHECK_IS(pthread_create(&reader, NULL, input, NULL), 0);
    for (i = 0; i < THREADS; i++) CHECK_IS(pthread_create(&threads[i], NULL, calls, NULL), 0);
    while (threads_done() < THREADS) {
        /* Nothing is watched and no timer is armed: only calls of the other threads end this wait. */
        CHECK_IS(poll_loop(loop, 1, FOR_EVER, reply, sizeof reply), 0);
        polls++;
    }
    for (i = 0; i < THREADS; i++) CHECK_IS(pthread_join(threads[i], NULL), 0);
    CHECK(polls >= 1);
    print("all threads have made their calls\n");
    return 0;
}
