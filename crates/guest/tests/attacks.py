"""Attacks on the guest and the kernel, made by a command from inside of a sandbox.

usage: attacks.py GUEST_PID [NAME...]: makes all attacks, or those that are named; prints a line for each, `ok NAME` or
`WRONG NAME: ...`. An attack must fail with the error that stands beside it.
"""
import ctypes, errno, fcntl, mmap, os, platform, signal, socket, struct, sys, time

GUEST = int(sys.argv[1])
ARM = platform.machine() == "aarch64"
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
page = ctypes.create_string_buffer(8192)
PAGE = ctypes.addressof(page)


def call(numbers, *arguments):
    """Makes a system call; `numbers` are those of x86-64 and aarch64, or one for both. 0, or the error's name."""
    number = numbers[ARM] if isinstance(numbers, tuple) else numbers
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(argument) for argument in arguments))
    return errno.errorcode[ctypes.get_errno()] if result == -1 else 0


def text(value):
    buffer = ctypes.create_string_buffer(value)
    kept.append(buffer)
    return ctypes.addressof(buffer)


kept = []
attacks = []


def attack(name, expected, function):
    attacks.append((name, expected if isinstance(expected, tuple) else (expected,), function))


def syscall(name, expected, numbers, *arguments):
    attack(name, expected, lambda: call(numbers, *arguments))


def system(function):
    """The error of a call that Python makes."""
    def run():
        try:
            function()
        except OSError as error:
            return errno.errorcode[error.errno]
        return 0
    return run


# Mounts and roots.
syscall("mount", "EPERM", (165, 40), text(b"none"), text(b"/tmp"), text(b"tmpfs"), 0, 0)
syscall("umount2", "EPERM", (166, 39), text(b"/proc"), 2)
syscall("pivot_root", "EPERM", (155, 41), text(b"/tmp"), text(b"/tmp"))
syscall("chroot", "EPERM", (161, 51), text(b"/tmp"))
syscall("open_tree", "EPERM", 428, -100, text(b"/"), 1)
syscall("move_mount", "EPERM", 429, -1, text(b""), -1, text(b""), 0)
syscall("fsopen", "EPERM", 430, text(b"proc"), 0)
syscall("fsconfig", "EPERM", 431, -1, 0, 0, 0, 0)
syscall("fsmount", "EPERM", 432, -1, 0, 0)
syscall("fspick", "EPERM", 433, -100, text(b"/"), 0)
syscall("mount_setattr", "EPERM", 442, -100, text(b"/"), 0, PAGE, 32)
syscall("open_tree_attr", "EPERM", 467, -100, text(b"/"), 1, 0, 0)
syscall("statmount", "ENOSYS", 457, PAGE, PAGE, 512, 0)
syscall("listmount", "ENOSYS", 458, PAGE, PAGE, 64, 0)
syscall("open_by_handle_at", "EPERM", (304, 265), -100, PAGE, 0)
syscall("swapon", "EPERM", (167, 224), text(b"/tmp/x"), 0)
syscall("quotactl", "EPERM", (179, 60), 0x800002 << 8, 0, 0, PAGE)
syscall("quotactl_fd", "EPERM", 443, 0, 0, 0, PAGE)
syscall("fanotify_init", "EPERM", (300, 262), 0x200, 0)

# Files that would run as their owner or group: neither made so, nor become so.
making = os.O_CREAT | os.O_RDWR
for name, bit in [("user", 0o4000), ("group", 0o2000)]:
    syscall("openat set-" + name, "EPERM", (257, 56), -100, text(b"made"), making, bit | 0o700)
    syscall("openat without a name set-" + name, "EPERM", (257, 56), -100, text(b"."), os.O_TMPFILE | os.O_RDWR, bit | 0o700)
    syscall("openat2 set-" + name, "ENOSYS", 437, -100, text(b"made"), text(struct.pack("QQQ", making, bit | 0o700, 0)), 24)
    syscall("mknodat set-" + name, "EPERM", (259, 33), -100, text(b"made"), 0o100000 | bit | 0o700, 0)
    syscall("fchmodat set-" + name, "EPERM", (268, 53), -100, text(b"."), bit | 0o700)
    if not ARM:
        syscall("open set-" + name, "EPERM", 2, text(b"made"), making, bit | 0o700)
        syscall("creat set-" + name, "EPERM", 85, text(b"made"), bit | 0o700)
        syscall("mknod set-" + name, "EPERM", 133, text(b"made"), 0o100000 | bit | 0o700, 0)
        syscall("chmod set-" + name, "EPERM", 90, text(b"."), bit | 0o700)

# Namespaces.
for name, flag in [
    ("time", 0x80), ("mnt", 0x20000), ("cgroup", 0x2000000), ("uts", 0x4000000), ("ipc", 0x8000000),
    ("user", 0x10000000), ("pid", 0x20000000), ("net", 0x40000000),
]:
    syscall("unshare " + name, "EPERM", (272, 97), flag)
    if flag > 0x80:
        def clone(flag=flag):
            result = call((56, 220), flag | signal.SIGCHLD, 0, 0, 0, 0)
            return result
        attack("clone " + name, "EPERM", clone)
syscall("setns", "EPERM", (308, 268), 0, 0)
syscall("clone3", "ENOSYS", 435, PAGE, 88)

# Other processes, the guest first.
syscall("ptrace traceme", "EPERM", (101, 117), 0, 0, 0, 0)
syscall("ptrace attach", "EPERM", (101, 117), 16, GUEST, 0, 0)
syscall("ptrace seize", "EPERM", (101, 117), 0x4206, GUEST, 0, 0)
syscall("process_vm_readv", "EPERM", (310, 270), GUEST, PAGE, 1, PAGE, 1, 0)
syscall("process_vm_writev", "EPERM", (311, 271), GUEST, PAGE, 1, PAGE, 1, 0)
syscall("process_madvise", "EPERM", 440, 0, PAGE, 1, 20, 0)
syscall("process_mrelease", "EPERM", 448, 0, 0)
syscall("kcmp", "EPERM", (312, 272), GUEST, os.getpid(), 0, 0, 0)


def take_descriptor():
    pidfd = os.pidfd_open(GUEST)
    try:
        return call(438, pidfd, 0, 0)
    finally:
        os.close(pidfd)


attack("pidfd_getfd", "EPERM", take_descriptor)
for name in ["mem", "environ", "auxv", "syscall", "stack", "maps", "pagemap", "io", "personality"]:
    attack("read /proc/guest/" + name, ("EACCES", "EPERM"),
           system(lambda name=name: open(f"/proc/{GUEST}/{name}", "rb").read(1)))
attack("write /proc/guest/mem", "EACCES", system(lambda: open(f"/proc/{GUEST}/mem", "r+b")))
attack("write /proc/guest/oom_score_adj", ("EACCES", "EROFS"), system(lambda: open(f"/proc/{GUEST}/oom_score_adj", "w")))
attack("write own oom_score_adj", ("EACCES", "EROFS"), system(lambda: open("/proc/self/oom_score_adj", "w")))
attack("write /proc/guest/clear_refs", ("EACCES", "EROFS"), system(lambda: open(f"/proc/{GUEST}/clear_refs", "w")))
attack("list /proc/guest/fd", "EACCES", system(lambda: os.listdir(f"/proc/{GUEST}/fd")))
attack("open /proc/guest/fd/0", "EACCES", system(lambda: open(f"/proc/{GUEST}/fd/0")))
for name in ["root", "cwd", "exe", "ns/pid"]:
    attack("follow /proc/guest/" + name, "EACCES", system(lambda name=name: os.readlink(f"/proc/{GUEST}/{name}")))

# Limits and scheduling of the guest.
for name, resource in [("cpu", 0), ("nofile", 7), ("as", 9), ("nproc", 6), ("sigpending", 11)]:
    syscall("prlimit64 " + name, "EPERM", (302, 261), GUEST, resource, text(struct.pack("QQ", 1, 1)), 0)
syscall("sched_setscheduler", "EPERM", (144, 119), GUEST, 5, text(struct.pack("i", 0)))
syscall("sched_setparam", "EPERM", (142, 118), GUEST, text(struct.pack("i", 0)))
syscall("sched_setattr", "EPERM", (314, 274), GUEST, text(struct.pack("IIQiIQQQ", 48, 5, 0, 0, 0, 0, 0, 0)), 0)
syscall("sched_setaffinity", "EPERM", (203, 122), GUEST, 8, text(struct.pack("Q", 1)))
syscall("setpriority", "EPERM", (141, 140), 0, GUEST, 19)
syscall("setpriority group", "EPERM", (141, 140), 1, GUEST, 19)
syscall("setpriority user", "EPERM", (141, 140), 2, 0, 19)
syscall("ioprio_set", "EPERM", (251, 30), 1, GUEST, 3 << 13)
syscall("ioprio_set user", "EPERM", (251, 30), 3, os.getuid(), 3 << 13)
syscall("migrate_pages", "EPERM", (256, 238), GUEST, 64, PAGE, PAGE)
syscall("move_pages", "EPERM", (279, 239), GUEST, 1, PAGE, PAGE, PAGE, 2)

# Signals to the guest.
for name, number in [("TERM", signal.SIGTERM), ("KILL", signal.SIGKILL), ("STOP", signal.SIGSTOP), ("RT", 40)]:
    syscall("kill " + name, "EPERM", (62, 129), GUEST, number)
# Signal 0 harms nobody, where the attack is not refused.
syscall("kill everybody", "EPERM", (62, 129), -1, 0)
syscall("tkill", "EPERM", (200, 130), GUEST, signal.SIGTERM)
syscall("tgkill", "EPERM", (234, 131), GUEST, GUEST, signal.SIGTERM)
details = text(struct.pack("iiiiiI", signal.SIGTERM, 0, -1, 0, 0, 0) + bytes(104))
syscall("rt_sigqueueinfo", "EPERM", (129, 138), GUEST, signal.SIGTERM, details)
syscall("rt_tgsigqueueinfo", "EPERM", (297, 240), GUEST, GUEST, signal.SIGTERM, details)


syscall("kill the guest's group", "EPERM", (62, 129), -GUEST, 0)


def signal_group_by_descriptor():
    pidfd = os.pidfd_open(GUEST)
    try:
        return call(424, pidfd, 0, 0, 4)
    finally:
        os.close(pidfd)


attack("pidfd_send_signal to a group", "EPERM", signal_group_by_descriptor)


def queue_by_descriptor():
    pidfd = os.pidfd_open(GUEST)
    try:
        return call(424, pidfd, signal.SIGTERM, details, 0)
    finally:
        os.close(pidfd)


attack("pidfd_send_signal with details", "EPERM", queue_by_descriptor)

# Keys, and the parts of the kernel that programs do without.
syscall("keyctl", "EPERM", (250, 219), 0, -3, 0)
syscall("add_key", "EPERM", (248, 217), text(b"user"), text(b"x"), text(b"y"), 1, -3)
syscall("request_key", "EPERM", (249, 218), text(b"user"), text(b"x"), 0, 0)
syscall("bpf", "EPERM", (321, 280), 0, PAGE, 48)
syscall("perf_event_open", "EPERM", (298, 241), PAGE, 0, -1, -1, 0)
syscall("userfaultfd", "EPERM", (323, 282), 1)
syscall("io_uring_setup", "ENOSYS", 425, 8, PAGE)
syscall("io_uring_enter", "ENOSYS", 426, 0, 0, 0, 0, 0, 0)
syscall("io_uring_register", "ENOSYS", 427, 0, 0, 0, 0)
syscall("a call of the future", "ENOSYS", 470, 0)
syscall("personality", "EPERM", (135, 92), 0x40000)
syscall("ioctl TIOCSTI", "EPERM", (16, 29), 0, 0x5412, PAGE)
syscall("ioctl TIOCSTI, upper bits", "EPERM", (16, 29), 0, 1 << 32 | 0x5412, PAGE)
syscall("ioctl TIOCLINUX", "EPERM", (16, 29), 0, 0x541C, PAGE)
for name, family in [
    ("AF_AX25", 3), ("AF_IPX", 4), ("AF_X25", 9), ("AF_PACKET", 17), ("AF_RDS", 21), ("AF_CAN", 29), ("AF_TIPC", 30),
    ("AF_BLUETOOTH", 31), ("AF_ALG", 38), ("AF_VSOCK", 40), ("AF_QIPCRTR", 42), ("AF_SMC", 43), ("AF_XDP", 44),
]:
    syscall("socket " + name, "EAFNOSUPPORT", (41, 198), family, 2, 0)
syscall("socketpair AF_TIPC", "EAFNOSUPPORT", (53, 199), 30, 2, 0, PAGE)
for name, protocol in [("sock_diag", 4), ("audit", 9), ("netfilter", 12), ("uevent", 15), ("generic", 16)]:
    syscall("netlink " + name, "EPROTONOSUPPORT", (41, 198), 16, 3, protocol)
for name, protocol in [("dccp", 33), ("l2tp", 115), ("sctp", 132), ("mptcp", 262)]:
    syscall("protocol " + name, "EPROTONOSUPPORT", (41, 198), 2, 1, protocol)

# The machine.
syscall("init_module", "EPERM", (175, 105), PAGE, 1, text(b""))
syscall("finit_module", "EPERM", (313, 273), 0, text(b""), 0)
syscall("delete_module", "EPERM", (176, 106), text(b"x"), 0)
syscall("kexec_load", "EPERM", (246, 104), 0, 0, 0, 0)
syscall("kexec_file_load", "EPERM", (320, 294), -1, -1, 0, 0, 0)
# With numbers that the kernel itself takes for a mistake.
syscall("reboot", "EPERM", (169, 142), 0, 0, 0, 0)
syscall("acct", "EPERM", (163, 89), text(b"/tmp/x"))
syscall("syslog", "EPERM", (103, 116), 3, PAGE, 10)
syscall("settimeofday", "EPERM", (164, 170), 0, 0)
syscall("clock_settime", "EPERM", (227, 112), 0, 0)
syscall("sethostname", "EPERM", (170, 161), text(b"x"), 1)
syscall("setdomainname", "EPERM", (171, 162), text(b"x"), 1)
syscall("vhangup", "EPERM", (153, 58))
if not ARM:
    syscall("iopl", "EPERM", 172, 3)
    syscall("ioperm", "EPERM", 173, 0, 1, 1)
    syscall("modify_ldt", "EPERM", 154, 0, PAGE, 16)
    # The numbers of x32 are those of this architecture with one bit more: `getpid` here.
    syscall("x32", "ENOSYS", 0x40000000 | 39)

    def killed(code):
        """How a child ends that runs machine code."""
        child = os.fork()
        if child == 0:
            memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            memory.write(code)
            ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else 0

    # mov eax, 20 (getpid); int 0x80; ret
    attack("i386", "SIGSYS", lambda: killed(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"))

chosen = sys.argv[2:]
wrong = 0
for name, expected, function in attacks:
    if chosen and name not in chosen:
        continue
    outcome = function()
    if outcome in expected:
        print("ok", name)
    else:
        wrong += 1
        print(f"WRONG {name}: expected {' or '.join(expected)}, got {outcome}")
print("attacks:", len(attacks), "wrong:", wrong)
