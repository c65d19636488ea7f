//! The layers of the sandbox, as system calls that a process makes on itself.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::outcome::{Layer, LayerState, Limits};
use super::protocol::THREADS;

/// The result of a system call that says −1 on failure.
pub fn checked(result: impl Into<i64>) -> io::Result<i64> {
    match result.into() {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// A layer in force.
pub fn active(name: &str, required: bool, detail: impl Into<String>) -> Layer {
    let state = LayerState::Active { detail: detail.into() };
    Layer { name: name.to_owned(), required, state }
}

/// A layer that this machine does not give.
pub fn missing(name: &str, required: bool, why: impl ToString) -> Layer {
    let state = LayerState::Missing { why: why.to_string() };
    Layer { name: name.to_owned(), required, state }
}

/// Enters namespaces of its own, as many as the kernel and the container allow. The namespace of
/// processes counts from the next fork on.
pub fn enter_namespaces() -> Vec<Layer> {
    // SAFETY: these calls take no arguments and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let mut layers = vec![match unshare(libc::CLONE_NEWUSER) {
        Ok(()) => match map_identity(user, group) {
            Ok(()) => active("user namespace", false, "no rights outside it"),
            Err(error) => missing("user namespace", false, format!("identity map: {error}")),
        },
        Err(error) => missing("user namespace", false, error),
    }];
    for (name, flag, detail) in [
        ("network namespace", libc::CLONE_NEWNET, "no interface"),
        ("ipc namespace", libc::CLONE_NEWIPC, "no shared memory or queue of others"),
        ("uts namespace", libc::CLONE_NEWUTS, "its own host name"),
        ("pid namespace", libc::CLONE_NEWPID, "sees and outlives no other process"),
    ] {
        layers.push(match unshare(flag) {
            Ok(()) => active(name, false, detail),
            Err(error) => missing(name, false, error),
        });
    }
    layers
}

fn unshare(flag: i32) -> io::Result<()> {
    // SAFETY: takes flags only; the process has one thread.
    checked(unsafe { libc::unshare(flag) }).map(drop)
}

/// Keeps the user's and the group's own numbers in the new user namespace.
fn map_identity(user: u32, group: u32) -> io::Result<()> {
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Lays a file system of bounded size, gone with the last process of the run, over the work
/// folder, in a mount namespace of its own.
pub fn bound_work_folder(work: &Path, file_bytes: u64) -> Layer {
    let name = "bounded work folder";
    match mount_bounded(work, file_bytes) {
        Ok(bytes) => active(name, false, format!("{} MiB in all", bytes >> 20)),
        Err(error) => missing(name, false, format!("{error}; each file is bounded, not their sum")),
    }
}

fn mount_bounded(work: &Path, file_bytes: u64) -> io::Result<u64> {
    unshare(libc::CLONE_NEWNS)?;
    // A little more than one file may have, so that a single file meets its own limit first.
    let bytes = (file_bytes + (1 << 20)).next_multiple_of(1 << 20);
    let options = format!("size={bytes},nr_inodes=16384,mode=0700");
    let (root, tmpfs) = (c"/", c"tmpfs");
    let work = path_bytes(work)?;
    let options = CString::new(options)?;
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the strings end in NUL and outlive the calls; null stands for unused arguments.
    unsafe {
        checked(libc::mount(
            std::ptr::null(),
            root.as_ptr(),
            std::ptr::null(),
            private,
            std::ptr::null(),
        ))?;
        checked(libc::mount(
            tmpfs.as_ptr(),
            work.as_ptr(),
            tmpfs.as_ptr(),
            libc::MS_NOEXEC | libc::MS_NOSUID | libc::MS_NODEV,
            options.as_ptr().cast(),
        ))?;
    }
    Ok(bytes)
}

/// Takes the mount off the work folder again, if there is one.
pub fn unmount(work: &Path) {
    if let Ok(path) = path_bytes(work) {
        // SAFETY: the string ends in NUL and outlives the call; without a mount there it fails.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

/// A path as the kernel takes it.
pub fn path_bytes(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// The limits that the kernel itself holds the process to. Memory comes apart, last.
pub fn set_limits(limits: &Limits, own_namespace: bool) -> io::Result<()> {
    let cpu = cpu_seconds(limits);
    // The soft limit ends the process by a signal that names the reason, the hard one ends it
    // even if that signal is ignored.
    set_limit(libc::RLIMIT_CPU, cpu, cpu + 1)?;
    set_limit(libc::RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes)?;
    set_limit(libc::RLIMIT_NOFILE, 128, 128)?;
    set_limit(libc::RLIMIT_CORE, 0, 0)?;
    set_limit(libc::RLIMIT_MEMLOCK, 0, 0)?;
    set_limit(libc::RLIMIT_MSGQUEUE, 0, 0)?;
    if own_namespace {
        // Counted per user: only in a namespace of its own is that this run alone.
        set_limit(libc::RLIMIT_NPROC, THREADS + 8, THREADS + 8)?;
    }
    Ok(())
}

/// Holds the address space to the limit.
pub fn set_memory_limit(limits: &Limits) -> io::Result<()> {
    set_limit(libc::RLIMIT_AS, limits.memory_bytes, limits.memory_bytes)
}

/// The limit on processor time as the kernel counts it, in whole seconds.
pub fn cpu_seconds(limits: &Limits) -> u64 {
    (limits.cpu.as_secs() + u64::from(limits.cpu.subsec_nanos() > 0)).max(1)
}

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

fn set_limit(resource: Resource, soft: u64, hard: u64) -> io::Result<()> {
    let mut current = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live structure of the right type, filled by the call.
    checked(unsafe { libc::getrlimit(resource, &mut current) })?;
    // A limit that is lower already stays: it cannot be raised, and need not be.
    let hard = hard.min(current.rlim_max);
    let limit = libc::rlimit { rlim_cur: soft.min(hard), rlim_max: hard };
    // SAFETY: the pointer is to a live structure of the right type, only read.
    checked(unsafe { libc::setrlimit(resource, &limit) }).map(drop)
}

/// Gives up every capability for good, and the gain of any by executing a file.
pub fn drop_privileges() -> io::Result<()> {
    // SAFETY: numbers only.
    checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    for capability in 0..64 {
        // SAFETY: numbers only; fails beyond the last capability, and without the right to drop,
        // which a process without capabilities does not need.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    // SAFETY: numbers only.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    // Version 3 of the header, this process; no capability effective, permitted or inheritable.
    let header: [u32; 2] = [0x2008_0522, 0];
    let none = [0u32; 6];
    // SAFETY: the pointers are to live arrays of the sizes that version 3 of the call reads.
    checked(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }).map(drop)
}

/// The version of Landlock that the kernel offers, 0 if none.
pub fn landlock_version() -> i64 {
    const VERSION_FLAG: u32 = 1;
    let no_attributes = std::ptr::null::<u8>();
    // SAFETY: with this flag the call reads nothing and returns the version.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, no_attributes, 0usize, VERSION_FLAG)
    };
    version.max(0)
}

/// Why the file system could not be closed.
pub struct Unrestricted {
    pub layer: &'static str,
    pub why: String,
}

impl Unrestricted {
    /// A part of the interpreter that this user reaches with capabilities only, which the
    /// interpreter will not have.
    pub fn unreachable(path: &Path, error: impl std::fmt::Display) -> Unrestricted {
        let path = path.display();
        Unrestricted {
            layer: "interpreter",
            why: format!(
                "{path} cannot be reached without special rights ({error}); install Python where \
                 this user can read it"
            ),
        }
    }
}

/// Closes the file system but for what the interpreter reads and the work folder; with newer
/// kernels also TCP, devices' controls, abstract sockets and signals to others.
pub fn restrict_files(
    read: &[PathBuf],
    execute: &[PathBuf],
    work: &Path,
) -> Result<(), Unrestricted> {
    let told =
        |error: landlock::RulesetError| Unrestricted { layer: "landlock", why: error.to_string() };
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .map_err(told)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V6))
        .map_err(told)?
        .handle_access(AccessNet::from_all(ABI::V6))
        .map_err(told)?
        .scope(Scope::from_all(ABI::V6))
        .map_err(told)?
        .create()
        .map_err(told)?;
    let null = PathBuf::from("/dev/null");
    let grants = read
        .iter()
        .map(|path| (path.as_path(), reading))
        .chain(execute.iter().map(|path| (path.as_path(), AccessFs::Execute | AccessFs::ReadFile)))
        .chain([(null.as_path(), AccessFs::ReadFile | AccessFs::WriteFile)])
        .chain([(work, work_rights())]);
    for (path, rights) in grants {
        let descriptor =
            PathFd::new(path).map_err(|error| Unrestricted::unreachable(path, error))?;
        let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(ABI::V6) };
        ruleset = ruleset.add_rule(PathBeneath::new(descriptor, rights)).map_err(told)?;
    }
    let status = ruleset.restrict_self().map_err(told)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(Unrestricted {
            layer: "landlock",
            why: "the kernel does not enforce it".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Files, folders and links in the work folder; no execution, devices, sockets or pipes.
fn work_rights() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::Refer
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::MakeSym
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
}
