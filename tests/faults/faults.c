// A layer for LD_PRELOAD: the n-th call that writes to a file below a folder, renames one or puts
// it on the disk fails. Set by FAULT_AT, FAULT_KIND and FAULT_FOLDER, or by fault_arm.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int at = 0;
static int seen = 0;
static char kind[16] = "";
static char folder[4096] = "";

// Of the calls from now on the `number`-th, from 1, fails; 0: none. what: "ENOSPC" or "EIO" of the
// call; "short": half of the bytes are written, and the next call has no space; "SIGINT": the
// signal is sent, and the call is done.
void fault_arm(int number, const char* what, const char* below) {
  seen = 0;
  snprintf(kind, sizeof kind, "%s", what);
  snprintf(folder, sizeof folder, "%s", below);
  at = number;
}

// How many calls counted since then.
int fault_count(void) { return seen; }

__attribute__((constructor)) static void start(void) {
  const char* number = getenv("FAULT_AT");
  if (number != NULL) fault_arm(atoi(number), getenv("FAULT_KIND"), getenv("FAULT_FOLDER"));
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_ours(const char* path) {
  return folder[0] != 0 && strncmp(path, folder, strlen(folder)) == 0;
}

static int is_ours_open(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return is_ours(path);
}

enum fault { NONE, FAIL, SHORT };

// What is to happen to this call, which counts; errno is set where it is to fail.
static enum fault next_fault(void) {
  ++seen;
  const int is_short = strcmp(kind, "short") == 0;
  if (at > 0 && is_short && seen == at + 1) {
    errno = ENOSPC;
    return FAIL;
  }
  if (seen != at) return NONE;
  if (strcmp(kind, "SIGINT") == 0) {
    kill(getpid(), SIGINT);
    return NONE;
  }
  if (is_short) return SHORT;
  errno = strcmp(kind, "EIO") == 0 ? EIO : ENOSPC;
  return FAIL;
}

ssize_t write(int file, const void* data, size_t size) {
  const enum fault fault = is_ours_open(file) ? next_fault() : NONE;
  if (fault == FAIL) return -1;
  return REAL(write)(file, data, fault == SHORT ? size / 2 : size);
}

int fsync(int file) {
  if (is_ours_open(file) && next_fault() == FAIL) return -1;
  return REAL(fsync)(file);
}

int rename(const char* from, const char* to) {
  if (is_ours(to) && next_fault() == FAIL) return -1;
  return REAL(rename)(from, to);
}

int mkdir(const char* path, mode_t mode) {
  if (is_ours(path) && next_fault() == FAIL) return -1;
  return REAL(mkdir)(path, mode);
}
