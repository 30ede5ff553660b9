// Calls on descriptors, sockets and what waits for them.
#include <fcntl.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "tests/faults/fault_injection.h"

using feedwater::faults::Fails;
using feedwater::faults::Next;

extern "C" {

int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* argument = va_arg(list, void*);
  va_end(list);
  NEXT(fcntl);
  return Fails({"fcntl", CALLER, fd, nullptr, command}) ? -1 : next(fd, command, argument);
}

int socket(int domain, int type, int protocol) noexcept {
  NEXT(socket);
  return Fails({"socket", CALLER}) ? -1 : next(domain, type, protocol);
}

int bind(int fd, const struct sockaddr* address, socklen_t size) noexcept {
  NEXT(bind);
  return Fails({"bind", CALLER, fd}) ? -1 : next(fd, address, size);
}

int listen(int fd, int backlog) noexcept {
  NEXT(listen);
  return Fails({"listen", CALLER, fd}) ? -1 : next(fd, backlog);
}

int accept4(int fd, struct sockaddr* address, socklen_t* size, int flags) {
  NEXT(accept4);
  return Fails({"accept", CALLER, fd}) ? -1 : next(fd, address, size, flags);
}

int getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept {
  NEXT(getsockopt);
  return Fails({"getsockopt", CALLER, fd, nullptr, option}) ? -1
                                                            : next(fd, level, option, value, size);
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  NEXT(sendmsg);
  return Fails({"sendmsg", CALLER, fd}) ? -1 : next(fd, message, flags);
}

ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  NEXT(recvmsg);
  return Fails({"recvmsg", CALLER, fd}) ? -1 : next(fd, message, flags);
}

int epoll_create1(int flags) noexcept {
  NEXT(epoll_create1);
  return Fails({"epoll_create1", CALLER}) ? -1 : next(flags);
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event* event) noexcept {
  NEXT(epoll_ctl);
  return Fails({"epoll_ctl", CALLER, fd, nullptr, operation}) ? -1
                                                              : next(epoll, operation, fd, event);
}

int epoll_wait(int epoll, struct epoll_event* events, int most, int timeout) {
  NEXT(epoll_wait);
  return Fails({"epoll_wait", CALLER, epoll}) ? -1 : next(epoll, events, most, timeout);
}

int eventfd(unsigned initial, int flags) noexcept {
  NEXT(eventfd);
  return Fails({"eventfd", CALLER}) ? -1 : next(initial, flags);
}

int eventfd_write(int fd, eventfd_t value) {
  NEXT(eventfd_write);
  return Fails({"eventfd_write", CALLER, fd}) ? -1 : next(fd, value);
}

}  // extern "C"
