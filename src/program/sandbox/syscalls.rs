//! The system calls that a program may make.
//!
//! Three filters. The first is the list of what an interpreter needs; whatever else exists, now or
//! in a later kernel, does not (`ENOSYS`), which is also what makes the C library fall back from
//! `clone3` to `clone`. The second makes closing all descriptors at once a success without effect
//! (the C library aborts where it fails). The third refuses calls of the first list by their
//! arguments, and calls that programs do try, with the error that programs understand (`EPERM`).

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

/// The descriptor of the harness's result channel in the interpreter.
pub const RESULT_FD: i32 = 4;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// What an interpreter needs. `prctl` and `seccomp` are here for the later filters' sake, the last
/// of which takes them away.
const ALLOWED: &[libc::c_long] = &[
    // Files and descriptors.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_umask,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    // A connected pair within the process, for event loops; nothing else can become a socket.
    libc::SYS_socketpair,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // Threads and their waiting.
    libc::SYS_clone,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getcpu,
    // Signals to itself.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_setitimer,
    libc::SYS_getitimer,
    // Time and facts about itself.
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getpriority,
    libc::SYS_getrusage,
    libc::SYS_prlimit64,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getrandom,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_execve,
    libc::SYS_prctl,
    libc::SYS_seccomp,
];

/// The older forms of the same, which exist on x86-64 only.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_eventfd,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_alarm,
    libc::SYS_pause,
    libc::SYS_time,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[libc::c_long] = &[libc::SYS_getrlimit, libc::SYS_setrlimit];

/// Calls that programs do try: refused with an error they understand.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_execveat,
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // These could carry the result channel to another descriptor.
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    // Landlock does not govern metadata, nor, in its first versions, truncation by path.
    libc::SYS_truncate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_mknodat,
    libc::SYS_chroot,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setsid,
    libc::SYS_setpgid,
    libc::SYS_setpriority,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_mknod,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// Requests of `ioctl` that concern a descriptor alone: terminal or not, blocking or not, bytes
/// to read, closed on exec or not.
const IOCTLS: &[u64] = &[0x5401, 0x5413, 0x5421, 0x541B, 0x5450, 0x5451];

/// The filters for the process `pid`, to be applied in this order. `exec_path`: the address of
/// the one path that may still be executed, the interpreter's.
pub fn filters(pid: u32, exec_path: usize) -> Result<[BpfProgram; 3], seccompiler::Error> {
    let filter = |rules, otherwise, matched| {
        let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
        Ok::<BpfProgram, seccompiler::Error>(
            SeccompFilter::new(rules, otherwise, matched, architecture)?.try_into()?,
        )
    };
    let errno = |errno: i32| SeccompAction::Errno(errno as u32);
    Ok([
        filter(allowed()?, errno(libc::ENOSYS), SeccompAction::Allow)?,
        filter(ignored()?, SeccompAction::Allow, errno(0))?,
        filter(refused(pid, exec_path)?, SeccompAction::Allow, errno(libc::EPERM))?,
    ])
}

/// Closing a range of descriptors that holds the result channel.
fn ignored() -> Result<Rules, seccompiler::Error> {
    let channel = RESULT_FD as u64;
    let holds_it =
        rule(&[(0, Length::Dword, Op::Le, channel), (1, Length::Dword, Op::Ge, channel)])?;
    Ok(Rules::from([(libc::SYS_close_range, vec![holds_it])]))
}

fn allowed() -> Result<Rules, seccompiler::Error> {
    let mut rules: Rules =
        ALLOWED.iter().chain(ALLOWED_HERE).map(|call| (*call, Vec::new())).collect();
    let ioctls = IOCTLS.iter().map(|request| rule(&[(1, Length::Dword, Op::Eq, *request)]));
    rules.insert(libc::SYS_ioctl, ioctls.collect::<Result<_, _>>()?);
    // Streams only: a datagram socket could still send to a socket with a path.
    let stream = Op::MaskedEq(0xF);
    rules.insert(
        libc::SYS_socketpair,
        vec![rule(&[
            (0, Length::Dword, Op::Eq, libc::AF_UNIX as u64),
            (1, Length::Dword, stream, libc::SOCK_STREAM as u64),
        ])?],
    );
    Ok(rules)
}

fn refused(pid: u32, exec_path: usize) -> Result<Rules, seccompiler::Error> {
    let mut rules: Rules =
        REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, Vec::new())).collect();
    let mut when = |call: libc::c_long, conditions: &[(u8, Length, Op, u64)]| {
        rules.entry(call).or_default().push(rule(conditions)?);
        Ok::<(), seccompiler::Error>(())
    };
    // New processes; threads pass.
    let thread = libc::CLONE_THREAD as u64;
    when(libc::SYS_clone, &[(0, Length::Qword, Op::MaskedEq(thread), 0)])?;
    // A second program.
    when(libc::SYS_execve, &[(0, Length::Qword, Op::Ne, exec_path as u64)])?;
    // Signals to others, directly or as the owner of a descriptor; limits of others.
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        when(call, &[(0, Length::Dword, Op::Ne, u64::from(pid))])?;
    }
    for command in [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX, libc::F_NOTIFY] {
        when(libc::SYS_fcntl, &[(1, Length::Dword, Op::Eq, command as u64)])?;
    }
    when(libc::SYS_prlimit64, &[(0, Length::Dword, Op::Ne, 0)])?;
    // The result channel stays where it is, alone: neither closed, nor replaced, nor copied, nor
    // read (it is a socket whose other end never writes).
    let channel = RESULT_FD as u64;
    for call in [libc::SYS_close, libc::SYS_dup, libc::SYS_dup3, libc::SYS_shutdown] {
        when(call, &[(0, Length::Dword, Op::Eq, channel)])?;
    }
    when(libc::SYS_dup3, &[(1, Length::Dword, Op::Eq, channel)])?;
    #[cfg(target_arch = "x86_64")]
    for argument in [0, 1] {
        when(libc::SYS_dup2, &[(argument, Length::Dword, Op::Eq, channel)])?;
    }
    for command in [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC] {
        let command = (1, Length::Dword, Op::Eq, command as u64);
        when(libc::SYS_fcntl, &[(0, Length::Dword, Op::Eq, channel), command])?;
    }
    // Opening for reading with truncation: Landlock's first versions let it pass.
    let mask = Op::MaskedEq((libc::O_TRUNC | libc::O_ACCMODE) as u64);
    let truncating = (libc::O_TRUNC | libc::O_RDONLY) as u64;
    when(libc::SYS_openat, &[(2, Length::Dword, mask.clone(), truncating)])?;
    #[cfg(target_arch = "x86_64")]
    when(libc::SYS_open, &[(1, Length::Dword, mask, truncating)])?;
    Ok(rules)
}

/// Commands of `fcntl` that choose which signal a descriptor sends, and to whom.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;

fn rule(conditions: &[(u8, Length, Op, u64)]) -> Result<SeccompRule, seccompiler::Error> {
    let conditions = conditions.iter().map(|(argument, length, op, value)| {
        SeccompCondition::new(*argument, length.clone(), op.clone(), *value)
    });
    Ok(SeccompRule::new(conditions.collect::<Result<_, _>>()?)?)
}
