//! The pool's protocol (head of `pool`) as a machine of single steps, each one access of shared memory
//! or of the lock, and a walk over every interleaving of them.
//!
//! Checked in every state that can be reached: a job is written and read only as the head says, every
//! chunk runs exactly once before its job ends, no worker is left parked beside unclaimed chunks once the
//! caller has notified (where there is a chunk for each), and no state is stuck but the last. Spinning is a look
//! that may end at any time. Condition variables wake nobody of themselves, which is the worst case.

use std::collections::HashSet;

/// A mistake put into the protocol, to see that the walk finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// The caller does not take the lock between seeing sleepers and notifying.
    NotifyUnlocked,
    /// A worker looks for work before it counts itself among the sleepers.
    LookThenCount,
    /// A worker reads the job before it claims a chunk.
    ReadThenClaim,
    /// The last one to end a chunk does not look whether the caller sleeps.
    LeaveCallerAsleep,
}

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    // The caller.
    WriteJob,
    SetUnfinished,
    SetUnclaimed,
    LookForSleepers,
    PassLock { sleepers: u8 },
    Notify { sleepers: u8 },
    LookForEnd,
    LockToWait,
    SayAsleep,
    LookAsleep,
    Waiting,
    Woken,
    SayAwake,
    Close,
    PassLockToClose,
    NotifyAll,
    Join,
    // Both.
    Look,
    Claim { left: u8 },
    ReadJob { left: u8, job: u8 },
    End,
    LookForCaller,
    PassLockToCaller,
    NotifyCaller,
    // Workers.
    LookUnclaimed,
    LookClosing,
    LockToPark,
    Count,
    LookUnclaimedLocked,
    LookClosingLocked,
    Parked,
    Unparked,
    Uncount,
    Leave,
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    unclaimed: u8,
    unfinished: u8,
    sleepers: u8,
    caller_sleeps: bool,
    closing: bool,
    /// Whether some thread holds the lock.
    locked: bool,
    /// The job that is written, from 1.
    job: u8,
    /// Chunks of it that ran, a bit each.
    ran: u8,
    /// The caller is 0.
    threads: Vec<At>,
    /// The job that each worker read too early.
    early: Vec<u8>,
}

struct Model {
    jobs: u8,
    chunks: u8,
    mistake: Mistake,
}

impl Model {
    fn start(&self, workers: usize) -> State {
        let mut threads = vec![At::Look; workers + 1];
        threads[0] = At::WriteJob;
        State {
            unclaimed: 0,
            unfinished: 0,
            sleepers: 0,
            caller_sleeps: false,
            closing: false,
            locked: false,
            job: 0,
            ran: 0,
            threads,
            early: vec![0; workers + 1],
        }
    }

    /// Walks all interleavings; the number of states, or what went wrong.
    fn walk(&self, workers: usize) -> Result<usize, String> {
        let start = self.start(workers);
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some(state) = open.pop() {
            if self.forgot_a_worker(&state) {
                return Err(format!("a wake-up was lost: {state:?}"));
            }
            let mut stuck = true;
            for thread in 0..state.threads.len() {
                for next in self.steps(&state, thread)? {
                    stuck = false;
                    if seen.insert(next.clone()) {
                        open.push(next);
                    }
                }
            }
            if stuck && state.threads.iter().any(|at| *at != At::Done) {
                return Err(format!("stuck: {state:?}"));
            }
        }
        Ok(seen.len())
    }

    fn forgot_a_worker(&self, state: &State) -> bool {
        let works =
            matches!(state.threads[0], At::Look | At::Claim { .. } | At::ReadJob { .. } | At::End);
        let for_each = usize::from(self.chunks) >= state.threads.len();
        works && for_each && state.unclaimed > 0 && state.threads.contains(&At::Parked)
    }

    /// The states that one step of a thread can lead to.
    fn steps(&self, state: &State, thread: usize) -> Result<Vec<State>, String> {
        let mut s = state.clone();
        let is_caller = thread == 0;
        let none_left = if is_caller { At::LookForEnd } else { At::LookUnclaimed };
        let at = match state.threads[thread] {
            At::WriteJob => {
                if s.unclaimed + s.unfinished > 0 {
                    return Err(format!("a job is written while another runs: {state:?}"));
                }
                (s.job, s.ran) = (s.job + 1, 0);
                At::SetUnfinished
            }
            At::SetUnfinished => {
                s.unfinished = self.chunks;
                At::SetUnclaimed
            }
            At::SetUnclaimed => {
                s.unclaimed = self.chunks;
                At::LookForSleepers
            }
            At::LookForSleepers => match s.sleepers {
                0 => At::Look,
                sleepers if self.mistake == Mistake::NotifyUnlocked => At::Notify { sleepers },
                sleepers => At::PassLock { sleepers },
            },
            At::PassLock { .. } | At::PassLockToClose | At::PassLockToCaller if s.locked => {
                return Ok(vec![]);
            }
            At::PassLock { sleepers } => At::Notify { sleepers },
            At::Notify { sleepers } => {
                s.threads[thread] = At::Look;
                return Ok(notified(&s, (self.chunks - 1).min(sleepers)));
            }
            At::Look => match s.unclaimed {
                0 => none_left,
                left => {
                    s.early[thread] = s.job;
                    At::Claim { left }
                }
            },
            At::Claim { left } if s.unclaimed == left => {
                s.unclaimed -= 1;
                At::ReadJob { left, job: s.job }
            }
            At::Claim { .. } => match s.unclaimed {
                0 => none_left,
                left => At::Claim { left },
            },
            At::ReadJob { left, job } => {
                let early = self.mistake == Mistake::ReadThenClaim && !is_caller;
                let read = if early { s.early[thread] } else { s.job };
                let chunk = 1 << (self.chunks - left);
                if read != job || s.ran & chunk != 0 {
                    return Err(format!("chunk {left} of job {job} is not as claimed: {state:?}"));
                }
                s.ran |= chunk;
                At::End
            }
            At::End => {
                s.unfinished -= 1;
                match s.unfinished {
                    0 if self.mistake != Mistake::LeaveCallerAsleep => At::LookForCaller,
                    _ => At::Look,
                }
            }
            At::LookForCaller if s.caller_sleeps => At::PassLockToCaller,
            At::LookForCaller => At::Look,
            At::PassLockToCaller => At::NotifyCaller,
            At::NotifyCaller => {
                if s.threads[0] == At::Waiting {
                    s.threads[0] = At::Woken;
                }
                At::Look
            }
            At::LookForEnd if s.unfinished == 0 => self.ended(&s)?,
            At::LookForEnd => At::LockToWait,
            At::LockToWait | At::Woken | At::LockToPark | At::Unparked if s.locked => {
                return Ok(vec![]);
            }
            At::LockToWait => {
                s.locked = true;
                At::SayAsleep
            }
            At::SayAsleep => {
                s.caller_sleeps = true;
                At::LookAsleep
            }
            At::LookAsleep if s.unfinished == 0 => At::SayAwake,
            At::LookAsleep => {
                s.locked = false;
                At::Waiting
            }
            At::Woken => {
                s.locked = true;
                At::LookAsleep
            }
            At::SayAwake => {
                (s.caller_sleeps, s.locked) = (false, false);
                self.ended(&s)?
            }
            At::Close => {
                s.closing = true;
                At::PassLockToClose
            }
            At::PassLockToClose => At::NotifyAll,
            At::NotifyAll => {
                for other in &mut s.threads {
                    if *other == At::Parked {
                        *other = At::Unparked;
                    }
                }
                At::Join
            }
            At::Join if s.threads[1..].iter().all(|at| *at == At::Done) => At::Done,
            At::LookUnclaimed if s.unclaimed > 0 => At::Leave,
            At::LookUnclaimed => At::LookClosing,
            At::LookClosing if s.closing => At::Leave,
            At::LookClosing => At::LockToPark,
            At::LockToPark => {
                s.locked = true;
                match self.mistake {
                    Mistake::LookThenCount => At::LookUnclaimedLocked,
                    _ => At::Count,
                }
            }
            At::Count => {
                s.sleepers += 1;
                match self.mistake {
                    Mistake::LookThenCount => {
                        s.locked = false;
                        At::Parked
                    }
                    _ => At::LookUnclaimedLocked,
                }
            }
            At::LookUnclaimedLocked if s.unclaimed > 0 => At::Uncount,
            At::LookUnclaimedLocked => At::LookClosingLocked,
            At::LookClosingLocked if s.closing => At::Uncount,
            At::LookClosingLocked if self.mistake == Mistake::LookThenCount => At::Count,
            At::LookClosingLocked => {
                s.locked = false;
                At::Parked
            }
            At::Unparked => {
                s.locked = true;
                match self.mistake {
                    Mistake::LookThenCount => At::Uncount,
                    _ => At::LookUnclaimedLocked,
                }
            }
            At::Uncount => {
                // With the mistake, those that never parked were never counted.
                s.sleepers = s.sleepers.saturating_sub(1);
                s.locked = false;
                At::Leave
            }
            At::Leave if s.closing => At::Done,
            At::Leave => At::Look,
            At::Waiting | At::Parked | At::Join | At::Done => return Ok(vec![]),
        };
        s.threads[thread] = at;
        Ok(vec![s])
    }

    /// Where the caller goes after a job, all of whose chunks must have run.
    fn ended(&self, s: &State) -> Result<At, String> {
        if s.ran != (1 << self.chunks) - 1 {
            return Err(format!("job {} ended early: {s:?}", s.job));
        }
        Ok(if s.job < self.jobs { At::WriteJob } else { At::Close })
    }
}

/// Every way to wake `count` of the parked workers, or all if there are fewer.
fn notified(s: &State, count: u8) -> Vec<State> {
    let parked: Vec<usize> = (0..s.threads.len()).filter(|t| s.threads[*t] == At::Parked).collect();
    let count = parked.len().min(usize::from(count)) as u32;
    let choices = (0..1u32 << parked.len()).filter(|choice| choice.count_ones() == count);
    choices
        .map(|choice| {
            let mut next = s.clone();
            for (i, thread) in parked.iter().enumerate() {
                if choice >> i & 1 == 1 {
                    next.threads[*thread] = At::Unparked;
                }
            }
            next
        })
        .collect()
}

#[test]
fn no_interleaving_loses_a_chunk_a_wake_up_or_the_end() {
    for (workers, jobs, chunks) in [(1, 3, 2), (1, 2, 3), (2, 2, 2), (2, 2, 3), (3, 1, 2)] {
        let model = Model { jobs, chunks, mistake: Mistake::None };
        let states = model.walk(workers).unwrap_or_else(|wrong| panic!("{wrong}"));
        println!("{workers} workers, {jobs} jobs of {chunks} chunks: {states} states");
        assert!(states > 100);
    }
}

#[test]
fn the_walk_finds_mistakes() {
    for mistake in [
        Mistake::NotifyUnlocked,
        Mistake::LookThenCount,
        Mistake::ReadThenClaim,
        Mistake::LeaveCallerAsleep,
    ] {
        let model = Model { jobs: 2, chunks: 3, mistake };
        let wrong = model.walk(2).expect_err("the mistake is found");
        println!("{mistake:?}: {wrong}");
    }
}
