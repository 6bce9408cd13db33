/* Runs a program whose calls for files below one directory fail when it is told so.
 *
 *     failing-disk DIRECTORY LOG PROGRAM [WORD ...]
 *
 * The program is not changed and knows nothing of it: a filter of the kernel (seccomp) stops each of its calls
 * that open, read, write, sync, name or remove files until this program has let it go on, or answered it with an
 * error. That holds for calls that do not go through the C library, too. Other calls are not stopped.
 *
 * Lines on standard input say what fails from now on:
 *
 *     fail CALLS FILES ERROR MILLISECONDS
 *
 * CALLS are letters: r(ead) w(rite) s(ync) c(reate what is not there, and allocate blocks) d(elete) D(irectory's sync)
 * n(ame: rename) o(pen what is there). FILES is a part of the path, or `*`. ERROR is a number. The time is -1 for ever and 0 for one call.
 * A write that fails with EIO is half on the disk every second time. Each call that failed is a line in LOG, the first
 * 10,000 of them. SIGTERM is passed on, SIGUSR1 kills the program, and the exit code is the program's: this one ends when
 * that one is gone. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, LINES_MAX = 10000, TORN_BYTES_MAX = 1 << 20 };

static const int CALLS[] = {
    __NR_pread64,   __NR_pwrite64, __NR_fdatasync, __NR_fsync,    __NR_ftruncate, __NR_fallocate,
    __NR_openat,    __NR_unlinkat, __NR_renameat,  __NR_renameat2,
#ifdef __NR_unlink /* Older machines have two of each. */
    __NR_open,      __NR_unlink,   __NR_rename,
#endif
};
enum { CALLS_COUNT = sizeof CALLS / sizeof CALLS[0] };

static struct {
    char calls[16], files[PATH_BYTES];
    int error;
    long until; /* Milliseconds; -1 for ever, 0 for one call. */
    int active;
} plan;
static const char *directory;
static FILE *failures;
static pid_t program;
static unsigned lines, writes;

static void die(const char *what) {
    perror(what);
    exit(125);
}

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void pass_on(int signal) {
    kill(program, signal == SIGUSR1 ? SIGKILL : signal);
}

/* Becomes the program, behind the filter. The number of the filter's descriptor goes to `tell`; what comes from `taken`
 * says that there is another one, since this one ends with becoming the program. */
static void become(int tell, int taken, char **words) {
    struct sock_filter code[CALLS_COUNT + 3];
    int at = 0;
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int call = 0; call < CALLS_COUNT; call++)
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALLS[call], CALLS_COUNT - call, 0);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    struct sock_fprog filter = {.len = at, .filter = code};

    /* It ends with this one, its standard input is empty, and its descriptors are its own. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int empty = open("/dev/null", O_RDONLY);
    dup2(empty, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs");
    int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
    if (listener < 0) die("seccomp");
    if (write(tell, &listener, sizeof listener) != sizeof listener) die("pipe");
    if (read(taken, &listener, 1) != 1) die("pipe");
    execvp(words[0], words);
    die(words[0]);
}

/* The path of an open file. */
static void path_of(pid_t thread, int file, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/fd/%d", thread, file);
    ssize_t length = readlink(link, path, PATH_BYTES - 1);
    path[length < 0 ? 0 : length] = 0;
}

/* A path in the program's memory. It may end right before a page that is not there. */
static void path_at(pid_t thread, unsigned long address, char *path) {
    size_t count = 4096 - address % 4096;
    struct iovec here = {path, PATH_BYTES - 1}, there = {(void *)address, count < PATH_BYTES - 1 ? count : PATH_BYTES - 1};
    ssize_t length = process_vm_readv(thread, &here, 1, &there, 1, 0);
    if (length > 0 && !memchr(path, 0, length)) {
        struct iovec rest = {path + length, PATH_BYTES - 1 - length}, behind = {(void *)(address + length), PATH_BYTES - 1 - length};
        ssize_t more = process_vm_readv(thread, &rest, 1, &behind, 1, 0);
        length += more > 0 ? more : 0;
    }
    path[length < 0 ? 0 : length] = 0;
}

/* The letter of a call, and the path of its file. */
static char letter(const struct seccomp_notif *asked, char *path) {
    const struct seccomp_data *data = &asked->data;
    unsigned long flags = data->args[2];
    int named = 1;
    struct stat found;
    switch (data->nr) {
    case __NR_pread64: path_of(asked->pid, data->args[0], path); return 'r';
    case __NR_pwrite64: path_of(asked->pid, data->args[0], path); return 'w';
    case __NR_ftruncate:
    case __NR_fallocate: path_of(asked->pid, data->args[0], path); return 'c';
    case __NR_fdatasync:
    case __NR_fsync:
        path_of(asked->pid, data->args[0], path);
        return !stat(path, &found) && S_ISDIR(found.st_mode) ? 'D' : 's';
    case __NR_renameat:
    case __NR_renameat2: path_at(asked->pid, data->args[1], path); return 'n';
    case __NR_unlinkat: path_at(asked->pid, data->args[1], path); return 'd';
#ifdef __NR_unlink
    case __NR_rename: path_at(asked->pid, data->args[0], path); return 'n';
    case __NR_unlink: path_at(asked->pid, data->args[0], path); return 'd';
    case __NR_open: named = 0, flags = data->args[1]; break;
#endif
    }
    path_at(asked->pid, data->args[named], path);
    return flags & O_CREAT && stat(path, &found) ? 'c' : 'o';
}

/* Carries half of a write out. */
static void tear(const struct seccomp_notif *asked) {
    static char bytes[TORN_BYTES_MAX];
    size_t count = asked->data.args[2] / 2;
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/fd/%d", asked->pid, (int)asked->data.args[0]);
    struct iovec here = {bytes, sizeof bytes}, there = {(void *)(unsigned long)asked->data.args[1], count};
    ssize_t length = process_vm_readv(asked->pid, &here, 1, &there, 1, 0);
    int file = open(link, O_WRONLY);
    if (length > 0 && file >= 0 && pwrite(file, bytes, length, asked->data.args[3]) < 0) perror("half a write");
    if (file >= 0) close(file);
}

/* The error to answer a call with, or 0. */
static int verdict(const struct seccomp_notif *asked) {
    char path[PATH_BYTES];
    if (!plan.active) return 0;
    if (plan.until > 0 && now() >= plan.until) return plan.active = 0;
    char call = letter(asked, path);
    if (strncmp(path, directory, strlen(directory)) || !strchr(plan.calls, call)) return 0;
    if (strcmp(plan.files, "*") && !strstr(path, plan.files)) return 0;
    if (plan.until == 0) plan.active = 0;
    int torn = call == 'w' && plan.error == EIO && ++writes % 2;
    if (torn) tear(asked);
    if (lines++ < LINES_MAX) {
        fprintf(failures, "%c %d %s%s\n", call, plan.error, path, torn ? " (half of it done)" : "");
        fflush(failures);
    }
    return plan.error;
}

static void serve(int listener) {
    union {
        struct seccomp_notif asked;
        char room[512];
    } in;
    union {
        struct seccomp_notif_resp answer;
        char room[512];
    } out;
    memset(&in, 0, sizeof in);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &in)) return; /* Its thread was killed meanwhile. */
    memset(&out, 0, sizeof out);
    out.answer.id = in.asked.id;
    int error = verdict(&in.asked);
    if (error)
        out.answer.error = -error;
    else
        out.answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &out);
}

/* Reads lines of the plan; whether more may come. */
static int listen_to(int input) {
    static char text[4096];
    static size_t length;
    ssize_t count = read(input, text + length, sizeof text - 1 - length);
    if (count <= 0) return 0;
    length += count;
    text[length] = 0;
    char *line = text, *end;
    for (; (end = strchr(line, '\n')); line = end + 1) {
        long time;
        *end = 0;
        if (sscanf(line, "fail %15s %1023s %d %ld", plan.calls, plan.files, &plan.error, &time) != 4) {
            fprintf(stderr, "failing-disk: what is `%s`?\n", line);
            exit(125);
        }
        plan.until = time > 0 ? now() + time : time;
        plan.active = 1;
    }
    length -= line - text;
    memmove(text, line, length);
    return 1;
}

int main(int count, char **words) {
    int tell[2], taken[2], status, number, input = 1;
    if (count < 4) {
        fprintf(stderr, "usage: failing-disk DIRECTORY LOG PROGRAM [WORD ...]\n");
        return 2;
    }
    directory = words[1];
    failures = fopen(words[2], "ae");
    if (!failures) die(words[2]);
    if (pipe2(tell, O_CLOEXEC) || pipe2(taken, O_CLOEXEC)) die("pipe");
    program = fork();
    if (program < 0) die("fork");
    if (program == 0) become(tell[1], taken[0], words + 3);
    close(tell[1]);
    if (read(tell[0], &number, sizeof number) != sizeof number) return 125;
    int handle = syscall(SYS_pidfd_open, program, 0);
    int listener = syscall(SYS_pidfd_getfd, handle, number, 0);
    if (listener < 0) die("pidfd_getfd");
    if (write(taken[1], "", 1) != 1) die("pipe");
    signal(SIGTERM, pass_on);
    signal(SIGUSR1, pass_on);
    for (;;) {
        struct pollfd files[2] = {{listener, POLLIN, 0}, {input ? 0 : -1, POLLIN, 0}};
        if (poll(files, 2, -1) < 0) continue;
        if (files[1].revents) input = listen_to(0);
        if (files[0].revents & POLLIN) serve(listener);
        else if (files[0].revents) break; /* Nobody is behind the filter any more. */
    }
    while (waitpid(program, &status, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
